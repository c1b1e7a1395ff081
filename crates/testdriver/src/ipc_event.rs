//! Interprocess events: two counters in shared memory, of records and of the records that were reached.
//!
//! Streams of the test driver run only when something waits for them, and another process cannot make them run. So the
//! process that records such an event completes it after a delay. Until then a reader that does not wait finds old values,
//! as with any other missing wait.

use crate::memfd::{self, PAGE_BYTES};
use crate::work::Work;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the work of another process takes at least.
pub(crate) const COMPLETION_DELAY: Duration = Duration::from_millis(150);

/// Waits for longer than this are hangs, and end.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_micros(200);

pub(crate) struct IpcEvent {
    /// The number of records, and that of the records that were reached. The page is never unmapped: late work would write to
    /// memory that another owner got.
    counters: &'static [AtomicU64; 2],
    /// The file, if this process made the event.
    file: Option<OwnedFd>,
}

impl IpcEvent {
    pub(crate) fn new() -> Option<Self> {
        let file = memfd::create("testdriver-event", PAGE_BYTES)?;
        Some(Self { counters: memfd::map(&file, 0, PAGE_BYTES)?.leak_counters(), file: Some(file) })
    }

    /// Opens an event of another process.
    pub(crate) fn open(process: u32, descriptor: i32) -> Option<Self> {
        let file = memfd::open_in_process(process, descriptor)?;
        if file.metadata().ok()?.len() != PAGE_BYTES as u64 {
            return None;
        }
        Some(Self { counters: memfd::map(&file, 0, PAGE_BYTES)?.leak_counters(), file: None })
    }

    pub(crate) fn is_imported(&self) -> bool {
        self.file.is_none()
    }

    /// The descriptor by which other processes open it.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Counts a record. The returned work announces that the record was reached.
    pub(crate) fn record(&mut self) -> Option<Work> {
        self.file.as_ref()?;
        let [records, reached] = self.counters;
        let record = records.fetch_add(1, Ordering::AcqRel) + 1;
        Some(Box::new(move || {
            reached.fetch_max(record, Ordering::AcqRel);
        }))
    }

    /// Work that waits until all records so far are reached; `None` for an event of this process.
    pub(crate) fn wait(&self) -> Option<Work> {
        if !self.is_imported() {
            return None;
        }
        let [records, reached] = self.counters;
        let record = records.load(Ordering::Acquire);
        Some(Box::new(move || {
            let begin = Instant::now();
            while reached.load(Ordering::Acquire) < record && begin.elapsed() < HANG_TIMEOUT {
                std::thread::sleep(POLL_INTERVAL);
            }
        }))
    }

    pub(crate) fn is_complete(&self) -> bool {
        let [records, reached] = self.counters;
        reached.load(Ordering::Acquire) >= records.load(Ordering::Acquire)
    }
}
