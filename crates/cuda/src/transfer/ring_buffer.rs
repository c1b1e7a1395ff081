//! Bytes between a GPU and ordinary host memory, at the speed of the link.
//!
//! The GPU reaches only pinned memory by itself. The driver's own copies to and from other memory go through a pinned
//! buffer on one thread, at a fifth of what the link carries. Here several threads share a ring of pinned slots, so that while
//! the GPU fills one slot a thread empties another; they meet at a [`Desk`]. The host's share of a part is
//! whatever packing or casting is to be done ([`pack`]).
//!
//! The ring is one block of the host's pool, pinned, which goes back there after each transfer. (A block for each
//! thread would have each of them wait for the driver, which takes most of a millisecond for any.)

use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use crate::stream_pool::Own;
use crate::transfer::chunks::{Part, Parts};
use crate::transfer::control::TransferControl;
use crate::transfer::endpoints::{OnGpu, OnHost};
use crate::transfer::pinned;
use crate::transfer::scheduler::{Desk, Stretch, Way};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::pool::{BlockUse, PoolBlock, has_idle};
use tensorferry_core::{ByteOrder, Error, ErrorKind, Result, pack, workers};

/// How a transfer is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Threads that move bytes on the host.
    pub threads: usize,
    /// Half of the bytes in the ring for each thread, and the most of a part.
    pub chunk: usize,
    /// Whether memory is to be spared where that costs time.
    pub spares: bool,
    /// Whether small uploads are waited for by the batch that is open on this thread.
    pub batched: bool,
}

/// The pinned memory of a transfer.
pub(crate) struct Buffers {
    pub(crate) ring: RingOptions,
    pub(crate) block: PoolBlock,
    pub(crate) own: Own,
}

/// Bytes of the smallest part: below it, telling a thread costs more than it helps.
const SMALLEST: usize = 128 << 10;

/// Bytes of a thread's largest part, which it soon has done.
const PART: usize = 512 << 10;

/// Bytes of an upload from which all threads are worth their start, and how many are below that.
const MANY: usize = 48 << 20;
const FEW_THREADS: usize = 6;

impl RingOptions {
    /// As many lanes, with buffers as large, as so many bytes hold; these are whole huge pages.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn within(self, bytes: usize) -> Result<Self> {
        const PAGE: usize = 2 << 20;
        let room = bytes / PAGE * PAGE;
        let room = if room > FEW || room == 0 { room } else { 1 << room.ilog2() };
        if room == 0 {
            let fact = format!("budget is {bytes} bytes, and a transfer needs buffers of {PAGE} bytes");
            return Err(Error::new(ErrorKind::OutOfMemory, fact).with_advice("raise budget, or leave it out"));
        }
        let threads = self.threads.clamp(1, room / (2 * SMALLEST));
        Ok(Self { threads, chunk: self.chunk.min(room / (2 * threads)), spares: true, ..self })
    }

    /// The same for an upload of so many bytes: waking many threads takes as long as a small one.
    pub(crate) fn for_upload(self, bytes: usize) -> Self {
        let most = if bytes < MANY { FEW_THREADS } else { self.threads };
        Self { threads: self.threads.min(most), ..self }
    }

    /// The same for a transfer of so many bytes: it is cut into two for each thread at least, where that is not too small.
    pub(crate) fn shared_out(self, bytes: usize) -> Self {
        let chunk = (bytes / self.threads.max(1) / 2).next_multiple_of(4 << 10);
        let chunk = chunk.clamp(SMALLEST.min(self.chunk), self.chunk);
        Self { threads: self.threads.clamp(1, bytes.div_ceil(chunk).max(1)), chunk, ..self }
    }

    /// Bytes of all buffers together.
    pub(crate) fn bytes(self) -> usize {
        let bytes = 2 * self.threads * self.chunk;
        if bytes <= FEW { bytes.next_power_of_two() } else { bytes }
    }

    /// Bytes of a part of a transfer of so many: each thread has several.
    fn part(self, bytes: usize) -> usize {
        (bytes / (8 * self.threads)).clamp(SMALLEST, PART).min(self.chunk)
    }
}

/// Bytes of buffers up to which they are of few sizes, so that small transfers serve each other.
const FEW: usize = 8 << 20;

/// Buffers for a transfer of so many bytes, in an entered context. `None` where the driver pins nothing: some systems let nobody do it.
///
/// # Errors
/// When the host has no memory for them, or the device fails.
pub(crate) fn buffers(gpu: &'static Gpu, ring: RingOptions, bytes: usize) -> Result<Option<Buffers>> {
    let ring = ring.shared_out(bytes);
    let size = ring.bytes();
    if let Some(block) = PoolBlock::idle(size, BlockUse::Buffers) {
        return Ok(Some(Buffers { ring, block, own: gpu.own_stream()? }));
    }
    let out_of_memory = || {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for {size} bytes of buffers on the host"))
            .with_advice("free something first, or set TENSORFERRY_THREADS to fewer threads")
    };
    let mut block = PoolBlock::new(size).ok_or_else(out_of_memory)?;
    pinned::touch(&mut block, ring.threads);
    if pinned::pin(gpu, &mut block, BlockUse::Buffers).is_err() {
        return Ok(None);
    }
    Ok(Some(Buffers { ring, block, own: gpu.own_stream()? }))
}

