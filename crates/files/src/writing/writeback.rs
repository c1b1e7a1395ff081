//! Having the disk work while there is more to write.
//!
//! The system keeps what is written in memory until somebody asks for it to be on the disk, and then everything waits. Asked
//! from time to time to begin, it has little left to do at the end.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Bytes for which it is worth asking: with fewer, the disk is given more and smaller jobs.
pub(crate) const STRETCH: usize = 32 << 20;

/// What was written to a file since the disk was last asked to begin.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    from: u64,
    to: u64,
}

impl Writeback {
    /// Notes what was written, and asks the disk to begin where enough has come in a row.
    pub(crate) fn wrote(&mut self, file: &File, offset: u64, length: u64) {
        if offset != self.to {
            self.from = offset;
        }
        self.to = offset + length;
        if self.to - self.from >= STRETCH as u64 {
            // SAFETY: numbers only. It is a request: where it is refused, the later fsync does all of it, and finds what went
            // wrong too.
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
