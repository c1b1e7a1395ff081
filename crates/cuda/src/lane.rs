//! One thread's road between a GPU and the host: a stream, and two pinned buffers that are filled and emptied in turn.

use crate::driver::EventHandle;
use crate::gpu::Gpu;
use crate::lanes::Lanes;
use crate::stream::Stream;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::Result;
use tensorferry_core::pool::Block;

/// Pauses of the processor between two questions to the driver: some microseconds.
const QUESTIONS_APART: usize = 100;

/// How long a thread stays awake for a copy by the GPU itself, or by a lane among many.
const PATIENCE: Duration = Duration::from_micros(400);
/// How long where there are few cores, and somebody else has work for this one.
const LITTLE_PATIENCE: Duration = Duration::from_micros(20);

/// Streams of a transfer. The link carries one piece after the other, so two are enough to keep it busy.
const STREAMS: usize = 2;

/// What transfers need of a GPU, made when it is first needed, and kept: making a stream takes longer than a transfer of some
/// MiB.
#[derive(Default)]
pub(crate) struct Kept {
    streams: Mutex<Vec<[Stream; STREAMS]>>,
    events: Mutex<Vec<Event>>,
}

/// Streams of our own, for one transfer: a transfer that waits for its source holds up no other.
pub(crate) struct Own {
    gpu: &'static Gpu,
    streams: [Stream; STREAMS],
}

impl Own {
    /// One of the streams.
    pub(crate) fn stream(&self, number: usize) -> Stream {
        self.streams[number % STREAMS]
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.gpu.kept.streams.lock().unwrap_or_else(PoisonError::into_inner).push(self.streams);
    }
}

struct Event(EventHandle);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Event {}

impl Gpu {
    /// Streams for a transfer. The caller has entered the context.
    pub(crate) fn own_streams(&'static self) -> Result<Own> {
        /// Does not wait for the default stream, nor that for it.
        const NON_BLOCKING: u32 = 1;
        if let Some(streams) = self.kept.streams.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(Own { gpu: self, streams });
        }
        let mut streams = [Stream::LEGACY; STREAMS];
        for stream in &mut streams {
            let mut handle = ptr::null_mut();
            // SAFETY: a place for the handle. The stream lives as long as the process.
            unsafe { self.driver.stream_create(&raw mut handle, NON_BLOCKING)? };
            *stream = Stream::from_handle(handle.expose_provenance());
        }
        Ok(Own { gpu: self, streams })
    }

    /// Two events, used in turn. The caller has entered the context.
    pub(crate) fn marks(&'static self) -> Result<Marks> {
        Ok(Marks { gpu: self, events: [Some(self.event()?), Some(self.event()?)] })
    }

    /// Waits for an event of ours: for a moment awake, then asleep.
    ///
    /// # Safety
    /// It was recorded, and the context is entered.
    unsafe fn wait_for(&self, event: EventHandle, patience: Duration) -> Result<()> {
        let start = Instant::now();
        // SAFETY: the caller's contract.
        unsafe {
            while start.elapsed() < patience {
                if self.driver.is_over(event)? {
                    return Ok(());
                }
                // The driver has a lock, for which others wait.
                (0..QUESTIONS_APART).for_each(|_| std::hint::spin_loop());
            }
            self.driver.event_synchronise(event)
        }
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

/// Two events for parts of a copy.
pub(crate) struct Marks {
    gpu: &'static Gpu,
    events: [Option<Event>; 2],
}

impl Marks {
    fn raw(&self, number: usize) -> EventHandle {
        self.events[number % 2].as_ref().map_or(ptr::null_mut(), |event| event.0)
    }

    /// # Safety
    /// The context is entered, and the stream is alive.
    pub(crate) unsafe fn mark(&self, number: usize, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract, and an event of ours.
        unsafe { self.gpu.driver.event_record(self.raw(number), stream.raw()) }
    }

    /// # Safety
    /// The part of this number was marked, and none after the next one; the context is entered.
    pub(crate) unsafe fn wait(&self, number: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.gpu.wait_for(self.raw(number), PATIENCE) }
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let mut events = self.gpu.kept.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(self.events.iter_mut().filter_map(Option::take));
    }
}

/// Whether the GPU uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Not,
    /// Its event says until when.
    Marked,
    /// Perhaps.
    Unknown,
}

/// A stream, and two buffers with an event each that says when the GPU is done with it.
pub(crate) struct Lane<'a> {
    gpu: &'static Gpu,
    pub(crate) stream: Stream,
    pub(crate) buffers: [*mut u8; 2],
    events: [Option<Event>; 2],
    used: [Used; 2],
    patience: Duration,
    _staging: &'a Block,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(
        gpu: &'static Gpu,
        stream: Stream,
        number: usize,
        lanes: Lanes,
        staging: &'a Block,
    ) -> Result<Self> {
        let start = staging.data().as_ptr().wrapping_add(2 * number * lanes.chunk);
        Ok(Self {
            gpu,
            stream,
            buffers: [start, start.wrapping_add(lanes.chunk)],
            events: [Some(gpu.event()?), Some(gpu.event()?)],
            used: [Used::Not; 2],
            patience: if lanes.threads < 4 { LITTLE_PATIENCE } else { PATIENCE },
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
    pub(crate) unsafe fn mark(&mut self, turn: usize) -> Result<()> {
        // Until the event is recorded, it says nothing about the buffer.
        self.used[turn] = Used::Unknown;
        // SAFETY: an event and a stream of ours.
        unsafe { self.gpu.driver.event_record(self.raw_event(turn), self.stream.raw())? };
        self.used[turn] = Used::Marked;
        Ok(())
    }

    /// Notes that something that uses a buffer is about to be queued.
    pub(crate) fn begin(&mut self, turn: usize) {
        self.used[turn] = Used::Unknown;
    }

    /// Waits until the GPU is done with a buffer.
    ///
    /// # Safety
    /// The context is entered.
    pub(crate) unsafe fn wait(&mut self, turn: usize) -> Result<()> {
        if self.used[turn] == Used::Not {
            return Ok(());
        }
        // SAFETY: an event of ours.
        unsafe { self.gpu.wait_for(self.raw_event(turn), self.patience)? };
        self.used[turn] = Used::Not;
        Ok(())
    }
}

/// Whatever happened, nothing may still use the buffers or the caller's memory.
impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // SAFETY: whoever holds a lane has entered its context. What no event answers for is waited for with its stream; where
        // that fails too, the device is lost, and uses nothing any more.
        unsafe {
            let open = (0..2).any(|turn| match self.used[turn] {
                Used::Not => false,
                Used::Marked => self.wait(turn).is_err(),
                Used::Unknown => true,
            });
            if open {
                let _ = self.gpu.driver.stream_synchronise(self.stream.raw());
            }
        }
        for event in self.events.iter_mut().filter_map(Option::take) {
            self.gpu.kept.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }
}
