//! Events between processes: two numbers in shared memory, how often the event was recorded and how often that was reached.
//!
//! Streams of the stand-in do nothing before somebody waits for them, and another process cannot make them. So a record
//! of such an event has its own process do the work after a while. Until then a reader that forgot to wait finds old
//! values, as everywhere here.

use crate::memfd::{self, PAGE, Stretch};
use crate::timeline::Work;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long another process's work takes at least.
pub(crate) const DELAY: Duration = Duration::from_millis(150);

pub(crate) struct Signal {
    page: Stretch,
    /// The file, where it is ours.
    file: Option<OwnedFd>,
}

impl Signal {
    pub(crate) fn new() -> Option<Self> {
        let file = memfd::make("testdriver-event")?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), PAGE as i64) } != 0 {
            return None;
        }
        Some(Self { page: memfd::map(file.as_raw_fd(), 0, PAGE)?, file: Some(file) })
    }

    /// One of another process's.
    pub(crate) fn open(process: u32, number: i32) -> Option<Self> {
        let file = memfd::of_process(process, number)?;
        if file.metadata().ok()?.len() != PAGE as u64 {
            return None;
        }
        Some(Self { page: memfd::map(file.as_raw_fd(), 0, PAGE)?, file: None })
    }

    pub(crate) fn is_opened(&self) -> bool {
        self.file.is_none()
    }

    /// The number under which others find it.
    pub(crate) fn number(&self) -> Option<i32> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Notes a record; what comes back says that it was reached.
    pub(crate) fn record(&mut self) -> Option<Work> {
        self.file.as_ref()?;
        let start = self.page.start;
        let number = counter(start, 0).fetch_add(1, Ordering::AcqRel) + 1;
        // The page stays mapped for good: work that is late would write to memory of somebody else.
        Some(Box::new(move || {
            counter(start, 1).fetch_max(number, Ordering::AcqRel);
        }))
    }

    /// Waits until all that was recorded so far is reached.
    pub(crate) fn wait(&self) -> Option<Work> {
        if !self.is_opened() {
            return None;
        }
        let start = self.page.start;
        let number = counter(start, 0).load(Ordering::Acquire);
        Some(Box::new(move || {
            let begin = Instant::now();
            while counter(start, 1).load(Ordering::Acquire) < number && begin.elapsed() < crate::HANG {
                std::thread::sleep(Duration::from_micros(200));
            }
        }))
    }

    pub(crate) fn is_over(&self) -> bool {
        counter(self.page.start, 1).load(Ordering::Acquire)
            >= counter(self.page.start, 0).load(Ordering::Acquire)
    }
}

fn counter(start: usize, index: usize) -> &'static AtomicU64 {
    let page: *const AtomicU64 = std::ptr::with_exposed_provenance(start);
    // SAFETY: a page of zeros that stays mapped, written by both processes with atomic operations alone.
    unsafe { &*page.add(index) }
}
