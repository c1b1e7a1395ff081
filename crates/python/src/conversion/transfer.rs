//! Transfers: the part of a conversion that moves bytes without the interpreter.
//!
//! A conversion to or from a GPU starts on the caller's thread, which knows the current streams. Then bytes move on any
//! thread, without the GIL, and the result is wrapped. [`run`] does both for the caller; `to_async` uses another thread.

use crate::conversion::progress::Progress;
use crate::errors::{Failure, Result};
use crate::interpreter::owner::{self, Owner};
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, Tensor};
use tensorferry_cuda::{Stream, TransferControl};

/// Moves the bytes. Returns the host memory that the result needs, if any.
type Work = Box<dyn FnOnce(&TransferControl) -> tensorferry_core::Result<Option<Tensor<Owner>>> + Send>;
/// Wraps the result.
type Finish = Box<dyn FnOnce(Python<'_>, Option<Tensor<Owner>>) -> Result<Py<PyAny>> + Send>;

/// A transfer that has not run yet.
pub(crate) struct PendingTransfer {
    /// The number of bytes that will move.
    pub(crate) total: usize,
    /// The address of a block of an epoch's memory that is filled, and its stream.
    pub(crate) block: Option<(usize, Stream)>,
    pub(crate) work: Work,
    pub(crate) finish: Finish,
}

/// A conversion whose part with the interpreter is done.
pub(crate) enum Started<'py> {
    /// The result exists.
    Done(Bound<'py, PyAny>),
    /// Bytes still have to move.
    Transfer(PendingTransfer),
}

/// Transfers of at least this many bytes last long enough to be interrupted by a signal.
const INTERRUPTIBLE_BYTES: usize = 512 << 20;
/// How often the caller's thread checks for signals and reports progress.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a transfer and reports its progress.
pub(crate) fn run<'py>(
    py: Python<'py>,
    pending: PendingTransfer,
    progress: Option<&Progress>,
) -> Result<Bound<'py, PyAny>> {
    let PendingTransfer { total, work, finish, .. } = pending;
    let moved = if total < INTERRUPTIBLE_BYTES && progress.is_none() {
        py.detach(|| work(&TransferControl::default()))?
    } else {
        run_interruptibly(py, total, work, progress)?
    };
    Ok(finish(py, moved)?.into_bound(py))
}

/// The result of the worker thread, and the control of its transfer.
struct SharedResult {
    result: Mutex<Option<tensorferry_core::Result<Option<Tensor<Owner>>>>>,
    finished: Condvar,
    control: TransferControl,
}

/// Runs the work on another thread, while this one handles signals and reports progress.
fn run_interruptibly(
    py: Python<'_>,
    total: usize,
    work: Work,
    progress: Option<&Progress>,
) -> Result<Option<Tensor<Owner>>> {
    let shared = Arc::new(SharedResult {
        result: Mutex::new(None),
        finished: Condvar::new(),
        control: TransferControl::default(),
    });
    let worker = Arc::clone(&shared);
    let started = std::thread::Builder::new().name("tensorferry".into()).spawn(move || {
        let result = work(&worker.control);
        *worker.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        worker.finished.notify_all();
    });
    let thread = started.map_err(|error| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("the system cannot start a thread for a transfer: {error}"),
        )
        .with_advice("end some threads, or raise the limit on processes")
    })?;
    let started_at = Instant::now();
    let mut stopped: Option<Failure> = None;
    let result = loop {
        let poll = || {
            let result = shared.result.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut result, _) = shared
                .finished
                .wait_timeout_while(result, POLL_INTERVAL, |result| result.is_none())
                .unwrap_or_else(PoisonError::into_inner);
            // A thread that panicked stores no result.
            result.take().or_else(|| thread.is_finished().then(no_result))
        };
        if let Some(result) = py.detach(poll) {
            break result;
        }
        // The error is raised after the transfer has ended, so that no byte moves afterwards.
        let shown = || {
            progress
                .map_or(Ok(()), |progress| progress.show(py, shared.control.bytes_moved(), total, started_at))
        };
        if stopped.is_none()
            && let Err(error) = py.check_signals().and_then(|()| shown())
        {
            shared.control.cancel();
            stopped = Some(error.into());
        }
    };
    let _ = py.detach(|| thread.join());
    // The source and everything else that the thread held is released before the caller gets the result.
    owner::drop_deferred(py);
    if let Some(failure) = stopped {
        progress.map_or(Ok(()), |progress| progress.end(py, None, started_at))?;
        return Err(failure);
    }
    let ended = result.is_ok().then_some(total);
    progress.map_or(Ok(()), |progress| progress.end(py, ended, started_at))?;
    Ok(result?)
}

/// The error of a transfer that ended without its result.
pub(crate) fn no_result<T>() -> tensorferry_core::Result<T> {
    Err(Error::new(ErrorKind::DeviceFailed, "the thread of a transfer ended without a result")
        .with_advice("please report this"))
}
