//! Bytes between a GPU and ordinary host memory, at the speed of the link.
//!
//! The GPU reaches only pinned memory by itself. The driver's own copies to and from other memory go through a pinned
//! buffer on one thread, at a fifth of what the link carries. Here there are several lanes: each is a thread, a stream
//! and two pinned buffers, so that while the GPU fills one buffer the thread empties the other. Lanes take the next piece
//! from a counter, and the host's share of a piece is whatever packing or casting is to be done ([`pack`]).
//!
//! The buffers are one block of the host's pool, pinned, which goes back there after each transfer. (A block for each lane
//! would have each of them wait for the driver, which takes most of a millisecond for any.)

use crate::driver::{Address, EventHandle};
use crate::gpu::Gpu;
use crate::pinned;
use crate::stream::{Side, Stream};
use crate::watch::Watch;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::pieces::Pieces;
use tensorferry_core::pool::Block;
use tensorferry_core::{DType, Error, ErrorKind, Layout, Result, pack, workers};

/// How a transfer is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Threads that move bytes on the host.
    pub threads: usize,
    /// Bytes of a piece.
    pub chunk: usize,
}

/// Bytes of the smallest piece: below it, telling a thread costs more than it helps.
const SMALLEST: usize = 128 << 10;

/// Bytes of an upload from which all threads are worth their start, and how many are below that.
const MANY: usize = 48 << 20;
const FEW_THREADS: usize = 6;

impl Lanes {
    /// As many lanes, with pieces as large, as have their buffers in so many bytes.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn within(self, bytes: usize) -> Result<Self> {
        const LEAST: usize = 64 << 10;
        if bytes < 2 * LEAST {
            let fact =
                format!("budget is {bytes} bytes, and a transfer needs buffers of {} bytes", 2 * LEAST);
            return Err(Error::new(ErrorKind::OutOfMemory, fact).with_hint("raise budget, or leave it out"));
        }
        let threads = self.threads.clamp(1, bytes / (2 * LEAST));
        Ok(Self { threads, chunk: self.chunk.min(bytes / (2 * threads)) })
    }

    /// The same for an upload of so many bytes: waking many threads takes as long as a small one.
    pub(crate) fn for_upload(self, bytes: usize) -> Self {
        let most = if bytes < MANY { FEW_THREADS } else { self.threads };
        Self { threads: self.threads.min(most), ..self }
    }

    /// The same for a transfer of so many bytes: each lane has two pieces at least, where they are not too small.
    pub(crate) fn shared_out(self, bytes: usize) -> Self {
        let chunk = (bytes / (2 * self.threads.max(1))).next_multiple_of(4 << 10);
        let chunk = chunk.clamp(SMALLEST.min(self.chunk), self.chunk);
        Self { threads: self.threads.clamp(1, bytes.div_ceil(chunk).max(1)), chunk }
    }
}

/// Streams of our own. The link carries one piece after the other, so two are enough to keep it busy; making one takes
/// longer than a transfer of some MiB.
const STREAMS: usize = 2;

/// What lanes need of a GPU, made when it is first needed and kept.
#[derive(Default)]
pub(crate) struct Kept {
    streams: [OnceLock<Stream>; STREAMS],
    events: Mutex<Vec<Event>>,
}

struct Event(EventHandle);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Event {}

impl Gpu {
    /// One of our own streams, which are for transfers only. The caller has entered the context.
    pub(crate) fn transfer_stream(&self, number: usize) -> Result<Stream> {
        /// Does not wait for the default stream, nor that for it.
        const NON_BLOCKING: u32 = 1;
        let slot = &self.kept.streams[number % STREAMS];
        if let Some(stream) = slot.get() {
            return Ok(*stream);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: a place for the handle. The stream lives as long as the process.
        unsafe { self.driver.stream_create(&raw mut handle, NON_BLOCKING)? };
        Ok(*slot.get_or_init(|| Stream::from_handle(handle.expose_provenance())))
    }

    fn event(&self) -> Result<Event> {
        /// Waits sleep, so that others may use the core, and no times are taken.
        const SLEEPING: u32 = 0x1 | 0x2;
        if let Some(event) = self.kept.events.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(event);
        }
        let mut event = ptr::null_mut();
        // SAFETY: a place for the handle; the caller has entered the context.
        unsafe { self.driver.event_create(&raw mut event, SLEEPING)? };
        Ok(Event(event))
    }
}

/// One thread's road: a stream, and two buffers with an event each that says when the GPU is done with it.
struct Lane<'a> {
    gpu: &'static Gpu,
    stream: Stream,
    buffers: [*mut u8; 2],
    events: [Option<Event>; 2],
    /// Whether the GPU was told to use the buffer.
    used: [bool; 2],
    patience: Duration,
    _staging: &'a Block,
}

