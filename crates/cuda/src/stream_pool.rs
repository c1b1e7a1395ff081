//! What transfers need of a GPU, made when it is first needed, and kept: streams, and events that say how far they are.

use crate::driver::EventHandle;
use crate::gpu::Gpu;
use crate::stream::Stream;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// Pauses of the processor between two questions to the driver: some microseconds.
const QUESTIONS_APART: usize = 100;

/// How long a thread stays awake for a copy by the GPU.
pub(crate) const PATIENCE: Duration = Duration::from_micros(400);

/// Streams and events that nobody uses now: making a stream takes longer than a transfer of some MiB.
#[derive(Default)]
pub(crate) struct Kept {
    streams: Mutex<Vec<Stream>>,
    /// Streams of transfers that failed, on which something may still wait.
    unsettled: Mutex<Vec<Stream>>,
    events: Mutex<Vec<Event>>,
}

/// A stream of our own, for one transfer: a transfer that waits for its source holds up no other.
pub(crate) struct Own {
    gpu: &'static Gpu,
    stream: Stream,
    is_settled: AtomicBool,
}

impl Own {
    fn new(gpu: &'static Gpu, stream: Stream) -> Self {
        Self { gpu, stream, is_settled: AtomicBool::new(false) }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Notes that nothing is queued on it any more.
    pub(crate) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let kept = &self.gpu.kept;
        let list = if self.is_settled.load(Ordering::Relaxed) { &kept.streams } else { &kept.unsettled };
        list.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream);
    }
}

/// Says when the GPU is past a copy.
pub(crate) struct Event(EventHandle);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Event {}

impl Gpu {
    /// A stream for a transfer. The caller has entered the context.
    pub(crate) fn own_stream(&'static self) -> Result<Own> {
        /// Does not wait for the default stream, nor that for it.
        const NON_BLOCKING: u32 = 1;
        if let Some(stream) = self.kept.streams.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(Own::new(self, stream));
        }
        let mut unsettled = self.kept.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a stream of ours. One that cannot be asked stays where it is.
        let is_idle = |stream: &Stream| unsafe { self.driver.is_idle(stream.raw()) }.unwrap_or(false);
        if let Some(found) = unsettled.iter().position(is_idle) {
            return Ok(Own::new(self, unsettled.swap_remove(found)));
        }
        drop(unsettled);
        let mut handle = ptr::null_mut();
        // SAFETY: a place for the handle.
        unsafe { self.driver.stream_create(&raw mut handle, NON_BLOCKING)? };
        // SAFETY: the driver has just made it, and nobody destroys it.
        let stream = unsafe { Stream::from_handle(handle.expose_provenance()) };
        Ok(Own::new(self, stream))
    }

    /// Two events, used in turn. The caller has entered the context.
    pub(crate) fn marks(&'static self) -> Result<Marks> {
        Ok(Marks { gpu: self, events: [Some(self.event()?), Some(self.event()?)] })
    }

    /// Waits for an event: for a moment awake, unless somebody else has something to do, then asleep. Whether it is over.
    ///
    /// # Safety
    /// It was recorded, and the context is entered.
    pub(crate) unsafe fn wait_for(
        &self,
        event: &Event,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<bool> {
        let start = Instant::now();
        // SAFETY: the caller's contract.
        unsafe {
            while start.elapsed() < patience {
                if self.driver.is_over(event.0)? {
                    return Ok(true);
                }
                // The driver has a lock, for which others wait.
                (0..QUESTIONS_APART).for_each(|_| std::hint::spin_loop());
                if is_wanted() {
                    return Ok(false);
                }
            }
            self.driver.event_synchronise(event.0).map(|()| true)
        }
    }

    /// Whether the GPU is past what an event stands for.
    ///
    /// # Safety
    /// It was recorded, and the context is entered.
    pub(crate) unsafe fn is_over(&self, event: &Event) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.driver.is_over(event.0) }
    }

    /// Has an event stand for all that a stream was given so far.
    ///
    /// # Safety
    /// The context is entered, and the stream is alive.
    pub(crate) unsafe fn record(&self, event: &Event, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.driver.event_record(event.0, stream.raw()) }
    }

    /// Takes back events that were got from [`Gpu::event`].
    pub(crate) fn keep(&self, events: impl IntoIterator<Item = Event>) {
        self.kept.events.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
    }

    /// An event. The caller has entered the context.
    pub(crate) fn event(&self) -> Result<Event> {
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
    /// # Safety
    /// The context is entered, and the stream is alive.
    pub(crate) unsafe fn mark(&self, number: usize, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        self.events[number % 2].as_ref().map_or(Ok(()), |event| unsafe { self.gpu.record(event, stream) })
    }

    /// # Safety
    /// The part of this number was marked, and none after the next one; the context is entered.
    pub(crate) unsafe fn wait(&self, number: usize) -> Result<()> {
        let Some(event) = &self.events[number % 2] else { return Ok(()) };
        // SAFETY: the caller's contract.
        unsafe { self.gpu.wait_for(event, PATIENCE, || false).map(drop) }
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.gpu.keep(self.events.iter_mut().filter_map(Option::take));
    }
}
