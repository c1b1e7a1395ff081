//! When memory is ready, told to other processes, so that their streams wait and no host does.
//!
//! An event is made when there is work to wait for, one for each GPU of a publication, and destroyed with the publication:
//! a GPU has some 22,000 for other processes. Where none can be had, the host waits instead. The consumer must be done
//! with an event before the maker destroys it, which is what its lease is for.
//!
//! A stream that waits for an event whose maker is killed in the middle of its work waits for good, and recording the event
//! here does not help it (tried on an H200 with driver 580). [`RemoteEvent::is_over`] never waits: who must not hang asks it,
//! and looks whether the maker lives.

use super::registry;
use crate::abi::Opaque;
use crate::driver::{EventHandle, needed};
use crate::gpu::Gpu;
use crate::stream::SyncPoint;
use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::{Error, ErrorKind, Result};

/// Says to other processes when work of this one is done.
pub struct ReadyEvent {
    gpu: &'static Gpu,
    event: EventHandle,
    handle: [u8; 64],
}

// SAFETY: handles that the driver takes from any thread.
unsafe impl Send for ReadyEvent {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for ReadyEvent {}

type Made = HashMap<[u8; 64], Weak<ReadyEvent>>;

/// Events of this process: one that attaches what it published itself cannot open them.
fn made() -> MutexGuard<'static, Option<Made>> {
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadyEvent {
    /// An event for all that is queued on these sides now; `None` where it is done, or was waited for.
    ///
    /// # Errors
    /// When the device fails, or one of the streams is being captured.
    ///
    /// # Safety
    /// The streams are alive, and of this GPU or default ones.
    pub unsafe fn after(gpu: &'static Gpu, sides: &[SyncPoint]) -> Result<Option<Arc<Self>>> {
        let _entered = gpu.enter()?;
        let mut left = Vec::new();
        for &side in sides {
            // SAFETY: the caller's contract.
            unsafe {
                if gpu.is_captured(side)? {
                    return Err(Error::new(
                        ErrorKind::InvalidArgument,
                        "work on a stream that is captured has not happened, and nobody can wait for it",
                    )
                    .with_advice("publish after the capture has ended"));
                }
                if !left.contains(&side) && !gpu.is_done(side)? {
                    left.push(side);
                }
            }
        }
        if left.is_empty() {
            return Ok(None);
        }
        // SAFETY: the caller's contract.
        if let Ok(event) = unsafe { Self::record(gpu, &left) } {
            return Ok(Some(event));
        }
        // There are no more events, or this GPU has none for others.
        // SAFETY: as above.
        left.into_iter().try_for_each(|side| unsafe { gpu.wait(side) }).map(|()| None)
    }

    /// # Safety
    /// As [`ReadyEvent::after`]; the context is entered.
    unsafe fn record(gpu: &'static Gpu, sides: &[SyncPoint]) -> Result<Arc<Self>> {
        /// No times are taken, and other processes may wait.
        const FLAGS: u32 = 0x2 | 0x4;
        let mut event = ptr::null_mut();
        // SAFETY: a place for the handle.
        unsafe { gpu.driver.event_create(&raw mut event, FLAGS)? };
        registry::EVENTS.add();
        let mut ready = Self { gpu, event, handle: [0; 64] };
        let mut handle = Opaque([0; 64]);
        // SAFETY: an event of ours, and the caller's streams.
        unsafe {
            match sides {
                [SyncPoint::Stream(stream)] => gpu.driver.event_record(event, stream.raw())?,
                sides => {
                    let meeting = gpu.own_stream()?;
                    for &side in sides {
                        gpu.order(side, SyncPoint::Stream(meeting.stream()))?;
                    }
                    gpu.driver.event_record(event, meeting.stream().raw())?;
                }
            }
            needed("cuIpcGetEventHandle", gpu.driver.event_export(&raw mut handle, event))?;
        }
        ready.handle = handle.0;
        let ready = Arc::new(ready);
        let mut made = made();
        let made = made.get_or_insert_default();
        made.retain(|_, event| event.strong_count() > 0);
        made.insert(ready.handle, Arc::downgrade(&ready));
        Ok(ready)
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// What another process opens it by.
    pub fn handle(&self) -> &[u8; 64] {
        &self.handle
    }
}

impl Drop for ReadyEvent {
    fn drop(&mut self) {
        registry::EVENTS.remove();
        destroy(self.gpu, self.event);
    }
}

/// Waits that are queued refer to what was recorded.
fn destroy(gpu: &Gpu, event: EventHandle) {
    let Ok(_entered) = gpu.enter() else { return };
    // SAFETY: an event of ours that nobody has any more.
    let _ = unsafe { gpu.driver.event_destroy(event) };
}

enum Whose {
    Ours(Arc<ReadyEvent>),
    Theirs(EventHandle),
}

/// An event of another process, or of this one, that streams of this one wait for.
pub struct RemoteEvent {
    gpu: &'static Gpu,
    whose: Whose,
}

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for RemoteEvent {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for RemoteEvent {}

impl RemoteEvent {
    /// The event behind a handle.
    ///
    /// # Errors
    /// When it is none, or its maker is gone.
    pub fn open(gpu: &'static Gpu, handle: &[u8; 64]) -> Result<Self> {
        let _entered = gpu.enter()?;
        let own = made().as_ref().and_then(|made| made.get(handle)?.upgrade());
        if let Some(event) = own {
            return Ok(Self { gpu, whose: Whose::Ours(event) });
        }
        let mut event = ptr::null_mut();
        // SAFETY: a place for the event. Bytes that are no handle are refused.
        let opened = unsafe { gpu.driver.event_open(&raw mut event, Opaque(*handle)) };
        needed("cuIpcOpenEventHandle", opened).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::UnsupportedDevice => error,
            _ => super::broken(format!("the producer's event cannot be opened ({})", error.fact())),
        })?;
        registry::EVENTS.add();
        Ok(Self { gpu, whose: Whose::Theirs(event) })
    }

    fn event(&self) -> EventHandle {
        match &self.whose {
            Whose::Ours(event) => event.event,
            Whose::Theirs(event) => *event,
        }
    }

    /// Whether what it stands for is done.
    ///
    /// # Errors
    /// When the device fails.
    pub fn is_over(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        // SAFETY: an event that is alive.
        unsafe { self.gpu.driver.is_over(self.event()) }
    }

    /// Lets what is queued on `after` from now on begin when the event is over.
    ///
    /// # Errors
    /// When the device fails, or the stream is captured and the event is not over.
    ///
    /// # Safety
    /// The stream is alive, and of this GPU or a default one.
    pub unsafe fn order(&self, after: SyncPoint) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the caller's contract, and an event that is alive.
        unsafe {
            if self.gpu.is_captured(after)? {
                let _relaxed = self.gpu.relaxed()?;
                return match self.gpu.driver.is_over(self.event())? {
                    true => Ok(()),
                    false => Err(Error::new(
                        ErrorKind::InvalidArgument,
                        "a stream that is captured cannot wait for another process",
                    )
                    .with_advice("attach before the capture begins")),
                };
            }
            match after {
                SyncPoint::Nothing => Ok(()),
                SyncPoint::Stream(stream) => self.gpu.driver.stream_wait(stream.raw(), self.event(), 0),
                SyncPoint::Everything => match self.gpu.driver.wait_context(self.gpu.context, self.event()) {
                    Some(done) => done,
                    None => self.gpu.driver.event_synchronise(self.event()),
                },
            }
        }
    }
}

impl Drop for RemoteEvent {
    fn drop(&mut self) {
        if let Whose::Theirs(event) = self.whose {
            registry::EVENTS.remove();
            destroy(self.gpu, event);
        }
    }
}

impl fmt::Debug for ReadyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyEvent").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

impl fmt::Debug for RemoteEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}
