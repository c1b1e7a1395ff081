//! Bytes between a GPU and ordinary host memory, at the speed of the link.
//!
//! The GPU reaches only pinned memory by itself. The driver's own copies to and from other memory go through a pinned
//! buffer on one thread, at a fifth of what the link carries. Here there are several lanes: each is a thread, a stream
//! and two pinned buffers, so that while the GPU fills one buffer the thread empties the other. Lanes take the next piece
//! from a counter, and the host's share of a piece is whatever packing or casting is to be done ([`pack`]).
//!
//! The buffers are one block of the host's pool, pinned, which goes back there after each transfer. (A block for each lane
//! would have each of them wait for the driver, which takes most of a millisecond for any.)

use crate::driver::Address;
use crate::gpu::Gpu;
use crate::lane::{Lane, Own};
use crate::pinned;
use crate::stream::Side;
use crate::watch::Watch;
use smallvec::SmallVec;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tensorferry_core::pieces::Pieces;
use tensorferry_core::pool::{Block, Use, has_idle};
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result, pack, workers};

/// How a transfer is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Threads that move bytes on the host.
    pub threads: usize,
    /// Bytes of a buffer.
    pub chunk: usize,
    /// Whether memory is to be spared where that costs time.
    pub spares: bool,
}

/// The pinned memory of a transfer.
pub(crate) struct Buffers {
    lanes: Lanes,
    block: Block,
    pub(crate) own: Own,
}

/// Bytes of the smallest piece: below it, telling a thread costs more than it helps.
const SMALLEST: usize = 128 << 10;

/// A buffer holds so many pieces. Lanes begin and end with single ones, so that neither the link nor a thread waits long for
/// the others.
const PIECES: usize = 4;
/// Bytes of the smallest piece that a buffer is cut into.
const SMALLEST_PIECE: usize = 64 << 10;

/// Bytes of an upload from which all threads are worth their start, and how many are below that.
const MANY: usize = 48 << 20;
const FEW_THREADS: usize = 6;

impl Lanes {
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
            return Err(Error::new(ErrorKind::OutOfMemory, fact).with_hint("raise budget, or leave it out"));
        }
        let threads = self.threads.clamp(1, room / (2 * SMALLEST));
        Ok(Self { threads, chunk: self.chunk.min(room / (2 * threads)), spares: true })
    }

    /// The same for an upload of so many bytes: waking many threads takes as long as a small one.
    pub(crate) fn for_upload(self, bytes: usize) -> Self {
        let most = if bytes < MANY { FEW_THREADS } else { self.threads };
        Self { threads: self.threads.min(most), ..self }
    }

    /// The same for a transfer of so many bytes: each lane has two pieces at least, where they are not too small.
    pub(crate) fn shared_out(self, bytes: usize) -> Self {
        let chunk = (bytes / self.threads.max(1) / 2).next_multiple_of(4 << 10);
        let chunk = chunk.clamp(SMALLEST.min(self.chunk), self.chunk);
        Self { threads: self.threads.clamp(1, bytes.div_ceil(chunk).max(1)), chunk, ..self }
    }
}

/// Dense memory on the GPU, of elements as they cross the link.
#[derive(Clone, Copy)]
pub(crate) struct OnGpu {
    pub(crate) data: Address,
    pub(crate) dtype: DType,
}

/// What all lanes of a transfer share.
struct Crossing<'a> {
    gpu: &'static Gpu,
    buffers: &'a Buffers,
    wire: OnGpu,
    pieces: Pieces,
    /// The most pieces of a part.
    at_once: usize,
    next: AtomicUsize,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    watch: &'a Watch,
}

impl<'a> Crossing<'a> {
    /// For pieces of a tensor of this layout on the host.
    fn new(
        gpu: &'static Gpu,
        host: &Layout,
        wire: OnGpu,
        buffers: &'a Buffers,
        watch: &'a Watch,
    ) -> Result<Self> {
        let chunk = buffers.lanes.chunk;
        let piece = (chunk / PIECES).max(SMALLEST_PIECE).min(chunk);
        let pieces = Pieces::new(host, piece / wire.dtype.size());
        Ok(Self {
            gpu,
            buffers,
            wire,
            pieces,
            at_once: chunk / piece,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::new(None),
            watch,
        })
    }

