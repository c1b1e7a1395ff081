//! The order of work on a GPU, kept without waiting on the host.
//!
//! # What it promises
//!
//! [`Gpu::order`] sees that what is queued on one side before the call is done before what is queued on the other side
//! after it. A side is a stream, or everything in the context, for frameworks that do not say which stream they use
//! (TensorFlow, and JAX when it lets go). Nothing waits on the host, unless the driver is older than CUDA 12.5 and a
//! side is everything.
//!
//! It does not ask first whether there is anything to wait for: in a process with JAX a driver took 1.6 microseconds to
//! say whether a stream is idle, and 0.6 to queue the wait (H200, CUDA 13). Who gains by knowing asks [`Gpu::is_done`].
//!
//! # Capture
//!
//! While a stream is captured into a graph, it may not be asked whether it is idle. Two sides that are the same stream
//! need no order, and that is the case for which sharing inside a capture is safe. A captured stream cannot wait for one
//! that is not; where that is idle it need not, and otherwise it is an error, before the driver hears of it. A wait of another stream for a captured one becomes part of the
//! graph, as CUDA defines it: the other stream must join again before the capture ends.

use crate::driver::{Driver, EventHandle, StreamHandle};
use crate::gpu::Gpu;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::{Error, ErrorKind, Result};

/// A stream that somebody else owns and keeps alive: whoever makes this from a handle vouches for that, so that safe functions
/// may hand it to the driver, which does not check handles.
///
/// ```compile_fail,E0423
/// let stream = tensorferry_cuda::Stream(0xdead_beef);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(usize);

impl Stream {
    /// The default stream that all threads share.
    pub const LEGACY: Self = Self(0);

    /// The stream of this handle. One stands for the shared default stream, as zero does.
    ///
    /// ```no_run
    /// # use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
    /// // SAFETY: 2 is the handle of the calling thread's default stream.
    /// let block = DeviceBlock::new(Gpu::get(0)?, 64, unsafe { Stream::from_handle(2) })?;
    /// # Ok::<(), tensorferry_core::Error>(())
    /// ```
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
    /// let block = DeviceBlock::new(Gpu::get(0)?, 64, Stream::from_handle(0xdead_beef))?;
    /// # Ok::<(), tensorferry_core::Error>(())
    /// ```
    ///
    /// # Safety
    /// The handle is that of a default stream (0, 1 or 2), or of a stream of this process that is alive for as long as the result
    /// is used, or a copy of it: in a [`SyncPoint`], a [`DeviceBlock`](crate::DeviceBlock) or an open [`TransferBatch`](crate::Batch).
    pub unsafe fn from_handle(handle: usize) -> Self {
        Self(if handle == 1 { 0 } else { handle })
    }

    /// The handle.
    pub fn handle(self) -> usize {
        self.0
    }

    pub(crate) fn raw(self) -> StreamHandle {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// Where work is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPoint {
    /// On this stream.
    Stream(Stream),
    /// On streams that we cannot name.
    Everything,
    /// Nowhere: all that there was is done.
    Nothing,
}

impl SyncPoint {
    /// The side as it is to be remembered: the default stream of a thread is another one on every thread.
    #[must_use]
    pub fn lasting(self) -> Self {
        const PER_THREAD: usize = 2;
        match self {
            Self::Stream(Stream(PER_THREAD)) => Self::Everything,
            other => other,
        }
    }
}

/// A thread whose calls a capture elsewhere does not forbid.
pub(crate) struct Relaxed(&'static Driver, i32);

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: a place for the mode that was; where this fails, the thread stays as it is.
        let _ = unsafe { self.0.capture_mode(&raw mut self.1) };
    }
}

/// Events that are not in use. Making one costs more than using it.
pub(crate) struct Events(Mutex<Vec<Event>>);

/// An event that belongs to us.
pub(crate) struct Event(EventHandle);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Event {}

/// Blocking waits sleep, and no times are taken.
const EVENT_FLAGS: u32 = 0x1 | 0x2;

