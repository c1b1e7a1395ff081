//! Several uploads, and one wait for all of them.
//!
//! An upload is there when it is back, on whatever stream somebody looks, as people know it from the frameworks. For a tree of
//! a thousand small tensors that would be a thousand waits; while a [`TransferBatch`] is open on a thread, the small uploads that say
//! that they belong to it share a [`Stage`] for each GPU, which is waited for when the batch ends. Others on that thread wait for
//! themselves: they are calls of somebody's code that a tree has come by.

use crate::gpu::Gpu;
use crate::transfer::staging::Stage;
use std::cell::RefCell;
use std::marker::PhantomData;
use tensorferry_core::Result;

thread_local! {
    /// The stages of the batches that are open, the innermost last.
    static OPEN: RefCell<Vec<Vec<Stage>>> = const { RefCell::new(Vec::new()) };
}

/// A time in which some of this thread's small uploads are not waited for one by one.
#[derive(Debug)]
#[must_use]
pub struct TransferBatch {
    /// Which of the thread's it is.
    depth: usize,
    /// Belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl TransferBatch {
    /// Opens one.
    pub fn begin() -> Self {
        let depth = OPEN.with_borrow_mut(|open| {
            open.push(Vec::new());
            open.len()
        });
        Self { depth, thread: PhantomData }
    }

    /// Whether there is nothing to wait for.
    pub fn is_settled(&self) -> bool {
        OPEN.with_borrow(|open| {
            open.get(self.depth - 1).is_none_or(|stages| stages.iter().all(Stage::is_settled))
        })
    }

    /// Waits for what was uploaded.
    ///
    /// # Errors
    /// When a device fails.
    pub fn finish(self) -> Result<()> {
        self.end()
    }

    fn end(&self) -> Result<()> {
        // Those inside have ended, or will never.
        let ended = OPEN.with_borrow_mut(|open| open.split_off((self.depth - 1).min(open.len())));
        ended.into_iter().flatten().map(|mut stage| stage.settle()).fold(Ok(()), Result::and)
    }
}

impl Drop for TransferBatch {
    fn drop(&mut self) {
        // After an error, which somebody else tells; or there is nothing left to do.
        let _ = self.end();
    }
}

/// Does something on the stage of the batch that is open, if it belongs to that, or on one that is settled at once.
///
/// # Errors
/// Of what is done, or when the device fails.
pub(crate) fn on_stage<T>(
    gpu: &'static Gpu,
    batched: bool,
    work: impl FnOnce(&mut Stage) -> Result<T>,
) -> Result<T> {
    OPEN.with_borrow_mut(|open| {
        let Some(stages) = open.last_mut().filter(|_| batched) else {
            let mut stage = Stage::new(gpu);
            let done = work(&mut stage)?;
            return stage.settle().map(|()| done);
        };
        let known = stages.iter().position(|stage| stage.gpu().index() == gpu.index());
        let number = known.unwrap_or_else(|| {
            stages.push(Stage::new(gpu));
            stages.len() - 1
        });
        work(&mut stages[number])
    })
}
