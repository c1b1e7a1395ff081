//! Events of one GPU: recording them, waiting for them, and a pool that reuses them.
//!
//! Creating an event costs more than recording one, so events return to the pool and are never destroyed. Everything
//! here needs only the driver and an entered context; [`Gpu`](crate::Gpu) owns the pool.

use crate::driver::Driver;
use crate::driver::handles::EventHandle;
use crate::stream::Stream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// How long a thread spins for a copy by the GPU before it sleeps.
pub(crate) const EVENT_SPIN_TIME: Duration = Duration::from_micros(400);

/// Spin-loop hints between two queries of an event, which take some microseconds.
const SPINS_PER_QUERY: usize = 100;

/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: waits sleep, so that other threads can use the core.
const EVENT_FLAGS: u32 = 0x1 | 0x2;

/// An event that belongs to this crate.
pub(crate) struct Event(EventHandle);

impl Event {
    pub(crate) fn handle(&self) -> &EventHandle {
        &self.0
    }

    /// Records all work that the stream was given so far. The caller has entered the context.
    pub(crate) fn record(&self, driver: &Driver, stream: Stream) -> Result<()> {
        driver.event_record(&self.0, stream)
    }

    /// Whether the recorded work is complete. The caller has entered the context.
    pub(crate) fn is_complete(&self, driver: &Driver) -> Result<bool> {
        driver.is_event_complete(&self.0)
    }

    /// Waits for the recorded work: spins for `spin_time`, then sleeps. Returns whether the work is complete, which is
    /// false only if `is_interrupted` ended the spinning. The caller has entered the context.
    pub(crate) fn wait(
        &self,
        driver: &Driver,
        spin_time: Duration,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < spin_time {
            if driver.is_event_complete(&self.0)? {
                return Ok(true);
            }
            // Every query takes the driver's lock, which other threads need.
            (0..SPINS_PER_QUERY).for_each(|_| std::hint::spin_loop());
            if is_interrupted() {
                return Ok(false);
            }
        }
        driver.event_synchronise(&self.0).map(|()| true)
    }
}

/// Events of one GPU that are not in use.
#[derive(Default)]
pub(crate) struct EventPool(Mutex<Vec<Event>>);

impl EventPool {
    /// An event from the pool, or a new one. The caller has entered the context.
    pub(crate) fn take(&self, driver: &Driver) -> Result<Event> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(event) = idle {
            return Ok(event);
        }
        let mut event = EventHandle::default();
        driver.event_create(&mut event, EVENT_FLAGS)?;
        Ok(Event(event))
    }

    /// Returns events to the pool. A queued wait refers to what was recorded when it was queued, so the next user may
    /// record the event at once.
    pub(crate) fn put(&self, events: impl IntoIterator<Item = Event>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
    }

    /// Two events that chunks of a copy use alternately. The caller has entered the context.
    pub(crate) fn take_pair(&'static self, driver: &'static Driver) -> Result<EventPair> {
        let events = [Some(self.take(driver)?), Some(self.take(driver)?)];
        Ok(EventPair { pool: self, driver, events })
    }
}

/// Two events, of which the chunks of a copy use one after the other.
pub(crate) struct EventPair {
    pool: &'static EventPool,
    driver: &'static Driver,
    events: [Option<Event>; 2],
}

impl EventPair {
    /// Records the event of the chunk with this index. The caller has entered the context.
    pub(crate) fn record(&self, index: usize, stream: Stream) -> Result<()> {
        self.events[index % 2].as_ref().map_or(Ok(()), |event| event.record(self.driver, stream))
    }

    /// Waits until the chunk with this index is complete. The caller has recorded it and no chunk after the next one, and has
    /// entered the context.
    pub(crate) fn wait(&self, index: usize) -> Result<()> {
        let Some(event) = &self.events[index % 2] else { return Ok(()) };
        event.wait(self.driver, EVENT_SPIN_TIME, || false).map(drop)
    }
}

impl Drop for EventPair {
    fn drop(&mut self) {
        self.pool.put(self.events.iter_mut().filter_map(Option::take));
    }
}
