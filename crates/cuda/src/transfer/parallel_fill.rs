//! Filling the chunks of a staged upload on several threads, while the calling thread submits them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// The progress of the chunks, which the threads share.
pub(crate) struct FillProgress {
    next: AtomicUsize,
    is_filled: Vec<AtomicBool>,
    /// Chunks that the caller has submitted.
    submitted: AtomicUsize,
    has_failed: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl FillProgress {
    pub(crate) fn new(chunks: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            is_filled: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            submitted: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    /// The end of the run of filled chunks that starts at `begin`.
    pub(crate) fn filled_from(&self, begin: usize) -> usize {
        begin + self.is_filled[begin..].iter().take_while(|filled| filled.load(Ordering::Acquire)).count()
    }

    /// Records that the chunks before `end` are submitted.
    pub(crate) fn set_submitted(&self, end: usize) {
        self.submitted.store(end, Ordering::Relaxed);
    }

    /// The next chunk to fill; `None` when all are claimed or a thread has failed.
    fn claim(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.is_filled.len() && !self.has_failed.load(Ordering::Relaxed)).then_some(index)
    }

    /// Whether the caller still has chunks to submit.
    fn is_pending(&self) -> bool {
        self.submitted.load(Ordering::Relaxed) < self.is_filled.len()
            && !self.has_failed.load(Ordering::Relaxed)
    }

    fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

/// Fills chunks on the caller and helper threads. The caller alone also runs `submit`, until all chunks are submitted.
pub(crate) fn fill_and_submit(
    threads: usize,
    progress: &FillProgress,
    fill: &(impl Fn(usize) -> Result<()> + Sync),
    submit: &mut (impl FnMut() -> Result<()> + Send),
) -> Result<()> {
    let caller = thread::current().id();
    let submit = Mutex::new(submit);
    workers::run_parallel(threads, || {
        // Only the caller takes the lock.
        let mut submit =
            (thread::current().id() == caller).then(|| submit.lock().unwrap_or_else(PoisonError::into_inner));
        let mut run = || -> Result<()> {
            while let Some(index) = progress.claim() {
                fill(index)?;
                progress.is_filled[index].store(true, Ordering::Release);
                if let Some(submit) = &mut submit {
                    submit()?;
                }
            }
            while let Some(submit) = &mut submit
                && progress.is_pending()
            {
                submit()?;
                // The thread that fills the last chunk may need this core.
                thread::yield_now();
            }
            Ok(())
        };
        let _panic_guard = PanicGuard(progress);
        if let Err(error) = run() {
            progress.fail(error);
        }
    });
    progress.error.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}

/// Stops the fill if its thread panics, so that the caller does not wait for the chunk. The caller sees the panic.
struct PanicGuard<'a>(&'a FillProgress);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Error::new(ErrorKind::DeviceFailed, "a thread of the upload panicked"));
        }
    }
}
