//! Memory of one GPU that the batches of an epoch use, and the streams that fill it.
//!
//! The memory pool of the driver returns its memory to the system whenever the host waits for a stream, and mapping it again takes
//! as long as a transfer of some MiB. Blocks that die are therefore kept for the next ones of about their size.
//!
//! Each block has a stream of its own. When a block dies, its stream waits for the work that used the block, and the next upload
//! into the block waits for no other work. Memory that a framework allocates belongs to one of a few streams, which the batches
//! use in turn for the same reason.

use crate::gpu::Gpu;
use crate::memory::DeviceBlock;
use crate::stream::{Stream, SyncPoint};
use crate::stream_pool::LeasedStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::Result;

/// A block is at most this many times as large as what is stored in it.
const MAX_SIZE_RATIO: usize = 2;
/// From this many idle blocks on, an upload waits for the oldest of them instead of allocating another one.
const IDLE_BLOCKS_TO_WAIT_FOR: usize = 2;
/// Idle blocks beyond this number are freed, the oldest first.
const MAX_IDLE_BLOCKS: usize = 64;

/// Streams for memory of frameworks, and idle blocks.
pub struct StreamMemory {
    gpu: &'static Gpu,
    streams: Vec<LeasedStream>,
    /// The oldest first; `None` once the memory is closed.
    idle: Mutex<Option<Vec<OrderedBlock>>>,
}

/// A block, and the stream in whose order it is used and freed.
struct OrderedBlock {
    block: DeviceBlock,
    stream: LeasedStream,
}

/// A block of a [`StreamMemory`], to which it returns when it is dropped. By then, work on other streams that uses the block must
/// be ordered before further work on the stream of the block.
pub struct StreamBlock {
    inner: Option<OrderedBlock>,
    memory: Weak<StreamMemory>,
}

impl StreamMemory {
    /// The memory of one epoch on a GPU, with this number of streams.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(gpu: &'static Gpu, stream_count: usize) -> Result<Arc<Self>> {
        let streams = (0..stream_count.max(1)).map(|_| gpu.lease_stream()).collect::<Result<_>>()?;
        Ok(Arc::new(Self { gpu, streams, idle: Mutex::new(Some(Vec::new())) }))
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The stream for memory that a framework allocates for a batch. It is never destroyed.
    pub fn stream(&self, batch_number: usize) -> Stream {
        self.streams[batch_number % self.streams.len()].stream()
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<OrderedBlock>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes`.
    ///
    /// # Errors
    /// As [`DeviceBlock::new`].
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<StreamBlock> {
        let inner = match self.take_idle(bytes)? {
            Some(found) => found,
            None => {
                let stream = self.gpu.lease_stream()?;
                OrderedBlock { block: DeviceBlock::new(self.gpu, bytes, stream.stream())?, stream }
            }
        };
        Ok(StreamBlock { inner: Some(inner), memory: Arc::downgrade(self) })
    }

    /// An idle block whose users are done; or, if there are several idle ones, the oldest.
    fn take_idle(&self, bytes: usize) -> Result<Option<OrderedBlock>> {
        let sizes = bytes..=bytes.saturating_mul(MAX_SIZE_RATIO);
        let mut idle = self.idle();
        let Some(idle) = idle.as_mut() else { return Ok(None) };
        let fitting: Vec<usize> =
            (0..idle.len()).filter(|&index| sizes.contains(&idle[index].block.bytes())).collect();
        for &index in &fitting {
            if self.gpu.is_done(SyncPoint::Stream(idle[index].stream.stream()))? {
                return Ok(Some(idle.remove(index)));
            }
        }
        let oldest = fitting.first().filter(|_| fitting.len() >= IDLE_BLOCKS_TO_WAIT_FOR);
        Ok(oldest.map(|&index| idle.remove(index)))
    }

    /// Frees the idle blocks, and from now on every block that is dropped.
    pub fn close(&self) {
        let idle = self.idle().take();
        drop(idle);
    }
}

impl StreamBlock {
    /// Its first byte.
    pub fn data(&self) -> *mut u8 {
        self.inner.as_ref().map_or(std::ptr::null_mut(), |inner| inner.block.data())
    }

    /// The stream that fills it. It is never destroyed.
    pub fn stream(&self) -> Stream {
        self.inner.as_ref().map_or(Stream::LEGACY, |inner| inner.stream.stream())
    }
}

impl Drop for StreamBlock {
    fn drop(&mut self) {
        let (Some(block), Some(memory)) = (self.inner.take(), self.memory.upgrade()) else { return };
        let mut freed = Some(block);
        if let Some(idle) = memory.idle().as_mut()
            && let Some(block) = freed.take()
        {
            idle.push(block);
            if idle.len() > MAX_IDLE_BLOCKS {
                freed = Some(idle.remove(0));
            }
        }
        // Freed without the lock.
        drop(freed);
    }
}
