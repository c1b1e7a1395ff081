//! The output of a zip writer: a file, until the zip is cancelled.
//!
//! [`ZipWriter`](zip::write::ZipWriter) writes its directory when it is dropped, and prints a warning if that fails. After an
//! error, and when a writer is dropped early, the directory is useless. A [`CancelOnDrop`] that is dropped first makes
//! [`ZipOutput`] discard it.

use super::writeback::Writeback;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::file_size_limit;

/// Cancels the output when it is dropped.
#[derive(Debug)]
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes to a file by offset. After cancellation it discards everything.
#[derive(Debug)]
pub(super) struct ZipOutput {
    file: File,
    position: u64,
    writeback: Option<Writeback>,
    is_cancelled: Arc<AtomicBool>,
}

impl ZipOutput {
    pub(super) fn new(file: File, writeback: Option<Writeback>) -> (Self, CancelOnDrop) {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancel = CancelOnDrop(is_cancelled.clone());
        (Self { file, position: 0, writeback, is_cancelled }, cancel)
    }

    fn write_at_position(&self, bytes: &[u8]) -> io::Result<usize> {
        file_size_limit::check(self.position.saturating_add(bytes.len() as u64))?;
        self.file.write_at(bytes, self.position)
    }
}

impl Write for ZipOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut count = bytes.len();
        if !self.is_cancelled.load(Ordering::Relaxed) {
            // An error makes the zip useless.
            count = self.write_at_position(bytes).inspect_err(|error| {
                self.is_cancelled.store(error.kind() != io::ErrorKind::Interrupted, Ordering::Relaxed)
            })?;
            if let Some(writeback) = &mut self.writeback {
                writeback.record_write(&self.file, self.position, count as u64);
            }
        }
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for ZipOutput {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.file.metadata()?.len().checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
