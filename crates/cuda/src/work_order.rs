//! The order of work on a GPU, kept without waiting on the host.
//!
//! [`Gpu::order`] lets work that is queued at one [`SyncPoint`] after the call begin when the work queued at another
//! before the call is complete. TensorFlow, and JAX when it releases memory, do not name their streams; their sync point
//! is all streams of the context. The host waits only where a sync point is all streams and the driver is older than
//! CUDA 12.5.
//!
//! Ordering streams is safe: a [`Stream`] is alive by the contract of [`Stream::from_handle`], and the driver returns an error
//! for a stream of another GPU where it needs one of this GPU. The event of another library is a bare handle, for which the caller
//! of [`Gpu::order_after_event`] vouches.
//!
//! `order` does not ask first whether there is anything to wait for. In a process with JAX a driver took 1.6 microseconds
//! to query a stream, and 0.6 to queue the wait (H200, CUDA 13). Callers that gain by knowing call [`Gpu::is_done`].
//!
//! # Capture
//!
//! A stream cannot be queried while it is captured into a graph.
//!
//! - Two sync points that are the same stream need no order, so sharing inside a capture is safe there.
//! - A captured stream cannot wait for a stream that is not captured. If that stream is idle, no wait is needed;
//!   otherwise `order` returns an error before the driver would invalidate the capture.
//! - If another stream waits for a captured one, the wait becomes part of the graph, as CUDA defines it: the other stream
//!   must join again before the capture ends.

use crate::driver::Driver;
use crate::driver::handles::EventHandle;
use crate::event_pool::Event;
use crate::gpu::Gpu;
use crate::hints;
use crate::stream::{Stream, SyncPoint};
use std::marker::PhantomData;
use tensorferry_core::{Error, ErrorKind, Result};

/// Restores the capture mode of the calling thread when it is dropped.
pub(crate) struct CaptureModeGuard {
    driver: &'static Driver,
    mode: i32,
    /// Makes the type stay on its thread, whose mode it restores.
    thread: PhantomData<*const ()>,
}

impl Drop for CaptureModeGuard {
    fn drop(&mut self) {
        // Where this fails, the thread stays as it is.
        let _ = self.driver.capture_mode(&mut self.mode);
    }
}

