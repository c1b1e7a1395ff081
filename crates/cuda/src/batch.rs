//! Several uploads, and one wait for all of them.
//!
//! An upload is there when it is back, on whatever stream somebody looks, as people know it from the frameworks. For a tree of
//! a thousand small tensors that would be a thousand waits; while a [`Batch`] is open on a thread, its small uploads share a
//! [`Stage`] for each GPU, which is waited for when the batch ends.

use crate::gpu::Gpu;
use crate::stage::Stage;
use std::cell::RefCell;
use std::marker::PhantomData;
use tensorferry_core::Result;

thread_local! {
    /// The stages of the batch that is open.
    static OPEN: RefCell<Option<Vec<Stage>>> = const { RefCell::new(None) };
}

/// A time in which this thread's small uploads are not waited for one by one.
#[derive(Debug)]
#[must_use]
pub struct Batch {
    /// Whether another was open already, which does the waiting.
    is_inner: bool,
    /// Belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Batch {
    /// Opens one. Streams that are used while it is open must be alive when it ends.
    pub fn begin() -> Self {
        let is_inner = OPEN.with_borrow_mut(|open| {
            let is_inner = open.is_some();
            open.get_or_insert_default();
            is_inner
        });
        Self { is_inner, thread: PhantomData }
    }

    /// Whether there is nothing to wait for, or somebody else waits.
    pub fn is_settled(&self) -> bool {
        self.is_inner
            || OPEN
                .with_borrow(|open| open.as_ref().is_none_or(|stages| stages.iter().all(Stage::is_settled)))
    }

    /// Waits for what was uploaded.
    ///
    /// # Errors
    /// When a device fails.
    pub fn finish(self) -> Result<()> {
        self.end()
    }

    fn end(&self) -> Result<()> {
        if self.is_inner {
            return Ok(());
        }
        let mut stages = OPEN.take().unwrap_or_default();
        stages.iter_mut().map(Stage::settle).fold(Ok(()), Result::and)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // After an error, which somebody else tells; or there is nothing left to do.
        let _ = self.end();
    }
}

/// Whether a batch is open on this thread.
pub(crate) fn is_open() -> bool {
    OPEN.with_borrow(Option::is_some)
}

/// Does something on the stage of the batch that is open, or on one that is settled at once.
///
/// # Errors
/// Of what is done, or when the device fails.
pub(crate) fn on_stage<T>(gpu: &'static Gpu, work: impl FnOnce(&mut Stage) -> Result<T>) -> Result<T> {
    OPEN.with_borrow_mut(|open| {
        let Some(stages) = open else {
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
