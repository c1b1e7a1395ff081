//! Small uploads: copied into pinned memory of ours, from which the GPU fetches them in its own time.
//!
//! The driver's own way is the same, on one thread and with a wait for each. A [`Stage`] has blocks of the host's pool, into
//! which uploads are laid one behind the other until somebody waits for all of them; a block that is full is used again when
//! the GPU has fetched it. Uploads of some hundred KiB are cut into parts, which helpers copy too; the caller alone speaks to
//! the driver.

use crate::driver::Address;
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use crate::stream_pool::{Event, PATIENCE};
use crate::transfer::chunks::Parts;
use crate::transfer::endpoints::{OnGpu, OnHost};
use crate::transfer::pinned;
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tensorferry_core::pool::{self, BlockUse, PoolBlock};
use tensorferry_core::{Error, ErrorKind, Layout, Result, pack, workers};

/// Bytes of a block, and of the largest upload that is staged: a huge page.
pub(crate) const BLOCK: usize = 2 << 20;
/// Full blocks of a stage that may be with the GPU; then the next upload waits for the first.
const MOST: usize = 4;
/// Uploads begin on cache lines of their own.
const APART: usize = 64;
/// Bytes of a part.
const PART: usize = 128 << 10;
/// Bytes for each thread, and the most threads: waking more costs more than it helps.
const EACH: usize = 256 << 10;
const THREADS: usize = 4;
/// How many times the driver is spoken to for an upload in parts, about: each takes as long as 64 KiB to copy.
const TIMES: usize = 3;
/// Bytes of an upload from which it is written past the caches.
const PAST_CACHES: usize = 512 << 10;

/// Where small uploads to a GPU lie until it has fetched them.
pub(crate) struct Stage {
    gpu: &'static Gpu,
    /// The block that is being filled, how much of it is, and the streams on which that is fetched.
    now: Option<(PoolBlock, usize, Vec<Stream>)>,
    /// Blocks that are full, and when each has been fetched.
    full: VecDeque<(PoolBlock, Vec<Event>)>,
    /// All streams that were used since somebody waited.
    streams: Vec<Stream>,
}

impl Stage {
    pub(crate) fn new(gpu: &'static Gpu) -> Self {
        Self { gpu, now: None, full: VecDeque::new(), streams: Vec::new() }
    }

    /// The GPU that it is for.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Whether nothing is to be waited for.
    pub(crate) fn is_settled(&self) -> bool {
        self.streams.is_empty()
    }

    /// Brings at most [`BLOCK`] bytes to dense memory of the GPU, packed and cast on the way. They are read when this is back, and
    /// the stream has them before whatever it does next. `false` where the driver pins nothing, and nothing was done.
    ///
    /// # Errors
    /// When the device fails, or the stream is being captured.
    ///
    /// # Safety
    /// The host's memory is readable; the GPU's has room for its elements, and is nobody else's before the stream is past this.
    /// The stream is of the context, which is entered.
    pub(crate) unsafe fn upload(
        &mut self,
        from: OnHost<'_>,
        to: OnGpu,
        stream: Stream,
        threads: usize,
    ) -> Result<bool> {
        // SAFETY: the caller's contract, for all that follows.
        unsafe {
            if self.gpu.is_captured(SyncPoint::Stream(stream))? {
                // The graph would have the address, and not the values.
                let fact = "bytes of the host's cannot be brought to a stream that is captured";
                return Err(Error::new(ErrorKind::InvalidArgument, fact)
                    .with_advice("bring them before the capture begins, and copy them on the GPU inside"));
            }
            let Some(place) = self.place(from.layout.count() * to.dtype.size(), stream)? else {
                return Ok(false);
            };
            lay(self.gpu, from, to, stream, threads, place)?;
            Ok(true)
        }
    }

