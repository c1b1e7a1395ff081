//! Writing one buffer to a file with several threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::{file_size_limit, workers};

/// The size of one write.
const CHUNK_BYTES: usize = 4 << 20;

/// Writes `bytes` at `offset`, with up to `threads` threads for large buffers. Nothing is written if the file would exceed the
/// limit on the size of files.
pub(super) fn write_parallel(file: &File, offset: u64, bytes: &[u8], threads: usize) -> io::Result<()> {
    file_size_limit::check(offset.saturating_add(bytes.len() as u64))?;
    let chunks = bytes.len().div_ceil(CHUNK_BYTES);
    if chunks < 2 || threads < 2 {
        return file.write_all_at(bytes, offset);
    }
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    workers::run_parallel(threads.min(chunks), || {
        while let chunk = next.fetch_add(1, Ordering::Relaxed)
            && chunk < chunks
        {
            let start = chunk * CHUNK_BYTES;
            let slice = &bytes[start..bytes.len().min(start + CHUNK_BYTES)];
            if let Err(error) = file.write_all_at(slice, offset + start as u64) {
                next.store(chunks, Ordering::Relaxed);
                if let Ok(mut slot) = failure.lock() {
                    *slot = Some(error);
                }
            }
        }
    });
    match failure.into_inner().unwrap_or_default() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
