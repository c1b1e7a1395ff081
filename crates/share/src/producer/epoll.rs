//! A wrapper of epoll with an eventfd that wakes the waiting thread.
//!
//! Epoll registers open file descriptions, not descriptors: the copy in a forked child would keep a closed descriptor
//! registered. So every descriptor is unregistered before it is closed. A child inherits the parent's epoll instance
//! and must not change it.

use crate::errors::last_system_error;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// The token of the eventfd that wakes the thread.
pub(super) const WAKE_TOKEN: u64 = u64::MAX;
/// The token of the listening socket.
pub(super) const LISTENER_TOKEN: u64 = u64::MAX - 1;
/// Events that one wait returns at most.
const MAX_EVENTS: usize = 256;

/// An epoll instance with its eventfd.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// The events of one wait.
pub(super) struct EpollEvents(Vec<libc::epoll_event>);

impl Epoll {
    /// The number of descriptors of an instance.
    pub(super) const DESCRIPTOR_COUNT: usize = 2;

    pub(super) fn new() -> Result<Self> {
        let failed = || last_system_error("cannot create the epoll instance of the server");
        // SAFETY: the call creates a descriptor and accesses no memory.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(failed());
        }
        // SAFETY: the call just created the descriptor, and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        // SAFETY: the call creates a descriptor and accesses no memory.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(failed());
        }
        // SAFETY: the call just created the descriptor, and nothing else owns it.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let epoll = Self { epoll, wake };
        epoll.add(&epoll.wake, libc::EPOLLIN, WAKE_TOKEN).map_err(|_| failed())?;
        Ok(epoll)
    }

    /// Registers a descriptor for these events. The end of a connection is always reported.
    pub(super) fn add(&self, descriptor: &OwnedFd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, events, token)
    }

    /// Changes the events of a registered descriptor, which cannot fail.
    pub(super) fn modify(&self, descriptor: &OwnedFd, events: i32, token: u64) {
        let changed = self.control(libc::EPOLL_CTL_MOD, descriptor, events, token);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }

    /// Unregisters a descriptor before it is closed.
    pub(super) fn remove(&self, descriptor: &OwnedFd) {
        // A descriptor that is not registered is not an error.
        let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0);
    }

    fn control(&self, operation: i32, descriptor: &OwnedFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both are open, and the struct lives until the call returns.
        let status = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor.as_raw_fd(), &raw mut event)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The descriptor for [`EpollEvents::wait`].
    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Wakes the thread, so that it computes its deadline again.
    pub(super) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: an eventfd reads exactly the eight bytes of `one`.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// Resets the eventfd.
    pub(super) fn clear_wake(&self) {
        let mut count = [0u8; 8];
        // SAFETY: an eventfd writes at most the eight bytes of `count`.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    }
}

impl EpollEvents {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(MAX_EVENTS))
    }

    /// Waits for events until the deadline. The epoll instance must stay open meanwhile.
    pub(super) fn wait(&mut self, epoll: RawFd, deadline: Option<Instant>) {
        let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Rounded up: a timeout of zero milliseconds would spin until the deadline.
        let wait = wait.filter(|wait| !wait.is_zero()).map_or_else(
            || if deadline.is_some() { 0 } else { -1 },
            |wait: Duration| i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX),
        );
        self.0.clear();
        // SAFETY: the vector has room for that many events, of which the system fills some.
        unsafe {
            let count = libc::epoll_wait(epoll, self.0.as_mut_ptr(), MAX_EVENTS as i32, wait);
            self.0.set_len(usize::try_from(count).unwrap_or(0));
        }
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|event| event.u64)
    }
}