    /// Waits until the GPU has fetched all of it.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn settle(&mut self) -> Result<()> {
        // A capture elsewhere is no business of this wait.
        let _relaxed = self.gpu.relaxed();
        let settled = self
            .streams
            .drain(..)
            // SAFETY: a `Stream` is alive while a copy of it is used (`Stream::from_handle`), of which this list has one.
            .map(|stream| unsafe { self.gpu.wait(SyncPoint::Stream(stream)) })
            .fold(Ok(()), Result::and);
        let blocks = self.full.drain(..).chain(self.now.take().map(|(block, ..)| (block, Vec::new())));
        for (block, events) in blocks {
            if settled.is_err() {
                // Nobody knows whether the GPU still fetches something: the memory is nobody's any more.
                mem::forget(block);
            }
            self.gpu.keep(events);
        }
        settled
    }

    /// A place for so many bytes that a stream will fetch; `None` where the driver pins nothing.
    ///
    /// # Safety
    /// The context is entered, and the streams that were used are alive.
    unsafe fn place(&mut self, bytes: usize, stream: Stream) -> Result<Option<*mut u8>> {
        // SAFETY: the caller's contract.
        unsafe {
            if let Some((_, used, _)) = self.now
                && used + bytes > BLOCK
            {
                self.turn_over()?;
            }
            if self.now.is_none() {
                let Some(block) = self.next()? else { return Ok(None) };
                self.now = Some((block, 0, Vec::new()));
            }
        }
        let Some((block, used, streams)) = &mut self.now else { return Ok(None) };
        let place = block.data().as_ptr().wrapping_add(*used);
        *used += bytes.next_multiple_of(APART);
        for known in [streams, &mut self.streams] {
            if !known.contains(&stream) {
                known.push(stream);
            }
        }
        Ok(Some(place))
    }

    /// Puts the block away that is full.
    ///
    /// # Safety
    /// As [`Self::place`].
    unsafe fn turn_over(&mut self) -> Result<()> {
        let Some((_, _, streams)) = &self.now else { return Ok(()) };
        let mut events = Vec::new();
        for stream in streams {
            let event = self.gpu.event()?;
            // SAFETY: the caller's contract.
            unsafe { self.gpu.record(&event, *stream)? };
            events.push(event);
        }
        self.full.extend(self.now.take().map(|(block, ..)| (block, events)));
        Ok(())
    }

    /// A block that nobody uses: the first of those that were full, if it has been fetched, or is the last that there may be.
    ///
    /// # Safety
    /// The context is entered.
    unsafe fn next(&mut self) -> Result<Option<PoolBlock>> {
        let waits = self.full.len() >= MOST;
        if let Some((_, events)) = self.full.front_mut() {
            while let Some(event) = events.last() {
                // SAFETY: the caller's contract; an event that was recorded.
                let over = unsafe {
                    if waits {
                        self.gpu.wait_for(event, PATIENCE, || false)?
                    } else {
                        self.gpu.is_over(event)?
                    }
                };
                if !over {
                    return Ok(fresh(self.gpu));
                }
                self.gpu.keep(events.pop());
            }
            return Ok(self.full.pop_front().map(|(block, _)| block));
        }
        Ok(fresh(self.gpu))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After an error, which somebody else tells.
        let _ = self.settle();
    }
}

/// A pinned block of the host's pool.
fn fresh(gpu: &'static Gpu) -> Option<PoolBlock> {
    if let Some(block) = PoolBlock::idle(BLOCK, BlockUse::Buffers) {
        return Some(block);
    }
    if !pool::may_pin(BLOCK) {
        return None;
    }
    let mut block = PoolBlock::new(BLOCK)?;
    pinned::touch(&mut block, 1);
    pinned::pin(gpu, &mut block, BlockUse::Buffers).ok().map(|()| block)
}

