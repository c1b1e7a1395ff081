//! A wrapper of epoll with an eventfd that wakes the waiting thread.
//!
//! Epoll registers open file descriptions, not descriptors: the copy in a forked child would keep a closed descriptor
//! registered. So every descriptor is unregistered before it is closed. A child inherits the parent's epoll instance
//! and must not change it.

use crate::errors::system_error;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// The token of the eventfd that wakes the thread.
pub(super) const WAKE_TOKEN: u64 = u64::MAX;
/// The token of the listening socket.
pub(super) const LISTENER_TOKEN: u64 = u64::MAX - 1;
/// Events that one wait returns at most.
const MAX_EVENTS: usize = 256;
/// The longest timeout of a wait, in milliseconds; the thread waits again after it.
const MAX_WAIT_MILLISECONDS: u64 = i32::MAX as u64;

/// An epoll instance with its eventfd.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// The events of one wait.
pub(super) struct EpollEvents(Vec<Event>);

impl Epoll {
    /// The number of descriptors of an instance.
    pub(super) const DESCRIPTOR_COUNT: usize = 2;

    /// Creates an instance for the rest of the process: the server thread waits for it without the server's lock.
    pub(super) fn new() -> Result<&'static Self> {
        let failed = |error| system_error("cannot create the epoll instance of the server", error);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE_TOKEN), EventFlags::IN).map_err(failed)?;
        Ok(Box::leak(Box::new(Self { epoll, wake })))
    }

    /// Registers a descriptor for these events. The end of a connection is always reported.
    pub(super) fn add(&self, descriptor: &OwnedFd, events: EventFlags, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(token), events)?)
    }

    /// Changes the events of a registered descriptor, which cannot fail.
    pub(super) fn modify(&self, descriptor: &OwnedFd, events: EventFlags, token: u64) {
        let changed = epoll::modify(&self.epoll, descriptor, EventData::new_u64(token), events);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }

    /// Unregisters a descriptor before it is closed.
    pub(super) fn remove(&self, descriptor: &OwnedFd) {
        // A descriptor that is not registered is not an error.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// All descriptors of the instance.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; Self::DESCRIPTOR_COUNT] {
        [self.epoll.as_fd(), self.wake.as_fd()]
    }

    /// Wakes the thread, so that it computes its deadline again.
    pub(super) fn wake(&self) {
        // A count that is full wakes the thread as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Resets the eventfd.
    pub(super) fn clear_wake(&self) {
        // A count of zero is reset already.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

impl EpollEvents {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(MAX_EVENTS))
    }

    /// Waits for events until the deadline. If the wait fails, the list is empty.
    pub(super) fn wait(&mut self, epoll: &Epoll, deadline: Option<Instant>) {
        let wait = deadline.map(|deadline| {
            let wait = deadline.saturating_duration_since(Instant::now());
            // Rounded up: a timeout of zero milliseconds would spin until the deadline.
            let milliseconds = if wait.is_zero() { 0 } else { wait.as_millis() + 1 };
            let wait = Duration::from_millis(
                u64::try_from(milliseconds).unwrap_or(u64::MAX).min(MAX_WAIT_MILLISECONDS),
            );
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
        });
        self.0.clear();
        let _ = epoll::wait(&epoll.epoll, spare_capacity(&mut self.0), wait.as_ref());
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|event| event.data.u64())
    }
}