/// Has the buffers pinned ahead of a transfer into fresh memory, which is touched while the driver takes its time.
///
/// # Safety
/// So many bytes of the fresh memory are writable, and nobody else uses them. What is in them is lost.
pub(crate) unsafe fn prepare(gpu: &'static Gpu, fresh: NonNull<u8>, bytes: usize, ring: RingOptions) {
    let ring = ring.shared_out(bytes);
    let size = ring.bytes();
    if has_idle(size, BlockUse::Buffers) {
        return;
    }
    let Some(mut block) = PoolBlock::new(size) else { return };
    pinned::touch(&mut block, ring.threads);
    // SAFETY: the caller's contract; all threads are done when this is back.
    let touched = unsafe { pinned::Touched::new(fresh, bytes) };
    let job = Mutex::new(Some(&mut block));
    workers::run_parallel(ring.threads, || {
        let first = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(block) => {
                // Where this fails, the transfer that follows goes another way.
                let _ = pinned::pin(gpu, block, BlockUse::Buffers);
                touched.stop();
            }
            None => touched.go_on(),
        }
    });
}

/// Brings dense memory of the GPU to the host, cast and spread as the host's layout asks.
///
/// # Safety
/// The GPU's memory holds as many elements as the layout, the host's is writable and nobody else's; both live until this
/// is back. What fills the GPU's memory is queued on `after`.
pub(crate) unsafe fn download(
    gpu: &'static Gpu,
    from: OnGpu,
    to: OnHost<'_>,
    after: SyncPoint,
    buffers: &Buffers,
    watch: &TransferControl,
) -> Result<()> {
    let whole = to.layout.bytes();
    let parts = Parts::new(to.layout, from, buffers.ring.part(whole));
    let deliver = |part: &Part, slot: *mut u8| {
        let OnHost { data, dtype, .. } = *{ &to };
        let source =
            pack::CopySource { data: slot, dtype: from.dtype, layout: &part.dense, order: ByteOrder::Native };
        let data = data.wrapping_offset(part.offset as isize);
        let destination = pack::CopyDestination { data, dtype, layout: &part.host };
        // SAFETY: a part of the host's memory, which is no other thread's, and a full slot of ours.
        unsafe { pack::convert_chunk(&source, &destination, whole) }
    };
    let queue = |Stretch { address, slots, bytes }: Stretch, stream: Stream| {
        // SAFETY: the caller's contract; slots of ours that threads have emptied.
        unsafe { gpu.driver.download(slots.cast(), address, bytes, stream.raw()) }
    };
    // SAFETY: the caller's contract.
    unsafe { Desk::new(gpu, Way::Down, buffers, &parts, watch).run(after, queue, deliver) }
}

/// Brings the host's memory to dense memory of the GPU, packed and cast on the way.
///
/// # Safety
/// As [`download`], the other way round: what uses the GPU's memory before is queued on `after`, and this is back when
/// the bytes are there.
pub(crate) unsafe fn upload(
    gpu: &'static Gpu,
    from: OnHost<'_>,
    to: OnGpu,
    after: SyncPoint,
    buffers: &Buffers,
    watch: &TransferControl,
) -> Result<()> {
    // The caches are of use where there is so much to move that parts follow each other closely; in GB/s on an H200's host, by
    // way of the caches and past them: 1 MiB 9 and 12, 16 MiB 21 and 23 to 30, 256 MiB 44 and 34.
    let bytes = from.layout.count() * to.dtype.size();
    let past_caches = if bytes < MANY { usize::MAX } else { 0 };
    let parts = Parts::new(from.layout, to, buffers.ring.part(bytes));
    let fetch = |part: &Part, slot: *mut u8| {
        let OnHost { data, dtype, order, .. } = *{ &from };
        let data = data.wrapping_offset(part.offset as isize);
        let source = pack::CopySource { data, dtype, layout: &part.host, order };
        let destination = pack::CopyDestination { data: slot, dtype: to.dtype, layout: &part.dense };
        // SAFETY: a part of the host's memory, and a slot of ours that the GPU has read.
        unsafe { pack::convert_chunk(&source, &destination, past_caches) }
    };
    let queue = |Stretch { address, slots, bytes }: Stretch, stream: Stream| {
        // SAFETY: the caller's contract; slots of ours that threads have filled.
        unsafe { gpu.driver.upload(address, slots.cast(), bytes, stream.raw()) }
    };
    // SAFETY: the caller's contract.
    unsafe { Desk::new(gpu, Way::Up, buffers, &parts, watch).run(after, queue, fetch)? };
    buffers.own.settle();
    Ok(())
}
