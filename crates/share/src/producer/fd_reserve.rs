//! One descriptor in reserve, for those who come when none is left.
//!
//! A process that has used up its descriptors cannot even accept a connection to say so, and whoever comes would wait out
//! its time. So one is held that does nothing: it is closed, the connection takes its place, the consumer is told why it is
//! turned away, and the place is taken again.

use crate::producer::connection::refusal;
use crate::protocol::RejectReason;
use crate::{socket, system};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(crate) struct Reserve(Option<OwnedFd>);

impl Reserve {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Holds one, if one can be had.
    pub(crate) fn fill(&mut self) {
        if self.0.is_none() {
            // SAFETY: makes a descriptor and touches nothing.
            let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            // SAFETY: just made, and nobody else's.
            self.0 = (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) });
        }
    }

    /// How many descriptors it is.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.0.is_some())
    }

    /// Does what can be done when nobody could be let in.
    pub(crate) fn cope(&mut self, listener: &OwnedFd, error: &io::Error) -> Coped {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) if self.0.take().is_some() => {
                let next = accept(listener).map(|socket| {
                    if let Some((reason, text)) =
                        no_descriptor(error.raw_os_error()).filter(|_| is_ours(&socket))
                    {
                        turn_away(&socket, reason, &text);
                    }
                });
                self.fill();
                match next {
                    Ok(()) => Coped::TurnedAway,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Coped::Nobody,
                    // Another thread was quicker to take the place.
                    Err(_) => Coped::Cannot,
                }
            }
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => Coped::Cannot,
            _ => Coped::Nobody,
        }
    }
}

/// What came of it.
pub(crate) enum Coped {
    /// The next consumer in the queue was told why it is not let in.
    TurnedAway,
    /// Nobody waits.
    Nobody,
    /// Somebody may wait, and there is nothing to be done now.
    Cannot,
}

/// Tells a consumer why it is not let in.
pub(crate) fn turn_away(socket: &OwnedFd, reason: RejectReason, text: &str) {
    // Where it is not taken, nobody listens.
    let _ = socket::send(socket.as_raw_fd(), &refusal(reason, text), &[]);
}

/// What a consumer is told where the system has no descriptor for it; `None` where that is not what failed.
pub(crate) fn no_descriptor(cause: Option<i32>) -> Option<(RejectReason, String)> {
    let text = match (cause?, system::most_descriptors()) {
        (libc::EMFILE, Some(most)) => {
            format!("the producer has no descriptor left of the {most} that it may have")
        }
        (libc::EMFILE | libc::ENFILE, _) => "the producer's system has no descriptor left".into(),
        _ => return None,
    };
    Some((RejectReason::NoDescriptor, text))
}

/// The next connection in the queue.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    loop {
        // SAFETY: the listener is open; no address is asked for.
        let socket =
            unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if socket >= 0 {
            // SAFETY: just made, and nobody else's.
            return Ok(unsafe { OwnedFd::from_raw_fd(socket) });
        }
        let error = io::Error::last_os_error();
        // One that has gone while it waited is no reason to let the next one wait.
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) {
            return Err(error);
        }
    }
}

/// Whether a process of this user is at the other end.
pub(crate) fn is_ours(socket: &OwnedFd) -> bool {
    system::peer(socket.as_raw_fd()).is_ok_and(|(_, user)| user == system::user())
}
