//! The streams and the GPU memory of the uploads of one epoch of a feed.
//!
//! Uploads on a stream of the consumer would wait for the steps that the consumer has queued there. An epoch therefore has blocks
//! with streams of their own, which the frameworks share. The streams by batch number are for memory that a framework allocates
//! because a block could not be allocated, and for batches that are in GPU memory already.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tensorferry_core::Result;
use tensorferry_cuda::{Gpu, Stream, StreamMemory};

/// Batches that are not in the queue, and whose memory is in use: that of the consumer, and the one before it, whose work may not
/// be done.
const CONSUMER_BATCHES: usize = 2;

/// The streams of an epoch, also for a long queue.
const MAX_STREAMS: usize = 16;

/// The memory of each GPU that an epoch has used. It can be closed while the epoch's thread waits for the loader.
pub(crate) struct EpochMemory {
    prefetch: usize,
    batch_number: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    by_gpu: Vec<Arc<StreamMemory>>,
}

impl EpochMemory {
    /// For a queue of `prefetch` batches.
    pub(crate) fn new(prefetch: usize) -> Self {
        Self { prefetch, batch_number: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// Begins the next batch, which uses the next stream. Returns its number, from 0 on.
    pub(crate) fn begin_batch(&self) -> usize {
        self.batch_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The memory of a GPU.
    pub(crate) fn on(&self, gpu: &'static Gpu) -> Result<Arc<StreamMemory>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = state.by_gpu.iter().find(|memory| memory.gpu().index() == gpu.index()) {
            return Ok(Arc::clone(memory));
        }
        let count = self.prefetch.saturating_add(CONSUMER_BATCHES).min(MAX_STREAMS);
        let memory = StreamMemory::new(gpu, count)?;
        if state.is_closed {
            memory.close();
        }
        state.by_gpu.push(Arc::clone(&memory));
        Ok(memory)
    }

    /// The stream of this batch on a GPU.
    pub(crate) fn stream(&self, gpu: &'static Gpu) -> Result<Stream> {
        Ok(self.on(gpu)?.stream(self.batch_number.load(Ordering::Relaxed)))
    }

    /// Frees the idle memory, and from now on all memory that is released.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        state.by_gpu.iter().for_each(|memory| memory.close());
    }
}
