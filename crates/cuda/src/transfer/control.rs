//! Progress and cancellation of a transfer.

use crate::hints;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tensorferry_core::{Error, ErrorKind, Result};

/// Shared by the threads that move the bytes, which count them, and the caller, which may cancel the transfer.
#[derive(Debug, Default)]
pub struct TransferControl {
    bytes_moved: AtomicUsize,
    is_cancelled: AtomicBool,
    is_timed: bool,
    /// When the destination of a timed transfer was free.
    started_at: OnceLock<Instant>,
}

impl TransferControl {
    /// The control of an upload for which the host waits at both ends: for earlier work on the destination, whose end it records as
    /// the start, and for the last operation. Otherwise only the GPU would wait.
    pub fn timed() -> Self {
        Self { is_timed: true, ..Self::default() }
    }

    /// Whether the start of the transfer is recorded.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Records that the destination is free. Only the first call counts.
    pub fn set_started(&self) {
        let _ = self.started_at.set(Instant::now());
    }

    /// When the destination was free; `None` before, and for a transfer that is not timed.
    pub fn started_at(&self) -> Option<Instant> {
        self.started_at.get().copied()
    }

    /// Bytes that have crossed.
    pub fn bytes_moved(&self) -> usize {
        self.bytes_moved.load(Ordering::Relaxed)
    }

    /// Requests cancellation. Copies in flight complete, and no further copy is queued.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.bytes_moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns an error once the transfer was cancelled.
    ///
    /// # Errors
    /// When it was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Cancelled, "the transfer was cancelled")
                .with_hint(hints::RESTART_TRANSFER));
        }
        Ok(())
    }
}
