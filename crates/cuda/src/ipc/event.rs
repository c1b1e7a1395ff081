//! Events between processes, so that a consumer's streams wait for the producer's work and no host does.
//!
//! The producer creates one event for each GPU of a publication that still has work queued, and destroys it with the
//! publication: a GPU has some 22,000 interprocess events. If none is left, the producer's host waits instead. The
//! consumer's lease keeps the event alive until the consumer no longer needs it.
//!
//! If the producer is killed before its work is complete, a stream that waits for the event waits for ever. Recording the
//! event in the consumer does not end the wait (tried on an H200 with driver 580). [`RemoteEvent::is_complete`] never waits: a
//! caller that must not hang polls it, and checks that the producer is alive.

use super::counters;
use super::error::protocol_error;
use crate::abi::IpcHandle;
use crate::driver::handles::EventHandle;
use crate::driver::require;
use crate::gpu::Gpu;
use crate::hints;
use crate::stream::SyncPoint;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::{Error, ErrorKind, Result};

/// An event that this process created or opened, and destroys.
struct OwnedEvent {
    gpu: &'static Gpu,
    handle: EventHandle,
}

impl OwnedEvent {
    fn new(gpu: &'static Gpu, handle: EventHandle) -> Self {
        counters::EVENTS.add();
        Self { gpu, handle }
    }
}

impl Drop for OwnedEvent {
    /// Destroys the event. Queued waits refer to what was recorded, and stay valid.
    fn drop(&mut self) {
        counters::EVENTS.remove();
        let Ok(_entered) = self.gpu.enter() else { return };
        let _ = self.gpu.driver.event_destroy(self.handle.take());
    }
}

/// An event by which other processes wait for work of this one.
pub struct ReadyEvent {
    event: OwnedEvent,
    handle: [u8; 64],
}

type OwnEvents = HashMap<[u8; 64], Weak<ReadyEvent>>;

/// Events of this process by handle: a process that attaches what it published itself cannot open them.
fn own_events() -> MutexGuard<'static, Option<OwnEvents>> {
    static OWN_EVENTS: Mutex<Option<OwnEvents>> = Mutex::new(None);
    OWN_EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadyEvent {
    /// An event for all work that is queued at these sync points; `None` if the work is complete or the host waited for it.
    ///
    /// # Errors
    /// When the device fails, one of the streams is being captured, or one belongs to another GPU.
    pub fn after(gpu: &'static Gpu, points: &[SyncPoint]) -> Result<Option<Arc<Self>>> {
        let _entered = gpu.enter()?;
        let mut pending = Vec::new();
        for &point in points {
            if gpu.is_captured(point)? {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "work on a captured stream is not executed, so no process can wait for it",
                )
                .with_hint(hints::PUBLISH_AFTER_CAPTURE));
            }
            if !pending.contains(&point) && !gpu.is_done(point)? {
                pending.push(point);
            }
        }
        if pending.is_empty() {
            return Ok(None);
        }
        if let Ok(event) = Self::record(gpu, &pending) {
            return Ok(Some(event));
        }
        // The GPU has no interprocess events, or none left.
        pending.into_iter().try_for_each(|point| gpu.wait(point)).map(|()| None)
    }

    /// The caller has entered the context.
    fn record(gpu: &'static Gpu, points: &[SyncPoint]) -> Result<Arc<Self>> {
        /// `CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`.
        const FLAGS: u32 = 0x2 | 0x4;
        let mut event = EventHandle::default();
        gpu.driver.event_create(&mut event, FLAGS)?;
        let event = OwnedEvent::new(gpu, event);
        match points {
            [SyncPoint::Stream(stream)] => gpu.driver.event_record(&event.handle, *stream)?,
            points => {
                let pooled = gpu.take_stream()?;
                for &point in points {
                    gpu.order(point, SyncPoint::Stream(pooled.stream()))?;
                }
                gpu.driver.event_record(&event.handle, pooled.stream())?;
            }
        }
        let mut handle = IpcHandle([0; 64]);
        require("cuIpcGetEventHandle", gpu.driver.event_export(&mut handle, &event.handle))?;
        let ready = Arc::new(Self { event, handle: handle.0 });
        let mut guard = own_events();
        let own_events = guard.get_or_insert_default();
        own_events.retain(|_, event| event.strong_count() > 0);
        own_events.insert(ready.handle, Arc::downgrade(&ready));
        Ok(ready)
    }

    /// The GPU that it belongs to.
    pub fn gpu(&self) -> &'static Gpu {
        self.event.gpu
    }

    /// The handle by which another process opens it.
    pub fn handle(&self) -> &[u8; 64] {
        &self.handle
    }
}

enum EventOrigin {
    ThisProcess(Arc<ReadyEvent>),
    OtherProcess(OwnedEvent),
}

/// An event, usually of another process, that streams of this process wait for.
pub struct RemoteEvent {
    gpu: &'static Gpu,
    origin: EventOrigin,
}

impl RemoteEvent {
    /// Opens the event with this handle.
    ///
    /// # Errors
    /// If the handle is invalid, or the producer is gone.
    pub fn open(gpu: &'static Gpu, handle: &[u8; 64]) -> Result<Self> {
        let _entered = gpu.enter()?;
        let own = own_events().as_ref().and_then(|events| events.get(handle)?.upgrade());
        if let Some(event) = own {
            return Ok(Self { gpu, origin: EventOrigin::ThisProcess(event) });
        }
        let mut event = EventHandle::default();
        // The driver rejects bytes that are not a handle.
        let opened = gpu.driver.event_open(&mut event, IpcHandle(*handle));
        require("cuIpcOpenEventHandle", opened).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::UnsupportedDevice => error,
            _ => protocol_error(format!("the producer's event cannot be opened ({})", error.fact())),
        })?;
        Ok(Self { gpu, origin: EventOrigin::OtherProcess(OwnedEvent::new(gpu, event)) })
    }

    fn event(&self) -> &EventHandle {
        match &self.origin {
            EventOrigin::ThisProcess(ready) => &ready.event.handle,
            EventOrigin::OtherProcess(event) => &event.handle,
        }
    }

    /// Whether the recorded work is complete.
    ///
    /// # Errors
    /// When the device fails.
    pub fn is_complete(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        self.gpu.driver.is_event_complete(self.event())
    }

    /// Lets work that is queued at `after` from now on begin when the event is complete.
    ///
    /// # Errors
    /// When the device fails, or the stream is captured and the event is not complete.
    pub fn order(&self, after: SyncPoint) -> Result<()> {
        let _entered = self.gpu.enter()?;
        if self.gpu.is_captured(after)? {
            let _relaxed = self.gpu.relax_capture_mode()?;
            return match self.gpu.driver.is_event_complete(self.event())? {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a captured stream cannot wait for another process",
                )
                .with_hint(hints::ATTACH_BEFORE_CAPTURE)),
            };
        }
        match after {
            SyncPoint::Complete => Ok(()),
            SyncPoint::Stream(stream) => self.gpu.driver.stream_wait(stream, self.event(), 0),
            SyncPoint::AllStreams => match self.gpu.driver.wait_context(self.gpu.context, self.event()) {
                Some(done) => done,
                None => self.gpu.driver.event_synchronise(self.event()),
            },
        }
    }
}

impl fmt::Debug for ReadyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyEvent").field("gpu", &self.event.gpu).finish_non_exhaustive()
    }
}

impl fmt::Debug for RemoteEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEvent").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}
