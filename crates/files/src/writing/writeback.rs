//! Early writeback: starts writing to the disk while more data arrives.
//!
//! The kernel keeps written data in memory until it is flushed, and then `fsync` waits for all of it. Requests to start
//! writeback in between leave little for the `fsync` at the end.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The contiguous bytes after which writeback is requested. Smaller requests would cause more, smaller disk operations.
pub(super) const WRITEBACK_INTERVAL_BYTES: usize = 32 << 20;

/// The contiguous range that was written since writeback was last requested.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    from: u64,
    to: u64,
}

impl Writeback {
    /// Records a write, and requests writeback when the contiguous range is large enough.
    pub(super) fn record_write(&mut self, file: &File, offset: u64, length: u64) {
        if offset != self.to {
            self.from = offset;
        }
        self.to = offset + length;
        if self.to - self.from >= WRITEBACK_INTERVAL_BYTES as u64 {
            // It is a request: if it fails, the later fsync does all the work and reports the errors.
            // SAFETY: `sync_file_range` accesses no memory of the caller: it takes a descriptor, which `file` keeps open, and
            // numbers, which the kernel checks.
            unsafe {
                libc::sync_file_range(
                    file.as_raw_fd(),
                    self.from as i64,
                    (self.to - self.from) as i64,
                    libc::SYNC_FILE_RANGE_WRITE,
                )
            };
            self.from = self.to;
        }
    }
}
