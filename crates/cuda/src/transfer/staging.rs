//! Staging buffers: small uploads are copied into pinned memory, from which the GPU reads them asynchronously.
//!
//! The driver stages pageable memory too, but on one thread and with a wait for each upload. A [`StagingBuffer`]
//! appends uploads to blocks of the host pool until a caller waits for all of them. A full block is reused once the GPU
//! has read it. Larger uploads are split into chunks, which helper threads copy too from 512 KiB on; only the caller
//! calls the driver.

use super::chunks::TransferChunks;
use super::endpoints::{GpuEndpoint, HostEndpoint, SharedPointer};
use super::parallel_fill::{FillProgress, fill_and_submit};
use super::path::SMALL_UPLOAD_BYTES;
use super::pinned;
use crate::driver::handles::Address;
use crate::event_pool::{EVENT_SPIN_TIME, Event};
use crate::gpu::Gpu;
use crate::hints;
use crate::stream::{Stream, SyncPoint};
use std::collections::VecDeque;
use std::mem;
use tensorferry_core::pool::{self, BlockUse, PoolBlock};
use tensorferry_core::{Error, ErrorKind, Layout, Result, pack};

/// Bytes of a block: every staged upload fits into one.
const BLOCK_BYTES: usize = SMALL_UPLOAD_BYTES;
/// Full blocks that the GPU may still read; then the next upload waits for the oldest.
const MAX_FULL_BLOCKS: usize = 4;
/// Each upload begins on a cache line of its own.
const UPLOAD_ALIGNMENT_BYTES: usize = 64;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 128 << 10;
/// Bytes for each thread, and the limit on threads: waking more costs more than it gains.
const BYTES_PER_THREAD: usize = 256 << 10;
const MAX_THREADS: usize = 4;
/// About how many copies are submitted for an upload in chunks: submitting one takes as long as copying 64 KiB.
const COPIES_PER_UPLOAD: usize = 3;
/// Uploads from this size on are written past the caches.
const NON_TEMPORAL_THRESHOLD_BYTES: usize = 512 << 10;

/// Pinned memory that holds small uploads to one GPU until the GPU has read them.
pub(crate) struct StagingBuffer {
    gpu: &'static Gpu,
    current: Option<CurrentBlock>,
    /// Full blocks, with events that complete when the GPU has read them.
    full: VecDeque<(PoolBlock, Vec<Event>)>,
    /// All streams that were used since the last wait.
    streams: Vec<Stream>,
}

/// The block to which uploads are appended.
struct CurrentBlock {
    block: PoolBlock,
    used_bytes: usize,
    /// The streams that read from it.
    streams: Vec<Stream>,
}

impl StagingBuffer {
    pub(crate) fn new(gpu: &'static Gpu) -> Self {
        Self { gpu, current: None, full: VecDeque::new(), streams: Vec::new() }
    }

    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Whether no upload is to be waited for.
    pub(crate) fn is_settled(&self) -> bool {
        self.streams.is_empty()
    }

    /// Uploads at most [`BLOCK_BYTES`] to dense GPU memory, packed and cast on the host. When this returns, the source has
    /// been read, and work that the stream is given next sees the values. Returns false, with nothing done, where the
    /// driver cannot pin memory.
    ///
    /// # Errors
    /// When the device fails, or the stream is being captured.
    ///
    /// # Safety
    /// - The host's memory is readable over the extent of its layout, and nobody writes to it, until this returns.
    /// - The GPU's memory has room for as many elements of its type as the host's layout has. It lives, and nobody else uses
    ///   it, until the stream has passed this upload.
    /// - The elements take at most [`BLOCK_BYTES`] in the GPU's type.
    pub(crate) unsafe fn upload(
        &mut self,
        from: HostEndpoint<'_>,
        to: GpuEndpoint,
        stream: Stream,
        threads: usize,
    ) -> Result<bool> {
        if self.gpu.is_captured(SyncPoint::Stream(stream))? {
            // The graph would record the address of the staging buffer, and not the values.
            let fact = "host memory cannot be uploaded on a captured stream";
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::UPLOAD_BEFORE_CAPTURE));
        }
        let Some(staged) = self.allocate(from.layout.count() * to.dtype.size(), stream)? else {
            return Ok(false);
        };
        // SAFETY: the two memories meet the first two clauses of this function's contract. `allocate` has returned as many
        // staged bytes as the elements take, for this upload alone; `settle` waits for the stream before the block is reused.
        unsafe { copy_and_submit(self.gpu, from, to, stream, threads, staged)? };
        Ok(true)
    }

    /// Waits until the GPU has read all uploads.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn settle(&mut self) -> Result<()> {
        // A capture on another stream must not forbid this wait.
        let _relaxed = self.gpu.relax_capture_mode();
        let settled = self
            .streams
            .drain(..)
            .map(|stream| self.gpu.wait(SyncPoint::Stream(stream)))
            .fold(Ok(()), Result::and);
        let current = self.current.take().map(|current| (current.block, Vec::new()));
        for (block, events) in self.full.drain(..).chain(current) {
            if settled.is_err() {
                // The GPU may still read the block, so it is leaked.
                mem::forget(block);
            }
            self.gpu.events.put(events);
        }
        settled
    }

    /// `bytes` of pinned memory for an upload on this stream; `None` where the driver cannot pin memory. The caller has
    /// entered the context, and `bytes` is at most [`BLOCK_BYTES`].
    fn allocate(&mut self, bytes: usize, stream: Stream) -> Result<Option<*mut u8>> {
        if self.current.as_ref().is_some_and(|current| current.used_bytes + bytes > BLOCK_BYTES) {
            self.retire_block()?;
        }
        if self.current.is_none() {
            let Some(block) = self.next_block()? else { return Ok(None) };
            self.current = Some(CurrentBlock { block, used_bytes: 0, streams: Vec::new() });
        }
        let Some(CurrentBlock { block, used_bytes, streams }) = &mut self.current else { return Ok(None) };
        let staged = block.data().as_ptr().wrapping_add(*used_bytes);
        *used_bytes += bytes.next_multiple_of(UPLOAD_ALIGNMENT_BYTES);
        for known in [streams, &mut self.streams] {
            if !known.contains(&stream) {
                known.push(stream);
            }
        }
        Ok(Some(staged))
    }

    /// Moves the current block to the full ones.
    fn retire_block(&mut self) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let mut events = Vec::new();
        for stream in &current.streams {
            let event = self.gpu.events.take(self.gpu.driver)?;
            event.record(self.gpu.driver, *stream)?;
            events.push(event);
        }
        self.full.extend(self.current.take().map(|current| (current.block, events)));
        Ok(())
    }

    /// An unused block: the oldest full one, if the GPU has read it or the limit on full blocks is reached, or a new one.
    fn next_block(&mut self) -> Result<Option<PoolBlock>> {
        let must_wait = self.full.len() >= MAX_FULL_BLOCKS;
        let driver = self.gpu.driver;
        if let Some((_, events)) = self.full.front_mut() {
            while let Some(event) = events.last() {
                let is_complete = if must_wait {
                    event.wait(driver, EVENT_SPIN_TIME, || false)?
                } else {
                    event.is_complete(driver)?
                };
                if !is_complete {
                    return Ok(pinned_block(self.gpu));
                }
                self.gpu.events.put(events.pop());
            }
            return Ok(self.full.pop_front().map(|(block, _)| block));
        }
        Ok(pinned_block(self.gpu))
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        // Reached with work queued only after an error, which the caller reports.
        let _ = self.settle();
    }
}

