//! Chunked transfers between a GPU and pageable host memory, at the speed of the link.
//!
//! The GPU accesses only pinned memory directly. The driver's own copies of pageable memory stage it on one thread, at a
//! fifth of the link's throughput. Here several threads share a ring of pinned slots: while the GPU fills one slot, a
//! thread empties another. A [`TransferScheduler`] coordinates them. The threads also pack and cast ([`pack`]).

use super::chunks::{TransferChunk, TransferChunks};
use super::control::TransferControl;
use super::endpoints::{GpuEndpoint, HostEndpoint};
use super::options::ALL_THREADS_UPLOAD_BYTES;
use super::ring_buffer::RingBuffer;
use super::scheduler::{Direction, LinkCopy, TransferScheduler};
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use tensorferry_core::{ByteOrder, Result, pack};

/// Copies dense GPU memory to the host, cast and strided as the host's layout requires.
///
/// # Safety
/// - The GPU's memory holds as many elements of its type as the host's layout has.
/// - The host's memory is writable over the extent of its layout, no two indices of which reach the same byte, and nobody
///   else uses it.
/// - Both live until this returns. The work that fills the GPU's memory is queued at `ready_after`.
pub(crate) unsafe fn download(
    gpu: &'static Gpu,
    from: GpuEndpoint,
    to: HostEndpoint<'_>,
    ready_after: SyncPoint,
    ring: &RingBuffer,
    control: &TransferControl,
) -> Result<()> {
    let total_bytes = to.layout.bytes();
    let chunks = TransferChunks::new(to.layout, from, ring.options.chunk_bytes(total_bytes));
    let unpack = |chunk: &TransferChunk, slot: *mut u8| {
        let source = pack::CopySource {
            data: slot,
            dtype: from.dtype,
            layout: &chunk.dense,
            order: ByteOrder::Native,
        };
        let destination =
            pack::CopyDestination { data: to.data.at(chunk.offset), dtype: to.dtype, layout: &chunk.host };
        // SAFETY: the source is readable: the GPU has filled the slot, which this thread has (`scheduler`), with the bytes of
        // `chunk.dense`. The destination is writable and its indices are disjoint by this function's contract; this thread
        // alone has claimed the chunk. A slot of the ring and the caller's memory do not overlap.
        unsafe { pack::convert_chunk(&source, &destination, total_bytes) }
    };
    let submit = |LinkCopy { address, slots, bytes }: LinkCopy, stream: Stream| {
        // SAFETY: `cuMemcpyDtoHAsync` needs `bytes` on both sides until the stream has passed the copy. `TransferChunks`
        // computes the range from the layout, for which the GPU's memory suffices by this function's contract. The slots are
        // those of as many chunks, and the GPU's until the copy is complete. `run` waits for the copies in flight.
        unsafe { gpu.driver.download(slots.cast(), address, bytes, stream.pointer()) }
    };
    TransferScheduler::new(gpu, Direction::Download, ring, &chunks, control).run(ready_after, submit, unpack)
}

/// Copies host memory to dense GPU memory, packed and cast by the threads.
///
/// The bytes have arrived when this returns.
///
/// # Safety
/// - The host's memory is readable over the extent of its layout, and nobody writes to it.
/// - The GPU's memory has room for as many elements of its type as the host's layout has, and nobody else uses it. Earlier
///   uses are queued at `reusable_after`.
/// - Both live until this returns.
pub(crate) unsafe fn upload(
    gpu: &'static Gpu,
    from: HostEndpoint<'_>,
    to: GpuEndpoint,
    reusable_after: SyncPoint,
    ring: &RingBuffer,
    control: &TransferControl,
) -> Result<()> {
    // `convert_chunk` writes past the caches if the total is large. Writing through the caches pays where chunks follow
    // each other closely. GB/s on an H200's host, through the caches and past them: 1 MiB 9 and 12, 16 MiB 21 and 23 to 30,
    // 256 MiB 44 and 34.
    let bytes = from.layout.count() * to.dtype.size();
    let cache_hint_bytes = if bytes < ALL_THREADS_UPLOAD_BYTES { usize::MAX } else { 0 };
    let chunks = TransferChunks::new(from.layout, to, ring.options.chunk_bytes(bytes));
    let pack_chunk = |chunk: &TransferChunk, slot: *mut u8| {
        let source = pack::CopySource {
            data: from.data.at(chunk.offset),
            dtype: from.dtype,
            layout: &chunk.host,
            order: from.order,
        };
        let destination = pack::CopyDestination { data: slot, dtype: to.dtype, layout: &chunk.dense };
        // SAFETY: the source is readable by this function's contract. The destination is writable: this thread has the slot,
        // which the GPU has read (`scheduler`) and which holds the largest chunk. A dense layout has disjoint indices. The
        // caller's memory and a slot of the ring do not overlap.
        unsafe { pack::convert_chunk(&source, &destination, cache_hint_bytes) }
    };
    let submit = |LinkCopy { address, slots, bytes }: LinkCopy, stream: Stream| {
        // SAFETY: `cuMemcpyHtoDAsync` needs `bytes` on both sides until the stream has passed the copy. `TransferChunks`
        // computes the range from the layout, for which the GPU's memory has room by this function's contract. The slots are
        // those of as many filled chunks, and the GPU's until the copy is complete. `run` waits for the copies in flight.
        unsafe { gpu.driver.upload(address, slots.cast(), bytes, stream.pointer()) }
    };
    let scheduler = TransferScheduler::new(gpu, Direction::Upload, ring, &chunks, control);
    scheduler.run(reusable_after, submit, pack_chunk)?;
    ring.stream.set_idle();
    Ok(())
}
