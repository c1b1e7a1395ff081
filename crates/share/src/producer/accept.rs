//! Accepting connections, and rejecting them before they are in the connection table.

use super::rejection;
use crate::protocol::RejectReason;
use crate::{socket, system};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::os::fd::{AsFd, OwnedFd};

/// Accepts the next connection in the queue.
pub(super) fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            // A consumer that disconnected while it was queued must not delay the next one.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            result => return result,
        }
    }
}

/// Whether the peer runs as the same user.
pub(super) fn is_same_user(socket: &OwnedFd) -> bool {
    system::peer_credentials(socket.as_fd()).is_ok_and(|peer| peer.user == system::user_id())
}

/// Sends a rejection without waiting.
pub(super) fn reject(socket: &OwnedFd, reason: RejectReason, text: &str) {
    // A consumer that does not accept it has gone.
    let _ = socket::send(socket, &rejection::encode(reason, text), &[]);
}
