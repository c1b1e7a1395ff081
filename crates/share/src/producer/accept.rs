//! Accepting connections, and rejecting them before they are in the connection table.

use super::rejection;
use crate::protocol::RejectReason;
use crate::{socket, system};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Accepts the next connection in the queue.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    loop {
        // SAFETY: the listener is open, and null pointers mean that no address is returned.
        let socket =
            unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if socket >= 0 {
            // SAFETY: the call just created the descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(socket) });
        }
        let error = io::Error::last_os_error();
        // A consumer that disconnected while it was queued must not delay the next one.
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) {
            return Err(error);
        }
    }
}

/// Whether the peer runs as the same user.
pub(super) fn is_same_user(socket: &OwnedFd) -> bool {
    system::peer_credentials(socket.as_raw_fd()).is_ok_and(|peer| peer.user == system::user_id())
}

/// Sends a rejection without waiting.
pub(super) fn reject(socket: &OwnedFd, reason: RejectReason, text: &str) {
    // A consumer that does not accept it has gone.
    let _ = socket::send(socket.as_raw_fd(), &rejection::encode(reason, text), &[]);
}
