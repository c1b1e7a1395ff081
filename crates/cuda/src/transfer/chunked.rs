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
/// The GPU's memory holds as many elements as the layout. The host's memory is writable, and nobody else uses it. Both live
/// until this returns. The work that fills the GPU's memory is queued at `ready_after`.
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
        let HostEndpoint { data, dtype, .. } = *{ &to };
        let source = pack::CopySource {
            data: slot,
            dtype: from.dtype,
            layout: &chunk.dense,
            order: ByteOrder::Native,
        };
        let data = data.wrapping_offset(chunk.offset as isize);
        let destination = pack::CopyDestination { data, dtype, layout: &chunk.host };
        // SAFETY: a chunk of the host's memory that no other thread has, and a full slot of ours.
        unsafe { pack::convert_chunk(&source, &destination, total_bytes) }
    };
    let submit = |LinkCopy { address, slots, bytes }: LinkCopy, stream: Stream| {
        // SAFETY: the caller's contract; slots of ours that threads have emptied.
        unsafe { gpu.driver.download(slots.cast(), address, bytes, stream.raw()) }
    };
    // SAFETY: the caller's contract.
    unsafe {
        TransferScheduler::new(gpu, Direction::Download, ring, &chunks, control).run(
            ready_after,
            submit,
            unpack,
        )
    }
}

/// Copies host memory to dense GPU memory, packed and cast by the threads.
///
/// # Safety
/// As [`download`] with host and GPU exchanged. Earlier uses of the GPU's memory are queued at `reusable_after`. The bytes
/// have arrived when this returns.
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
        let HostEndpoint { data, dtype, order, .. } = *{ &from };
        let data = data.wrapping_offset(chunk.offset as isize);
        let source = pack::CopySource { data, dtype, layout: &chunk.host, order };
        let destination = pack::CopyDestination { data: slot, dtype: to.dtype, layout: &chunk.dense };
        // SAFETY: a chunk of the host's memory, and a slot of ours that the GPU has read.
        unsafe { pack::convert_chunk(&source, &destination, cache_hint_bytes) }
    };
    let submit = |LinkCopy { address, slots, bytes }: LinkCopy, stream: Stream| {
        // SAFETY: the caller's contract; slots of ours that threads have filled.
        unsafe { gpu.driver.upload(address, slots.cast(), bytes, stream.raw()) }
    };
    // SAFETY: the caller's contract.
    unsafe {
        TransferScheduler::new(gpu, Direction::Upload, ring, &chunks, control).run(
            reusable_after,
            submit,
            pack_chunk,
        )?;
    }
    ring.stream.set_idle();
    Ok(())
}
