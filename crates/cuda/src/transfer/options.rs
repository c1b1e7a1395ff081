//! Options of chunked transfers: threads, and the sizes of the ring buffer and its chunks.

use super::pinned::HUGE_PAGE_BYTES;
use crate::hints;
use std::num::NonZero;
use tensorferry_core::{Error, ErrorKind, Result};

/// Options of a chunked transfer over a ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Threads that copy on the host.
    pub threads: usize,
    /// Half of the ring's bytes for each thread, and the upper limit of a chunk's bytes.
    pub chunk: usize,
    /// Whether to use less memory at the cost of time.
    pub saves_memory: bool,
    /// Whether the batch that is open on this thread waits for small uploads.
    pub batched: bool,
}

/// Below this size, dispatching a chunk to a thread costs more than it gains.
const MIN_CHUNK_BYTES: usize = 128 << 10;

/// Chunks are no larger, so that a thread soon finishes one.
const MAX_CHUNK_BYTES: usize = 512 << 10;

/// Smaller uploads use [`SMALL_UPLOAD_THREADS`]: waking all threads would take as long as the upload.
pub(crate) const ALL_THREADS_UPLOAD_BYTES: usize = 48 << 20;
const SMALL_UPLOAD_THREADS: usize = 6;

/// Rings up to this size have powers of two as sizes, so that small transfers reuse each other's rings.
const MAX_ROUNDED_RING_BYTES: usize = 8 << 20;

impl RingOptions {
    /// The options for a process with this many cores, unless the caller names a number of threads or a chunk size.
    ///
    /// The defaults are three quarters of the cores (all of them up to four cores, at most sixteen threads), including the
    /// calling thread, and chunks of 1.5 MiB.
    pub fn with_defaults(cores: usize, threads: Option<NonZero<usize>>, chunk: Option<usize>) -> Self {
        /// More threads did not raise the throughput in measurements, and each one has staging buffers.
        const MAX_TRANSFER_THREADS: usize = 16;
        /// With smaller chunks the threads wait for slots; larger ones take longer to pin. Measured with 256 MiB on an H200
        /// and chunks of 1, 1.5 and 2 MiB: the first download took 16, 13.6 and 13 to 24 ms, later ones 12.5, 10 and 11 ms.
        const DEFAULT_CHUNK_BYTES: usize = 3 << 19;
        let default_threads = if cores <= 4 { cores } else { cores * 3 / 4 };
        let threads = threads.map_or(default_threads, NonZero::get).min(MAX_TRANSFER_THREADS);
        Self { threads, chunk: chunk.unwrap_or(DEFAULT_CHUNK_BYTES), saves_memory: false, batched: false }
    }

    /// The same options within a memory budget: fewer threads and smaller chunks, whose ring is whole huge pages.
    ///
    /// # Errors
    /// If the budget is smaller than one huge page.
    pub fn within(self, bytes: usize) -> Result<Self> {
        let room = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let room = if room > MAX_ROUNDED_RING_BYTES || room == 0 { room } else { 1 << room.ilog2() };
        if room == 0 {
            let fact = format!(
                "the budget is {bytes} bytes, and a transfer needs buffers of at least {HUGE_PAGE_BYTES} bytes"
            );
            return Err(Error::new(ErrorKind::OutOfMemory, fact).with_hint(hints::RAISE_BUDGET));
        }
        let threads = self.threads.clamp(1, room / (2 * MIN_CHUNK_BYTES));
        Ok(Self { threads, chunk: self.chunk.min(room / (2 * threads)), saves_memory: true, ..self })
    }

    /// The same options for an upload of this size: waking many threads takes as long as a small upload.
    pub(crate) fn for_upload(self, bytes: usize) -> Self {
        let max_threads = if bytes < ALL_THREADS_UPLOAD_BYTES { SMALL_UPLOAD_THREADS } else { self.threads };
        Self { threads: self.threads.min(max_threads), ..self }
    }

    /// The same options for a transfer of this size: each thread gets two chunks or more, unless these would be smaller
    /// than [`MIN_CHUNK_BYTES`].
    pub(crate) fn for_transfer(self, bytes: usize) -> Self {
        let chunk = (bytes / self.threads.max(1) / 2).next_multiple_of(4 << 10);
        let chunk = chunk.clamp(MIN_CHUNK_BYTES.min(self.chunk), self.chunk);
        Self { threads: self.threads.clamp(1, bytes.div_ceil(chunk).max(1)), chunk, ..self }
    }

    /// Bytes of the ring buffer.
    pub(crate) fn ring_bytes(self) -> usize {
        let bytes = 2 * self.threads * self.chunk;
        if bytes <= MAX_ROUNDED_RING_BYTES { bytes.next_power_of_two() } else { bytes }
    }

    /// Bytes of a chunk in a transfer of this size: each thread copies several.
    pub(crate) fn chunk_bytes(self, transfer_bytes: usize) -> usize {
        (transfer_bytes / (8 * self.threads)).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES).min(self.chunk)
    }
}
