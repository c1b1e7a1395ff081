//! Batches of small uploads that are waited for once.
//!
//! An upload returns when its values are visible on every stream, as users of the frameworks expect. A tree of a thousand
//! small tensors would need a thousand waits. While a [`TransferBatch`] is open on a thread, the small uploads that belong
//! to it share one [`StagingBuffer`] for each GPU, and the batch waits for it at its end. Other uploads of that thread,
//! which user code starts in between, wait for themselves.

use super::staging::StagingBuffer;
use crate::gpu::Gpu;
use std::cell::RefCell;
use std::marker::PhantomData;
use tensorferry_core::Result;

thread_local! {
    /// The staging buffers of the open batches, the innermost batch last.
    static OPEN_BATCHES: RefCell<Vec<Vec<StagingBuffer>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, small uploads of this thread that belong to it are not waited for one by one.
///
/// It stays on its thread, because it waits for the uploads of that thread:
///
/// ```compile_fail,E0277
/// let batch = tensorferry_cuda::TransferBatch::begin();
/// std::thread::spawn(move || batch.finish());
/// ```
#[derive(Debug)]
#[must_use]
pub struct TransferBatch {
    /// Its position among the thread's open batches, from 1.
    depth: usize,
    /// Makes the type stay on its thread.
    thread: PhantomData<*const ()>,
}

impl TransferBatch {
    /// Opens a batch on this thread.
    pub fn begin() -> Self {
        let depth = OPEN_BATCHES.with_borrow_mut(|open| {
            open.push(Vec::new());
            open.len()
        });
        Self { depth, thread: PhantomData }
    }

    /// Whether no upload is to be waited for.
    pub fn is_settled(&self) -> bool {
        OPEN_BATCHES.with_borrow(|open| {
            open.get(self.depth - 1).is_none_or(|buffers| buffers.iter().all(StagingBuffer::is_settled))
        })
    }

    /// Waits for the uploads.
    ///
    /// # Errors
    /// When a device fails.
    pub fn finish(self) -> Result<()> {
        self.end()
    }

    fn end(&self) -> Result<()> {
        // Batches inside this one have ended, or were leaked.
        let ended = OPEN_BATCHES.with_borrow_mut(|open| open.split_off((self.depth - 1).min(open.len())));
        ended.into_iter().flatten().map(|mut buffer| buffer.settle()).fold(Ok(()), Result::and)
    }
}

impl Drop for TransferBatch {
    fn drop(&mut self) {
        // The caller reports an earlier error; after `finish` nothing is left to wait for.
        let _ = self.end();
    }
}

/// Runs `work` with the staging buffer of the open batch, if the upload belongs to it, or else with a new one that is
/// waited for at once.
///
/// # Errors
/// Those of `work`, or when the device fails.
pub(crate) fn with_staging_buffer<T>(
    gpu: &'static Gpu,
    batched: bool,
    work: impl FnOnce(&mut StagingBuffer) -> Result<T>,
) -> Result<T> {
    OPEN_BATCHES.with_borrow_mut(|open| {
        let Some(buffers) = open.last_mut().filter(|_| batched) else {
            let mut buffer = StagingBuffer::new(gpu);
            let done = work(&mut buffer)?;
            return buffer.settle().map(|()| done);
        };
        let known = buffers.iter().position(|buffer| buffer.gpu().index() == gpu.index());
        let index = known.unwrap_or_else(|| {
            buffers.push(StagingBuffer::new(gpu));
            buffers.len() - 1
        });
        work(&mut buffers[index])
    })
}