impl Gpu {
    /// Lets work that is queued at `after` from now on begin when the work queued at `before` until now is complete.
    ///
    /// # Errors
    /// When the device fails, a capture does not allow the wait, or a stream belongs to another GPU.
    pub fn order(&self, before: SyncPoint, after: SyncPoint) -> Result<()> {
        if before == SyncPoint::Complete
            || after == SyncPoint::Complete
            || (before == after && before != SyncPoint::AllStreams)
        {
            return Ok(());
        }
        let _entered = self.enter()?;
        if self.is_captured(after)? && !self.is_captured(before)? {
            return match self.is_done_during_capture(before)? {
                true => Ok(()),
                // The driver would refuse the wait, and invalidate the capture.
                false => Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a captured stream cannot wait for work on a stream that is not captured",
                )
                .with_hint(hints::ORDER_BEFORE_CAPTURE)),
            };
        }
        if after == SyncPoint::AllStreams && self.is_captured(before)? {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the other framework does not name its stream, so its work cannot wait for a captured stream",
            )
            .with_hint(hints::SHARE_OUTSIDE_CAPTURE));
        }
        let event = self.events.take(self.driver)?;
        let ordered = self.record_and_wait(before, &event, after);
        self.events.put([event]);
        ordered
    }

    /// Lets work that is queued on a stream from now on begin when the work that an event has recorded is complete. The event
    /// belongs to another library, which may destroy it afterwards.
    ///
    /// # Errors
    /// When the device fails, or the driver does not allow the wait.
    ///
    /// # Safety
    /// `event` is the handle of an event of this process, which is alive during the call.
    pub unsafe fn order_after_event(&self, event: usize, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: `from_foreign` requires an event that is alive while the handle is used (the contract of this function). The wait
        // that is queued refers to what was recorded, and not to the event.
        let event = unsafe { EventHandle::from_foreign(event) };
        self.driver.stream_wait(stream, &event, 0)
    }

    /// Lets a stream wait for all work that is queued on every GPU that this process uses.
    ///
    /// # Errors
    /// When a device fails, or a stream of one is being captured.
    pub(crate) fn order_after_all_gpus(&self, stream: Stream) -> Result<()> {
        self.order(SyncPoint::AllStreams, SyncPoint::Stream(stream))?;
        for other in Gpu::opened().filter(|other| other.index() != self.index()) {
            let event = {
                let _other_entered = other.enter()?;
                let event = other.events.take(other.driver)?;
                match other.driver.record_context(other.context, event.handle()) {
                    Some(recorded) => recorded?,
                    None => other.driver.synchronise_context()?,
                }
                event
            };
            let _entered = self.enter()?;
            let waits = self.driver.stream_wait(stream, event.handle(), 0);
            other.events.put([event]);
            waits?;
        }
        Ok(())
    }

    /// Allows this thread, until the guard is dropped, calls that a capture on another thread would forbid. None of the
    /// calls of this crate touches a stream of another library.
    pub(crate) fn relax_capture_mode(&self) -> Result<CaptureModeGuard> {
        const RELAXED: i32 = 2;
        // Fails in a forked child.
        Driver::get()?;
        let mut mode = RELAXED;
        self.driver.capture_mode(&mut mode)?;
        Ok(CaptureModeGuard { driver: self.driver, mode, thread: PhantomData })
    }

    /// Whether all work queued at a sync point is known to be complete.
    ///
    /// # Errors
    /// When the device fails, or a kernel has.
    pub fn is_done(&self, point: SyncPoint) -> Result<bool> {
        match point {
            SyncPoint::Complete => Ok(true),
            SyncPoint::AllStreams => Ok(false),
            SyncPoint::Stream(stream) => {
                let _entered = self.enter()?;
                Ok(!self.is_captured(point)? && self.driver.is_stream_idle(stream)?)
            }
        }
    }

    fn record_and_wait(&self, before: SyncPoint, event: &Event, after: SyncPoint) -> Result<()> {
        let recorded = match before {
            SyncPoint::Stream(stream) => Some(event.record(self.driver, stream)),
            SyncPoint::AllStreams => self.driver.record_context(self.context, event.handle()),
            SyncPoint::Complete => return Ok(()),
        };
        match recorded {
            Some(done) => done?,
            // An old driver cannot record a context: the host waits.
            None => return self.driver.synchronise_context(),
        }
        match after {
            SyncPoint::Stream(stream) => self.driver.stream_wait(stream, event.handle(), 0),
            SyncPoint::AllStreams => match self.driver.wait_context(self.context, event.handle()) {
                Some(done) => done,
                None => self.driver.event_synchronise(event.handle()),
            },
            SyncPoint::Complete => Ok(()),
        }
    }

    /// [`Gpu::is_done`] while another stream is captured: the driver allows the query in relaxed capture mode.
    fn is_done_during_capture(&self, point: SyncPoint) -> Result<bool> {
        let _relaxed = self.relax_capture_mode()?;
        self.is_done(point)
    }

    /// Whether a sync point is a stream that is being captured into a graph.
    ///
    /// # Errors
    /// When the device fails.
    pub fn is_captured(&self, point: SyncPoint) -> Result<bool> {
        let SyncPoint::Stream(stream) = point else { return Ok(false) };
        let _entered = self.enter()?;
        self.driver.is_stream_captured(stream)
    }

    /// Waits on the host until the work queued at a sync point is complete.
    ///
    /// # Errors
    /// When the device fails, or a kernel has.
    pub fn wait(&self, point: SyncPoint) -> Result<()> {
        let _entered = self.enter()?;
        match point {
            SyncPoint::Stream(stream) => self.driver.stream_synchronise(stream),
            SyncPoint::AllStreams => self.driver.synchronise_context(),
            SyncPoint::Complete => Ok(()),
        }
    }

    /// Waits on the host until the work queued on a stream until now is complete. Other threads may queue more.
    ///
    /// # Errors
    /// When the device fails, or a kernel has.
    pub fn wait_for_queued(&self, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        let event = self.events.take(self.driver)?;
        let waited =
            event.record(self.driver, stream).and_then(|()| self.driver.event_synchronise(event.handle()));
        self.events.put([event]);
        waited
    }

    /// Waits until all work that this process has queued on the GPU is complete or has failed. Returns false if that
    /// cannot be known because a stream is being captured. In the child of a fork, or without a driver, no work is left.
    pub fn settle(&self) -> bool {
        match (self.enter(), Driver::get()) {
            (Ok(_entered), Ok(driver)) => driver.settle_context(),
            _ => true,
        }
    }
}