impl<'a> Lane<'a> {
    fn new(gpu: &'static Gpu, number: usize, lanes: Lanes, staging: &'a Block) -> Result<Self> {
        let start = staging.data().as_ptr().wrapping_add(2 * number * lanes.chunk);
        Ok(Self {
            gpu,
            stream: gpu.transfer_stream(number)?,
            buffers: [start, start.wrapping_add(lanes.chunk)],
            events: [Some(gpu.event()?), Some(gpu.event()?)],
            used: [false; 2],
            // Where there are few cores, somebody else has work for this one.
            patience: Duration::from_micros(if lanes.threads < 4 { 20 } else { 400 }),
            _staging: staging,
        })
    }

    fn raw_event(&self, turn: usize) -> EventHandle {
        self.events[turn].as_ref().map_or(ptr::null_mut(), |event| event.0)
    }

    /// Notes that what was just queued uses a buffer.
    ///
    /// # Safety
    /// The context is entered.
    unsafe fn mark(&mut self, turn: usize) -> Result<()> {
        self.used[turn] = true;
        // SAFETY: an event and a stream of ours.
        unsafe { self.gpu.driver.event_record(self.raw_event(turn), self.stream.raw()) }
    }

    /// Waits until the GPU is done with a buffer: for a moment awake, then asleep.
    ///
    /// # Safety
    /// The context is entered.
    unsafe fn wait(&mut self, turn: usize) -> Result<()> {
        if !std::mem::take(&mut self.used[turn]) {
            return Ok(());
        }
        let (event, start) = (self.raw_event(turn), Instant::now());
        // SAFETY: an event of ours.
        unsafe {
            while start.elapsed() < self.patience {
                if self.gpu.driver.is_over(event)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.gpu.driver.event_synchronise(event)
        }
    }
}

/// Whatever happened, nothing may still use the buffers or the caller's memory.
impl Drop for Lane<'_> {
    fn drop(&mut self) {
        for turn in 0..2 {
            // SAFETY: whoever holds a lane has entered its context. Where an event could not be recorded, its stream is
            // waited for; where that fails too, the device is lost, and uses nothing any more.
            unsafe {
                if self.used[turn] && self.wait(turn).is_err() {
                    let _ = self.gpu.driver.stream_synchronise(self.stream.raw());
                }
            }
            if let Some(event) = self.events[turn].take() {
                self.gpu.kept.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            }
        }
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
    lanes: Lanes,
    staging: Block,
    wire: OnGpu,
    pieces: Pieces,
    next: AtomicUsize,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    watch: &'a Watch,
}

impl<'a> Crossing<'a> {
    /// For pieces of a tensor of this layout on the host.
    fn new(gpu: &'static Gpu, host: &Layout, wire: OnGpu, lanes: Lanes, watch: &'a Watch) -> Result<Self> {
        let lanes = lanes.shared_out(host.count() * wire.dtype.size());
        let pieces = Pieces::new(host, lanes.chunk / wire.dtype.size());
        Ok(Self {
            gpu,
            lanes,
            staging: staging(gpu, lanes)?,
            wire,
            pieces,
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
            let number = number.fetch_add(1, Ordering::Relaxed);
            let mut lane = Lane::new(self.gpu, number, self.lanes, &self.staging)?;
            // SAFETY: the caller's side, and a stream of ours.
            unsafe { self.gpu.order(after, Side::Stream(lane.stream))? };
            drive(&mut lane, part)
        };
        workers::together(self.lanes.threads, || {
            // A thread that comes too late costs nothing.
            let driven = self.next().and_then(|part| part.map_or(Ok(()), &drive));
            if let Err(error) = driven {
                self.stop.store(true, Ordering::Relaxed);
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// The next piece, if there is one and nobody has failed or called it off.
    fn next(&self) -> Result<Option<Part>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.watch.check()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.pieces.count() {
            return Ok(None);
        }
        let piece = self.pieces.get(number)?;
        let dense = Layout::dense(self.wire.dtype.size(), piece.layout.shape())?;
        let address = self.wire.data + (piece.first * self.wire.dtype.size()) as Address;
        Ok(Some(Part { offset: piece.offset, host: piece.layout, dense, address }))
    }

    fn moved(&self, part: &Part) {
        self.watch.add(part.dense.bytes());
    }
}

/// A piece on its way.
struct Part {
    /// Where it is on the host, from the first element, and its layout there.
    offset: i64,
    host: Layout,
    /// Its layout on the link.
    dense: Layout,
    /// Where it is on the GPU.
    address: Address,
}

fn staging_bytes(lanes: Lanes) -> usize {
    const FEW: usize = 8 << 20;
    let bytes = 2 * lanes.threads * lanes.chunk;
    if bytes <= FEW { bytes.next_power_of_two() } else { bytes }
}

/// A pinned block for the buffers of all lanes. Those of small transfers are of few sizes, so that they serve each other.
pub(crate) fn staging(gpu: &'static Gpu, lanes: Lanes) -> Result<Block> {
    let bytes = staging_bytes(lanes);
    if let Some(block) = Block::pinned(bytes) {
        return Ok(block);
    }
    let out_of_memory = || {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes of buffers on the host"))
            .with_hint("free something first, or set TENSORFERRY_THREADS to fewer threads")
    };
    let mut block = Block::new(bytes).ok_or_else(out_of_memory)?;
    pinned::touch(block.data(), block.bytes(), lanes.threads);
    pinned::pin(gpu, &mut block)?;
    Ok(block)
}

/// Whether there are buffers for a transfer of so many bytes: some systems let nobody pin memory.
pub(crate) fn are_open(gpu: &'static Gpu, lanes: Lanes, bytes: usize) -> bool {
    staging(gpu, lanes.shared_out(bytes)).is_ok()
}

/// The same ahead of a transfer into fresh memory, which is touched while the driver takes its time.
pub(crate) fn prepare(gpu: &'static Gpu, fresh: NonNull<u8>, bytes: usize, lanes: Lanes) {
    let lanes = lanes.shared_out(bytes);
    let size = staging_bytes(lanes);
    let mut block = match Block::pinned(size) {
        Some(_) => return,
        None => match Block::new(size) {
            Some(block) => block,
            None => return,
        },
    };
    pinned::touch(block.data(), block.bytes(), lanes.threads);
    let touched = pinned::Touched::new(fresh, bytes);
    let job = Mutex::new(Some(&mut block));
    workers::together(lanes.threads, || {
        let first = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(block) => {
                // Where this fails, the transfer that follows says why.
                let _ = pinned::pin(gpu, block);
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
    pub(crate) order: tensorferry_core::ByteOrder,
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
    lanes: Lanes,
    watch: &Watch,
) -> Result<()> {
    let crossing = Crossing::new(gpu, to.layout, from, lanes, watch)?;
    let whole = to.layout.bytes();
    let deliver = |part: &Part, buffer: *mut u8| {
        let OnHost { data, dtype, .. } = *{ &to };
        let source = pack::Source {
            data: buffer,
            dtype: from.dtype,
            layout: &part.dense,
            order: tensorferry_core::ByteOrder::Native,
        };
        let data = data.wrapping_offset(part.offset as isize);
        let destination = pack::Destination { data, dtype, layout: &part.host };
        // SAFETY: a piece of the host's memory, which is no other lane's, and a full buffer of ours.
        unsafe { pack::convert_part(&source, &destination, whole) }
    };
    crossing.run(after, |lane, first| {
        let (mut part, mut turn) = (Some(first), 0);
        let mut on_its_way: Option<(Part, usize)> = None;
        loop {
            // SAFETY: streams, events and buffers of ours, in an entered context; the caller's contract.
            unsafe {
                if let Some(part) = &part {
                    let (to, bytes) = (lane.buffers[turn].cast(), part.dense.bytes());
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
            part = crossing.next()?;
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
    lanes: Lanes,
    watch: &Watch,
) -> Result<()> {
    // The caches are of use where there is so much to move that pieces follow each other closely; in GB/s on an H200's host, by
    // way of the caches and past them: 1 MiB 9 and 12, 16 MiB 21 and 23 to 30, 256 MiB 44 and 34.
    let past_caches = if from.layout.count() * to.dtype.size() < MANY { usize::MAX } else { 0 };
    let crossing = Crossing::new(gpu, from.layout, to, lanes, watch)?;
    let fetch = |part: &Part, buffer: *mut u8| {
        let OnHost { data, dtype, order, .. } = *{ &from };
        let data = data.wrapping_offset(part.offset as isize);
        let source = pack::Source { data, dtype, layout: &part.host, order };
        let destination = pack::Destination { data: buffer, dtype: to.dtype, layout: &part.dense };
        // SAFETY: a piece of the host's memory, and a buffer of ours that the GPU has read.
        unsafe { pack::convert_part(&source, &destination, past_caches) }
    };
    crossing.run(after, |lane, first| {
        let (mut part, mut turn) = (Some(first), 0);
        while let Some(next) = part {
            // SAFETY: streams, events and buffers of ours, in an entered context; the caller's contract.
            unsafe {
                lane.wait(turn)?;
                fetch(&next, lane.buffers[turn])?;
                let (from, bytes) = (lane.buffers[turn].cast(), next.dense.bytes());
                gpu.driver.upload(next.address, from, bytes, lane.stream.raw())?;
                lane.mark(turn)?;
            }
            crossing.moved(&next);
            turn = 1 - turn;
            part = crossing.next()?;
        }
        // SAFETY: as above.
        unsafe { lane.wait(0).and(lane.wait(1)) }
    })
}