impl Events {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn take(&self, gpu: &Gpu) -> Result<Event> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(event) = idle {
            return Ok(event);
        }
        let mut event = ptr::null_mut();
        // SAFETY: a place for the handle; the caller has entered the context.
        unsafe { gpu.driver.event_create(&raw mut event, EVENT_FLAGS)? };
        Ok(Event(event))
    }

    /// A wait that is queued refers to what was recorded then, so the event may be recorded anew at once.
    fn put(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Gpu {
    /// Lets what is queued on `after` from now on begin when what is queued on `before` until now is done.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// The streams are alive, and of this GPU or default ones.
    pub unsafe fn order(&self, before: SyncPoint, after: SyncPoint) -> Result<()> {
        if before == SyncPoint::Nothing
            || after == SyncPoint::Nothing
            || (before == after && before != SyncPoint::Everything)
        {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller's contract, and an event of ours.
        unsafe {
            if self.is_captured(after)? && !self.is_captured(before)? {
                return match self.is_done_beside_a_capture(before)? {
                    true => Ok(()),
                    // The driver would refuse the wait, and break off the capture.
                    false => Err(Error::new(
                        ErrorKind::InvalidArgument,
                        "a stream that is captured cannot wait for work on another that is not",
                    )
                    .with_advice(
                        "wait for that work before the capture begins, or queue it on the captured stream",
                    )),
                };
            }
            if after == SyncPoint::Everything && self.is_captured(before)? {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "work on streams that have no name cannot wait for a stream that is captured",
                )
                .with_advice("share with JAX or TensorFlow before the capture begins, or after it"));
            }
            let event = self.events.take(self)?;
            let ordered = self.link(before, &event, after);
            self.events.put(event);
            ordered
        }
    }

    /// Lets a stream wait for all that is queued on every GPU that we use.
    ///
    /// # Errors
    /// When a device fails, or a stream of one is being captured.
    ///
    /// # Safety
    /// The stream is alive, and of this GPU.
    pub(crate) unsafe fn after_all(&self, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.order(SyncPoint::Everything, SyncPoint::Stream(stream))? };
        for other in Gpu::opened().filter(|other| other.index() != self.index()) {
            let event = {
                let _there = other.enter()?;
                let event = other.events.take(other)?;
                // SAFETY: an event of that context.
                match unsafe { other.driver.record_context(other.context, event.0) } {
                    Some(recorded) => recorded?,
                    // SAFETY: the context is entered.
                    None => unsafe { other.driver.synchronise_context()? },
                }
                event
            };
            let _here = self.enter()?;
            // SAFETY: the caller's stream, and an event that was recorded, or is over.
            let waits = unsafe { self.driver.stream_wait(stream.raw(), event.0, 0) };
            other.events.put(event);
            waits?;
        }
        Ok(())
    }

    /// Lets this thread make calls that a capture on another one would forbid, until the guard goes: none that we make touch a
    /// stream of somebody else's.
    pub(crate) fn relaxed(&self) -> Result<Relaxed> {
        const RELAXED: i32 = 2;
        let mut mode = RELAXED;
        // SAFETY: a place for the mode that was.
        unsafe { self.driver.capture_mode(&raw mut mode)? };
        Ok(Relaxed(self.driver, mode))
    }

    /// Whether all that is queued on a side is known to be done.
    ///
    /// # Errors
    /// When the device fails, or a kernel has.
    ///
    /// # Safety
    /// As [`Gpu::order`].
    pub unsafe fn is_done(&self, side: SyncPoint) -> Result<bool> {
        match side {
            SyncPoint::Nothing => Ok(true),
            SyncPoint::Everything => Ok(false),
            SyncPoint::Stream(stream) => {
                let _entered = self.enter()?;
                // SAFETY: the caller's contract.
                unsafe { Ok(!self.is_captured(side)? && self.driver.is_idle(stream.raw())?) }
            }
        }
    }

    /// # Safety
    /// As [`Gpu::order`].
    unsafe fn link(&self, before: SyncPoint, event: &Event, after: SyncPoint) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe {
            let recorded = match before {
                SyncPoint::Stream(stream) => Some(self.driver.event_record(event.0, stream.raw())),
                SyncPoint::Everything => self.driver.record_context(self.context, event.0),
                SyncPoint::Nothing => return Ok(()),
            };
            match recorded {
                Some(done) => done?,
                // The wait of an old driver is the host's.
                None => return self.driver.synchronise_context(),
            }
            match after {
                SyncPoint::Stream(stream) => self.driver.stream_wait(stream.raw(), event.0, 0),
                SyncPoint::Everything => match self.driver.wait_context(self.context, event.0) {
                    Some(done) => done,
                    None => self.driver.event_synchronise(event.0),
                },
                SyncPoint::Nothing => Ok(()),
            }
        }
    }

    /// The same while some other stream is captured: a thread may ask then if it says that it knows what it does.
    ///
    /// # Safety
    /// As [`Gpu::order`].
    unsafe fn is_done_beside_a_capture(&self, side: SyncPoint) -> Result<bool> {
        let _relaxed = self.relaxed()?;
        // SAFETY: the caller's contract.
        unsafe { self.is_done(side) }
    }

    /// Whether a side is a stream that is being captured into a graph.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// As [`Gpu::order`].
    pub unsafe fn is_captured(&self, side: SyncPoint) -> Result<bool> {
        let SyncPoint::Stream(stream) = side else { return Ok(false) };
        let _entered = self.enter()?;
        // SAFETY: the caller's contract.
        unsafe { self.driver.is_captured(stream.raw()) }
    }

    /// Waits on the host until what is queued on a side is done.
    ///
    /// # Errors
    /// When the device fails, or a kernel has.
    ///
    /// # Safety
    /// As [`Gpu::order`].
    pub unsafe fn wait(&self, side: SyncPoint) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller's contract.
        unsafe {
            match side {
                SyncPoint::Stream(stream) => self.driver.stream_synchronise(stream.raw()),
                SyncPoint::Everything => self.driver.synchronise_context(),
                SyncPoint::Nothing => Ok(()),
            }
        }
    }
}
