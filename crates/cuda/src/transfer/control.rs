//! Progress and cancellation of a transfer.

use crate::hints;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tensorferry_core::{Error, ErrorKind, Result};

/// Shared by the threads that move the bytes, which count them, and the caller, which may cancel the transfer.
#[derive(Debug, Default)]
pub struct TransferControl {
    bytes_moved: AtomicUsize,
    is_cancelled: AtomicBool,
}

impl TransferControl {
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
