//! How far a transfer is, and whether it is still wanted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tensorferry_core::{Error, ErrorKind, Result};

/// Seen from both sides: whoever moves the bytes counts them, whoever waits for them may call it off.
#[derive(Debug, Default)]
pub struct TransferControl {
    moved: AtomicUsize,
    called_off: AtomicBool,
}

impl TransferControl {
    /// Bytes that have crossed.
    pub fn bytes_moved(&self) -> usize {
        self.moved.load(Ordering::Relaxed)
    }

    /// Asks for an end. What is on its way arrives; nothing more is sent.
    pub fn cancel(&self) {
        self.called_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether it may go on.
    ///
    /// # Errors
    /// When it was called off.
    pub fn check(&self) -> Result<()> {
        if self.called_off.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Cancelled, "the transfer was cancelled")
                .with_advice("start it again if its result is still wanted"));
        }
        Ok(())
    }
}