/// A pinned block of the host pool; `None` where no more memory may or can be pinned.
fn pinned_block(gpu: &'static Gpu) -> Option<PoolBlock> {
    if let Some(block) = PoolBlock::idle(BLOCK_BYTES, BlockUse::Staging) {
        return Some(block);
    }
    if !pool::may_pin(BLOCK_BYTES) {
        return None;
    }
    let mut block = PoolBlock::new(BLOCK_BYTES)?;
    pinned::prefault(&mut block, 1);
    pinned::pin(gpu, &mut block, BlockUse::Staging).ok().map(|()| block)
}

/// Copies into the staging memory, and submits the copies from there to the GPU.
///
/// # Safety
/// As [`StagingBuffer::upload`] for the two memories. `staged` has as many bytes as the elements take in the GPU's type.
/// Nobody else uses them until the stream has passed this upload.
unsafe fn copy_and_submit(
    gpu: &'static Gpu,
    from: HostEndpoint<'_>,
    to: GpuEndpoint,
    stream: Stream,
    threads: usize,
    staged: *mut u8,
) -> Result<()> {
    let bytes = from.layout.count() * to.dtype.size();
    // Staged bytes are adjacent, as they are on the GPU.
    let staging = SharedPointer::new(staged);
    let staged_at = |address: Address| staging.at((address - to.data) as i64);
    let submit = |address: Address, bytes: usize| {
        // SAFETY: `cuMemcpyHtoDAsync` needs `bytes` on both sides until the stream has passed the copy. The range is all
        // of the upload, or whole chunks of it (`gpu_range`), which are filled; both memories have it by this function's
        // contract.
        unsafe { gpu.driver.upload(address, staged_at(address).cast(), bytes, stream.pointer()) }
    };
    // `convert_chunk` writes past the caches if the total is large.
    let total_bytes = if bytes >= NON_TEMPORAL_THRESHOLD_BYTES { usize::MAX } else { 0 };
    let stage = |offset: i64, layout: &Layout, address: Address, dense: &Layout| {
        let source =
            pack::CopySource { data: from.data.at(offset), dtype: from.dtype, layout, order: from.order };
        let destination = pack::CopyDestination { data: staged_at(address), dtype: to.dtype, layout: dense };
        // SAFETY: the source is readable and the staged bytes are writable by this function's contract. The arguments are all
        // of the upload, or a chunk of it that this thread alone has claimed (`FillProgress::claim`). A dense layout has
        // disjoint indices. Staging memory and the caller's memory do not overlap.
        unsafe { pack::convert_chunk(&source, &destination, total_bytes) }
    };
    if bytes <= CHUNK_BYTES {
        let dense = Layout::dense(to.dtype.size(), from.layout.shape())?;
        stage(0, from.layout, to.data, &dense)?;
        return submit(to.data, bytes);
    }
    let chunks = TransferChunks::new(from.layout, to, CHUNK_BYTES);
    let fill = |index: usize| -> Result<()> {
        let (chunk, (address, _)) = (chunks.get(index)?, chunks.gpu_range(index, index + 1));
        stage(chunk.offset, &chunk.host, address, &chunk.dense)
    };
    let progress = FillProgress::new(chunks.count());
    let mut submitted = 0;
    let min_chunks = chunks.count().div_ceil(COPIES_PER_UPLOAD);
    let mut submit_filled = || {
        let (begin, end) = (submitted, progress.filled_from(submitted));
        if end < chunks.count() && end - begin < min_chunks {
            return Ok(());
        }
        submitted = end;
        progress.set_submitted(end);
        let (address, bytes) = chunks.gpu_range(begin, end);
        submit(address, bytes)
    };
    let threads = (bytes / BYTES_PER_THREAD).clamp(1, threads.min(MAX_THREADS));
    fill_and_submit(threads, &progress, &fill, &mut submit_filled)
}