    /// Lets each lane do this with its first piece, and all that follow, and waits until what they queued is done.
    fn run(&self, after: Side, drive: impl Fn(&mut Lane<'_>, Part) -> Result<()> + Sync) -> Result<()> {
        let number = AtomicUsize::new(0);
        let drive = |part: Part| {
            let _entered = self.gpu.enter()?;
            let _relaxed = self.gpu.relaxed()?;
            let number = number.fetch_add(1, Ordering::Relaxed);
            let Buffers { lanes, block, own } = self.buffers;
            let mut lane = Lane::new(self.gpu, own.stream(number), number, *lanes, block)?;
            // SAFETY: the caller's side, and a stream of ours.
            unsafe { self.gpu.order(after, Side::Stream(lane.stream))? };
            drive(&mut lane, part)
        };
        workers::together(self.buffers.lanes.threads, || {
            // A thread that comes too late costs nothing.
            let driven = self.next(true).and_then(|part| part.map_or(Ok(()), &drive));
            if let Err(error) = driven {
                self.stop.store(true, Ordering::Relaxed);
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// The next part, if there is one and nobody has failed or called it off. A lane's first is one piece.
    fn next(&self, is_first: bool) -> Result<Option<Part>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.watch.check()?;
        let take = |begin: usize| {
            let left = self.pieces.count().checked_sub(begin).filter(|left| *left > 0)?;
            let share = if is_first { 1 } else { left / (2 * self.buffers.lanes.threads) };
            Some(begin + share.clamp(1, self.at_once))
        };
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let Ok(begin) = taken else { return Ok(None) };
        let end = take(begin).unwrap_or(begin);
        let size = self.wire.dtype.size();
        let mut part = Part { pieces: SmallVec::new(), bytes: 0, address: 0 };
        for number in begin..end {
            let piece = self.pieces.get(number)?;
            if part.pieces.is_empty() {
                part.address = self.wire.data + (piece.first * size) as Address;
            }
            let dense = Layout::dense(size, piece.layout.shape())?;
            let at = part.bytes;
            part.bytes += dense.bytes();
            part.pieces.push(Packed { offset: piece.offset, host: piece.layout, dense, at });
        }
        Ok(Some(part))
    }

    fn moved(&self, part: &Part) {
        self.watch.add(part.bytes);
    }
}

/// Pieces on their way, one after the other in a buffer and on the GPU.
struct Part {
    pieces: SmallVec<[Packed; PIECES]>,
    bytes: usize,
    /// Where they are on the GPU.
    address: Address,
}

/// One piece.
struct Packed {
    /// Where it is on the host, from the first element, and its layout there.
    offset: i64,
    host: Layout,
    /// Its layout in the buffer, and how far it is from the start of that.
    dense: Layout,
    at: usize,
}

/// Bytes of buffers up to which they are of few sizes, so that small transfers serve each other.
const FEW: usize = 8 << 20;

fn bytes_of(lanes: Lanes) -> usize {
    let bytes = 2 * lanes.threads * lanes.chunk;
    if bytes <= FEW { bytes.next_power_of_two() } else { bytes }
}

/// Buffers for a transfer of so many bytes, in an entered context. `None` where the driver pins nothing: some systems let nobody do it.
///
/// # Errors
/// When the host has no memory for them, or the device fails.
pub(crate) fn buffers(gpu: &'static Gpu, lanes: Lanes, bytes: usize) -> Result<Option<Buffers>> {
    let lanes = lanes.shared_out(bytes);
    let size = bytes_of(lanes);
    if let Some(block) = Block::idle(size, Use::Buffers) {
        return Ok(Some(Buffers { lanes, block, own: gpu.own_streams()? }));
    }
    let out_of_memory = || {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for {size} bytes of buffers on the host"))
            .with_hint("free something first, or set TENSORFERRY_THREADS to fewer threads")
    };
    let mut block = Block::new(size).ok_or_else(out_of_memory)?;
    pinned::touch(block.data(), block.bytes(), lanes.threads);
    if pinned::pin(gpu, &mut block, Use::Buffers).is_err() {
        return Ok(None);
    }
    Ok(Some(Buffers { lanes, block, own: gpu.own_streams()? }))
}

/// Has the buffers pinned ahead of a transfer into fresh memory, which is touched while the driver takes its time.
pub(crate) fn prepare(gpu: &'static Gpu, fresh: NonNull<u8>, bytes: usize, lanes: Lanes) {
    let lanes = lanes.shared_out(bytes);
    let size = bytes_of(lanes);
    if has_idle(size, Use::Buffers) {
        return;
    }
    let Some(mut block) = Block::new(size) else { return };
    pinned::touch(block.data(), block.bytes(), lanes.threads);
    let touched = pinned::Touched::new(fresh, bytes);
    let job = Mutex::new(Some(&mut block));
    workers::together(lanes.threads, || {
        let first = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(block) => {
                // Where this fails, the transfer that follows goes another way.
                let _ = pinned::pin(gpu, block, Use::Buffers);
                touched.stop();
            }
            None => touched.go_on(),
        }
    });
}

/// Host memory to write or read, whatever its layout.
#[derive(Clone, Copy)]
pub(crate) struct OnHost<'a> {
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) layout: &'a Layout,
    pub(crate) order: ByteOrder,
}

// SAFETY: an address and facts; the contracts of the functions below say who touches what.
unsafe impl Sync for OnHost<'_> {}

/// Brings dense memory of the GPU to the host, cast and spread as the host's layout asks.
///
/// # Safety
/// The GPU's memory holds as many elements as the layout, the host's is writable and nobody else's; both live until this
/// is back. What fills the GPU's memory is queued on `after`.
pub(crate) unsafe fn download(
    gpu: &'static Gpu,
    from: OnGpu,
    to: OnHost<'_>,
    after: Side,
    buffers: &Buffers,
    watch: &Watch,
) -> Result<()> {
    let crossing = Crossing::new(gpu, to.layout, from, buffers, watch)?;
    let whole = to.layout.bytes();
    let deliver = |part: &Part, buffer: *mut u8| {
        let OnHost { data, dtype, .. } = *{ &to };
        part.pieces.iter().try_for_each(|piece| {
            let source = pack::Source {
                data: buffer.wrapping_add(piece.at),
                dtype: from.dtype,
                layout: &piece.dense,
                order: ByteOrder::Native,
            };
            let data = data.wrapping_offset(piece.offset as isize);
            let destination = pack::Destination { data, dtype, layout: &piece.host };
            // SAFETY: a piece of the host's memory, which is no other lane's, and a full buffer of ours.
            unsafe { pack::convert_part(&source, &destination, whole) }
        })
    };
    crossing.run(after, |lane, first| {
        let (mut part, mut turn) = (Some(first), 0);
        let mut on_its_way: Option<(Part, usize)> = None;
        loop {
            // SAFETY: streams, events and buffers of ours, in an entered context; the caller's contract.
            unsafe {
                if let Some(part) = &part {
                    let (to, bytes) = (lane.buffers[turn].cast(), part.bytes);
                    lane.begin(turn);
                    gpu.driver.download(to, part.address, bytes, lane.stream.raw())?;
                    lane.mark(turn)?;
                }
                if let Some((part, turn)) = on_its_way.take() {
                    lane.wait(turn)?;
                    deliver(&part, lane.buffers[turn])?;
                    crossing.moved(&part);
                }
            }
            let Some(sent) = part else { return Ok(()) };
            on_its_way = Some((sent, turn));
            turn = 1 - turn;
            part = crossing.next(false)?;
        }
    })
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
    after: Side,
    buffers: &Buffers,
    watch: &Watch,
) -> Result<()> {
    // The caches are of use where there is so much to move that pieces follow each other closely; in GB/s on an H200's host, by
    // way of the caches and past them: 1 MiB 9 and 12, 16 MiB 21 and 23 to 30, 256 MiB 44 and 34.
    let past_caches = if from.layout.count() * to.dtype.size() < MANY { usize::MAX } else { 0 };
    let crossing = Crossing::new(gpu, from.layout, to, buffers, watch)?;
    let fetch = |part: &Part, buffer: *mut u8| {
        let OnHost { data, dtype, order, .. } = *{ &from };
        part.pieces.iter().try_for_each(|piece| {
            let data = data.wrapping_offset(piece.offset as isize);
            let source = pack::Source { data, dtype, layout: &piece.host, order };
            let buffer = buffer.wrapping_add(piece.at);
            let destination = pack::Destination { data: buffer, dtype: to.dtype, layout: &piece.dense };
            // SAFETY: a piece of the host's memory, and a buffer of ours that the GPU has read.
            unsafe { pack::convert_part(&source, &destination, past_caches) }
        })
    };
    crossing.run(after, |lane, first| {
        let (mut part, mut turn) = (Some(first), 0);
        while let Some(next) = part {
            // SAFETY: streams, events and buffers of ours, in an entered context; the caller's contract.
            unsafe {
                lane.wait(turn)?;
                fetch(&next, lane.buffers[turn])?;
                let (from, bytes) = (lane.buffers[turn].cast(), next.bytes);
                lane.begin(turn);
                gpu.driver.upload(next.address, from, bytes, lane.stream.raw())?;
                lane.mark(turn)?;
            }
            crossing.moved(&next);
            turn = 1 - turn;
            part = crossing.next(false)?;
        }
        // SAFETY: as above.
        unsafe { lane.wait(0).and(lane.wait(1)) }
    })
}
