//! A pool of streams for transfers.
//!
//! Each transfer has a stream of its own, so that one that waits for its source does not delay another. Streams are
//! reused, because creating one takes longer than a transfer of some MiB.

use crate::driver::Driver;
use crate::stream::Stream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tensorferry_core::Result;

/// Streams of one GPU that no transfer uses.
#[derive(Default)]
pub(crate) struct StreamPool {
    idle: Mutex<Vec<Stream>>,
    /// Streams of failed transfers, which may still have work queued.
    unsettled: Mutex<Vec<Stream>>,
    /// Streams that were leased. The last one comes first, because allocators of frameworks keep memory for each stream.
    returned: Mutex<Vec<Stream>>,
}

/// A stream for one transfer, which returns to the pool when this is dropped.
pub(crate) struct PooledStream {
    pool: &'static StreamPool,
    stream: Stream,
    is_idle: AtomicBool,
}

/// A stream of this crate for many pieces of work of one user. Work may still be queued on it when the next user gets it.
pub(crate) struct LeasedStream {
    pool: &'static StreamPool,
    stream: Stream,
}

impl LeasedStream {
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }
}

impl Drop for LeasedStream {
    fn drop(&mut self) {
        self.pool.returned.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream);
    }
}

impl StreamPool {
    /// The stream that was returned last, or a new one. The caller has entered the context.
    pub(crate) fn lease(&'static self, driver: &Driver) -> Result<LeasedStream> {
        let returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stream = returned.map_or_else(|| create_stream(driver), Ok)?;
        Ok(LeasedStream { pool: self, stream })
    }

    /// An idle stream, or a new one. The caller has entered the context.
    pub(crate) fn take(&'static self, driver: &Driver) -> Result<PooledStream> {
        if let Some(stream) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(PooledStream::new(self, stream));
        }
        let mut unsettled = self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        // A stream whose query fails stays in the list.
        let is_idle = |stream: &Stream| driver.is_stream_idle(*stream).unwrap_or(false);
        if let Some(found) = unsettled.iter().position(is_idle) {
            return Ok(PooledStream::new(self, unsettled.swap_remove(found)));
        }
        drop(unsettled);
        Ok(PooledStream::new(self, create_stream(driver)?))
    }
}

impl PooledStream {
    fn new(pool: &'static StreamPool, stream: Stream) -> Self {
        Self { pool, stream, is_idle: AtomicBool::new(false) }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// States that no work is queued on the stream, so that the next transfer can use it without a query.
    pub(crate) fn set_idle(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
    }
}

impl Drop for PooledStream {
    fn drop(&mut self) {
        let list = if self.is_idle.load(Ordering::Relaxed) { &self.pool.idle } else { &self.pool.unsettled };
        list.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream);
    }
}

/// Creates a stream that is never destroyed. The caller has entered the context.
pub(crate) fn create_stream(driver: &Driver) -> Result<Stream> {
    /// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
    const NON_BLOCKING: u32 = 1;
    driver.create_stream(NON_BLOCKING)
}
