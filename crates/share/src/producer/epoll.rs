//! Waiting for many descriptors at once, where it costs nothing that most of them stay quiet.
//!
//! The system keeps the list (epoll), and tells only who is ready. It keeps it by open file and not by descriptor, so that a
//! copy which a forked child has would keep a closed one in the list: whatever is closed is taken off the list first. A
//! child has the parent's list, and must change nothing in it.

use crate::errors::last;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// What the thread is roused by.
pub(crate) const WAKE: u64 = u64::MAX;
/// Those who want to be let in.
pub(crate) const LISTENER: u64 = u64::MAX - 1;
/// The most that is told at once.
const MOST: usize = 256;

/// One list.
pub(crate) struct Poll {
    list: OwnedFd,
    wake: OwnedFd,
}

/// Who is ready.
pub(crate) struct ReadyState(Vec<libc::epoll_event>);

impl Poll {
    /// How many descriptors it takes.
    pub(crate) const DESCRIPTORS: usize = 2;

    pub(crate) fn new() -> Result<Self> {
        let failed = || last("the socket for other processes cannot be made");
        // SAFETY: makes a descriptor and touches nothing.
        let list = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if list < 0 {
            return Err(failed());
        }
        // SAFETY: just made, and nobody else's.
        let list = unsafe { OwnedFd::from_raw_fd(list) };
        // SAFETY: makes a descriptor and touches nothing.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(failed());
        }
        // SAFETY: just made, and nobody else's.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let poll = Self { list, wake };
        poll.add(&poll.wake, libc::EPOLLIN, WAKE).map_err(|_| failed())?;
        Ok(poll)
    }

    /// Waits for these events of a descriptor from now on; its end is told in any case.
    pub(crate) fn add(&self, descriptor: &OwnedFd, events: i32, name: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, events, name)
    }

    /// Waits for other events. For a descriptor on the list the system has no reason to refuse.
    pub(crate) fn change(&self, descriptor: &OwnedFd, events: i32, name: u64) {
        let changed = self.control(libc::EPOLL_CTL_MOD, descriptor, events, name);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }

    /// Takes a descriptor off the list, before it is closed.
    pub(crate) fn remove(&self, descriptor: &OwnedFd) {
        // One that is not on the list is not an error here.
        let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0);
    }

    fn control(&self, what: i32, descriptor: &OwnedFd, events: i32, name: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: name };
        // SAFETY: both are open, and the struct lives through the call.
        let status =
            unsafe { libc::epoll_ctl(self.list.as_raw_fd(), what, descriptor.as_raw_fd(), &raw mut event) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// What [`ReadyState::wait`] takes.
    pub(crate) fn list(&self) -> RawFd {
        self.list.as_raw_fd()
    }

    /// Has the thread look again at what there is to wait for.
    pub(crate) fn rouse(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, which is what this descriptor takes.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// The thread is awake.
    pub(crate) fn roused(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes, which is what this descriptor gives.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    }
}

impl ReadyState {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(MOST))
    }

    /// Waits until somebody on the list is ready, or until then. The list is not to be closed meanwhile.
    pub(crate) fn wait(&mut self, list: RawFd, until: Option<Instant>) {
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up: a wait that is a little short would be repeated a thousand times.
        let wait = wait.filter(|wait| !wait.is_zero()).map_or_else(
            || if until.is_some() { 0 } else { -1 },
            |wait: Duration| i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX),
        );
        self.0.clear();
        // SAFETY: there is room for so many, of which the system fills some.
        unsafe {
            let told = libc::epoll_wait(list, self.0.as_mut_ptr(), MOST as i32, wait);
            self.0.set_len(usize::try_from(told).unwrap_or(0));
        }
    }

    /// Who it is.
    pub(crate) fn names(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|event| event.u64)
    }
}