/// Copies into the stage, and queues what lies there.
///
/// # Safety
/// As [`Stage::upload`], and the place has room.
unsafe fn lay(
    gpu: &'static Gpu,
    from: OnHost<'_>,
    to: OnGpu,
    stream: Stream,
    threads: usize,
    place: *mut u8,
) -> Result<()> {
    let bytes = from.layout.count() * to.dtype.size();
    // As on the GPU, one behind the other.
    let stage = Shown(place);
    let lies = |address: Address| { &stage }.0.wrapping_add((address - to.data) as usize);
    let queue = |address: Address, bytes: usize| {
        // SAFETY: the caller's contract; a part of the stage that is filled.
        unsafe { gpu.driver.upload(address, lies(address).cast(), bytes, stream.raw()) }
    };
    if bytes <= PART {
        let dense = Layout::dense(to.dtype.size(), from.layout.shape())?;
        let source =
            pack::CopySource { data: from.data, dtype: from.dtype, layout: from.layout, order: from.order };
        let destination = pack::CopyDestination { data: place, dtype: to.dtype, layout: &dense };
        // SAFETY: the caller's contract; the stage has room.
        unsafe { pack::convert_chunk(&source, &destination, 0)? };
        return queue(to.data, bytes);
    }
    let parts = Parts::new(from.layout, to, PART);
    let past_caches = if bytes >= PAST_CACHES { usize::MAX } else { 0 };
    let fill = |number: usize| -> Result<()> {
        let (part, (address, _)) = (parts.get(number)?, parts.stretch(number, number + 1));
        let OnHost { data, dtype, order, .. } = *{ &from };
        let data = data.wrapping_offset(part.offset as isize);
        let source = pack::CopySource { data, dtype, layout: &part.host, order };
        let destination = pack::CopyDestination { data: lies(address), dtype: to.dtype, layout: &part.dense };
        // SAFETY: a part of the host's memory, and of the stage, which is no other thread's.
        unsafe { pack::convert_chunk(&source, &destination, past_caches) }
    };
    let shared = Shared::new(parts.count());
    let mut queued = 0;
    let least = parts.count().div_ceil(TIMES);
    let mut hand_on = || {
        let (begin, end) = (queued, shared.filled_from(queued));
        if end < parts.count() && end - begin < least {
            return Ok(());
        }
        queued = end;
        shared.handed_on.store(end, Ordering::Relaxed);
        let (address, bytes) = parts.stretch(begin, end);
        queue(address, bytes)
    };
    run_parallel((bytes / EACH).clamp(1, threads.min(THREADS)), &shared, &fill, &mut hand_on)
}

/// Has the caller and helpers fill parts, and the caller hand on what is filled, until all is handed on.
fn run_parallel(
    threads: usize,
    shared: &Shared,
    fill: &(impl Fn(usize) -> Result<()> + Sync),
    hand_on: &mut (impl FnMut() -> Result<()> + Send),
) -> Result<()> {
    let caller = thread::current().id();
    let hand_on = Mutex::new(hand_on);
    workers::run_parallel(threads, || {
        // Taken by the caller alone.
        let mut hand_on = (thread::current().id() == caller)
            .then(|| hand_on.lock().unwrap_or_else(PoisonError::into_inner));
        let mut go_on = || -> Result<()> {
            while let Some(number) = shared.claim() {
                fill(number)?;
                shared.filled[number].store(true, Ordering::Release);
                if let Some(hand_on) = &mut hand_on {
                    hand_on()?;
                }
            }
            while let Some(hand_on) = &mut hand_on
                && shared.is_going()
            {
                hand_on()?;
                // Whoever has the last part may want this core.
                thread::yield_now();
            }
            Ok(())
        };
        let _panics = Panics(shared);
        if let Err(error) = go_on() {
            shared.fail(error);
        }
    });
    shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}

/// What threads that fill parts know of each other.
struct Shared {
    next: AtomicUsize,
    filled: Vec<AtomicBool>,
    /// Parts that the caller has handed on.
    handed_on: AtomicUsize,
    has_failed: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl Shared {
    fn new(parts: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            filled: (0..parts).map(|_| AtomicBool::new(false)).collect(),
            handed_on: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            failed: Mutex::new(None),
        }
    }

    /// A part that nobody has.
    fn claim(&self) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.filled.len() && !self.has_failed.load(Ordering::Relaxed)).then_some(number)
    }

    /// Up to which part all are filled, from one that is looked at next.
    fn filled_from(&self, begin: usize) -> usize {
        begin + self.filled[begin..].iter().take_while(|filled| filled.load(Ordering::Acquire)).count()
    }

    /// Whether there are parts that the caller has not handed on.
    fn is_going(&self) -> bool {
        self.handed_on.load(Ordering::Relaxed) < self.filled.len() && !self.has_failed.load(Ordering::Relaxed)
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

/// A thread that may panic: the caller is not to wait for its part, and sees the panic.
struct Panics<'a>(&'a Shared);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Error::new(ErrorKind::DeviceFailed, "a thread of the upload panicked"));
        }
    }
}

/// The stage, as several threads write it.
struct Shown(*mut u8);

// SAFETY: each thread writes parts of its own.
unsafe impl Sync for Shown {}
