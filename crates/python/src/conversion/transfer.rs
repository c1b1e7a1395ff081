//! Bytes on their way: what is left of a trip when all that needs the interpreter beforehand is done.
//!
//! A trip that moves bytes to or from a GPU begins on the caller's thread, which knows the current streams; then bytes move,
//! on any thread and without the interpreter; then the result is wrapped. [`drive`] does the rest here and now, [`job`]
//! elsewhere and later.
//!
//! [`job`]: crate::api::to_async

use crate::conversion::progress::Progress;
use crate::errors::{Failure, Result};
use crate::interpreter::owner;
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Error, ErrorKind};
use tensorferry_cuda::TransferControl;

/// Moves the bytes; a block comes back where the result is to be made of one.
type Work = Box<dyn FnOnce(&TransferControl) -> tensorferry_core::Result<Option<HostBlock>> + Send>;
/// Makes the result.
type Finish = Box<dyn FnOnce(Python<'_>, Option<HostBlock>) -> Result<Py<PyAny>> + Send>;

/// The rest of a trip.
pub(crate) struct Moving {
    /// Bytes that will move.
    pub(crate) total: usize,
    pub(crate) work: Work,
    pub(crate) finish: Finish,
}

/// How far a trip came.
pub(crate) enum Begun<'py> {
    /// To its end.
    Done(Bound<'py, PyAny>),
    /// To where bytes have to move.
    Moving(Moving),
}

/// Bytes from which a transfer is watched: it lasts long enough to be interrupted.
const LONG: usize = 512 << 20;
/// How often somebody looks.
const LOOK: Duration = Duration::from_millis(50);

/// Does the rest, and shows how far it is to whoever asked.
pub(crate) fn drive<'py>(
    py: Python<'py>,
    moving: Moving,
    progress: Option<&Progress>,
) -> Result<Bound<'py, PyAny>> {
    let Moving { total, work, finish } = moving;
    let block = if total < LONG && progress.is_none() {
        py.detach(|| work(&TransferControl::default()))?
    } else {
        watched(py, total, work, progress)?
    };
    Ok(finish(py, block)?.into_bound(py))
}

/// What a thread leaves for another.
struct Place {
    result: Mutex<Option<tensorferry_core::Result<Option<HostBlock>>>>,
    left: Condvar,
    watch: TransferControl,
}

/// Does the work on another thread, while this one hears signals and shows the progress.
fn watched(
    py: Python<'_>,
    total: usize,
    work: Work,
    progress: Option<&Progress>,
) -> Result<Option<HostBlock>> {
    let place =
        Arc::new(Place { result: Mutex::new(None), left: Condvar::new(), watch: TransferControl::default() });
    let there = Arc::clone(&place);
    let started = std::thread::Builder::new().name("tensorferry".into()).spawn(move || {
        let result = work(&there.watch);
        *there.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        there.left.notify_all();
    });
    let thread = started.map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("the system has no thread for a transfer: {error}"))
            .with_advice("end some threads, or raise the limit of processes")
    })?;
    let begin = Instant::now();
    let mut stopped: Option<Failure> = None;
    let result = loop {
        let look = || {
            let result = place.result.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut result, _) = place
                .left
                .wait_timeout_while(result, LOOK, |result| result.is_none())
                .unwrap_or_else(PoisonError::into_inner);
            // A thread that panicked leaves nothing.
            result.take().or_else(|| thread.is_finished().then(lost))
        };
        if let Some(result) = py.detach(look) {
            break result;
        }
        // Whoever stops it hears of it when nothing is under way any more.
        let shown =
            || progress.map_or(Ok(()), |progress| progress.show(py, place.watch.bytes_moved(), total, begin));
        if stopped.is_none()
            && let Err(error) = py.check_signals().and_then(|()| shown())
        {
            place.watch.cancel();
            stopped = Some(error.into());
        }
    };
    let _ = py.detach(|| thread.join());
    // What the thread held, the source above all, goes before the caller has its result.
    owner::drop_deferred();
    if let Some(failure) = stopped {
        progress.map_or(Ok(()), |progress| progress.end(py, None, begin))?;
        return Err(failure);
    }
    let ended = result.is_ok().then_some(total);
    progress.map_or(Ok(()), |progress| progress.end(py, ended, begin))?;
    Ok(result?)
}

fn lost() -> tensorferry_core::Result<Option<HostBlock>> {
    Err(Error::new(ErrorKind::DeviceFailed, "the thread of a transfer was lost")
        .with_advice("please report this"))
}
