//! The fd reserve: a spare descriptor, with which a process that has no other left can still reject consumers.
//!
//! Without a free descriptor `accept` fails, and the consumer would wait until its timeout. The reserve is closed, the
//! connection takes its descriptor, the consumer receives a rejection, and the reserve is opened again.

use super::accept::{accept, is_same_user, reject};
use super::rejection;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

pub(super) struct FdReserve(Option<OwnedFd>);

/// What became of the consumer that could not be accepted.
pub(super) enum AcceptFailure {
    /// The next consumer in the queue was rejected with a reason.
    Rejected,
    /// The queue is empty.
    QueueEmpty,
    /// Consumers may be queued, but nothing can be done now.
    Blocked,
}

impl FdReserve {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Opens the spare descriptor, if the system has one left.
    pub(super) fn refill(&mut self) {
        if self.0.is_none() {
            self.0 = eventfd(0, EventfdFlags::CLOEXEC).ok();
        }
    }

    /// The number of descriptors that it holds.
    pub(super) fn descriptor_count(&self) -> usize {
        usize::from(self.0.is_some())
    }

    /// Handles an error of `accept`.
    pub(super) fn handle_accept_error(&mut self, listener: &OwnedFd, error: Errno) -> AcceptFailure {
        match error {
            Errno::MFILE | Errno::NFILE if self.0.take().is_some() => {
                let next = accept(listener).map(|socket| {
                    let rejection = rejection::no_descriptor(Some(error.raw_os_error()));
                    if let Some((reason, text)) = rejection.filter(|_| is_same_user(&socket)) {
                        reject(&socket, reason, &text);
                    }
                });
                self.refill();
                match next {
                    Ok(()) => AcceptFailure::Rejected,
                    Err(Errno::AGAIN) => AcceptFailure::QueueEmpty,
                    // Another thread has taken the descriptor.
                    Err(_) => AcceptFailure::Blocked,
                }
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => AcceptFailure::Blocked,
            _ => AcceptFailure::QueueEmpty,
        }
    }
}
