//! Jobs: conversions in two steps, whose second step can run on another thread.
//!
//! The steps that depend on the caller's thread (current streams, allocators of the frameworks) run before the job exists. Then a
//! thread moves the bytes without the GIL, wraps the results, and passes them to the caller's `ferry.Job`, a
//! `concurrent.futures.Future`.

use crate::api::async_transfer::{Transfer, TransferState};
use crate::conversion::object_kinds::RecognisedObject;
use crate::conversion::request::ConversionRequest;
use crate::conversion::sharded;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::Result;
use crate::interpreter::guard::{self, InterpreterGuard};
use crate::interpreter::once::interned;
use crate::interpreter::owner::{self, Owner};
use crate::reports::{TensorReport, Ties, trace};
use crate::trees::path::Path;
use crate::trees::traverse;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, Tensor, fallible};
use tensorferry_cuda::TransferControl;

/// One tensor of a job.
pub(crate) struct JobTensor {
    /// Kept alive, because the results of a tree are found by the identity of their source.
    pub(crate) source: Py<PyAny>,
    pub(crate) conversion: JobConversion,
    pub(crate) reports: Vec<TensorReport>,
}

pub(crate) enum JobConversion {
    Done(Py<PyAny>),
    Pending(PendingTransfer),
}

impl JobConversion {
    fn pending(&self) -> Option<&PendingTransfer> {
        if let Self::Pending(pending) = self { Some(pending) } else { None }
    }
}

impl From<Started<'_>> for JobConversion {
    fn from(started: Started<'_>) -> Self {
        match started {
            Started::Done(result) => Self::Done(result.unbind()),
            Started::Transfer(pending) => Self::Pending(pending),
        }
    }
}

/// Converts a tensor that was added to its tree after the start.
pub(crate) trait LateConversion: Send {
    fn convert<'py>(
        &self,
        leaf: RecognisedObject<'_, 'py>,
        path: &Path<'py, '_>,
    ) -> Result<Bound<'py, PyAny>>;
}

impl LateConversion for ConversionRequest {
    fn convert<'py>(
        &self,
        leaf: RecognisedObject<'_, 'py>,
        _path: &Path<'py, '_>,
    ) -> Result<Bound<'py, PyAny>> {
        sharded::convert_object(leaf, self)
    }
}

/// The tree around the tensors of a job.
pub(crate) struct JobTree {
    pub(crate) object: Py<PyAny>,
    /// Whether an object that appears twice has two results.
    pub(crate) visits_each: bool,
    pub(crate) late_conversion: Box<dyn LateConversion>,
}

/// The conversions of a job.
pub(crate) struct JobWork {
    pub(crate) tensors: Vec<JobTensor>,
    /// `None` for a single tensor.
    pub(crate) tree: Option<JobTree>,
    /// The traces that were open at the start.
    traces: Option<Py<PyTuple>>,
    ties: Ties,
    started_at: Instant,
}

/// The thread of a job panicked.
fn thread_failed() -> Error {
    Error::new(ErrorKind::DeviceFailed, "the thread of a job ended without a result")
        .with_advice("please report this")
}

/// A job whose bytes have not begun to move.
pub(crate) struct PreparedJob {
    job: Py<PyAny>,
    work: JobWork,
    state: Arc<TransferState>,
}

/// Makes the `ferry.Job` of some work. A job without bytes to move is done at once; otherwise the caller has to run it.
pub(crate) fn prepare_job(
    py: Python<'_>,
    work: JobWork,
    control: TransferControl,
) -> Result<(Bound<'_, PyAny>, Option<PreparedJob>)> {
    let pending = || work.tensors.iter().filter_map(|tensor| tensor.conversion.pending());
    let state = TransferState::new(pending().map(|pending| pending.total).sum(), control);
    let is_done = pending().next().is_none();
    let class = py.import(interned!(py, "tensorferry.jobs"))?.getattr(interned!(py, "Job"))?;
    let job = class.call1((Transfer(Arc::clone(&state)),))?;
    if is_done {
        deliver(&job, end(py, &state, work.finish(py, Vec::new())))?;
        state.set_delivered();
        return Ok((job, None));
    }
    state.register();
    let prepared = PreparedJob { job: job.clone().unbind(), work, state };
    Ok((job, Some(prepared)))
}

impl PreparedJob {
    /// Runs the job on a thread of its own.
    pub(crate) fn start_thread(mut self) -> Result<()> {
        let run = move || {
            let transferred = self.transfer();
            let Some(guard) = InterpreterGuard::get() else {
                // Python objects cannot be released once the interpreter exits; the system frees their memory.
                std::mem::forget((self, transferred));
                return;
            };
            let state = Arc::clone(&self.state);
            guard.attach(|py| self.complete(py, transferred));
            state.set_delivered();
        };
        std::thread::Builder::new().name("tensorferry".into()).spawn(run).map_err(|error| {
            Error::new(ErrorKind::OutOfMemory, format!("the system cannot start a thread for a job: {error}"))
                .with_advice("end some threads, or raise the limit on processes")
        })?;
        Ok(())
    }

    /// Runs the job on this thread.
    pub(crate) fn run(mut self, py: Python<'_>) {
        let transferred = py.detach(|| self.transfer());
        let state = Arc::clone(&self.state);
        self.complete(py, transferred);
        state.set_delivered();
    }

    /// Moves the bytes, without the GIL.
    fn transfer(&mut self) -> Vec<TransferResult> {
        let mut transferred = Vec::new();
        for tensor in &mut self.work.tensors {
            if let JobConversion::Pending(pending) = &mut tensor.conversion {
                let no_work: Box<dyn FnOnce(&TransferControl) -> TransferResult + Send> =
                    Box::new(|_| Ok(None));
                let work = std::mem::replace(&mut pending.work, no_work);
                let result = catch_unwind(AssertUnwindSafe(|| work(&self.state.control)));
                let result = result.unwrap_or_else(|_| Err(thread_failed()));
                let failed = result.is_err();
                transferred.push(result);
                if failed {
                    break;
                }
            }
        }
        transferred
    }

    /// Wraps the results and passes them to the `ferry.Job`.
    fn complete(self, py: Python<'_>, transferred: Vec<TransferResult>) {
        let Self { job, work, state } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| work.finish(py, transferred)));
        // The sources that this thread held are released before the job has its result.
        owner::drop_deferred(py);
        let outcome = end(py, &state, outcome.unwrap_or_else(|_| Err(thread_failed().into())));
        let job = job.into_bound(py);
        // Callbacks are user code.
        if let Err(error) = guard::as_python_code(|| deliver(&job, outcome)) {
            error.write_unraisable(py, Some(&job));
        }
    }
}

/// The result of the transfer, whose trips are recorded now: not before, because it may have been cancelled.
fn end(py: Python<'_>, state: &TransferState, outcome: Result<Finished>) -> Result<Py<PyAny>> {
    let Finished { result, traces, trips, note } = state.end(outcome)?;
    if let Some(traces) = traces {
        for (report, elapsed) in trips {
            trace::record_in(py, traces.bind(py), report, elapsed)?;
        }
        note.map_or(Ok(()), |note| trace::add_note_in(traces.bind(py), &note))?;
    }
    Ok(result)
}

/// Passes the outcome to the `ferry.Job`, which wakes the threads that wait for it and runs its callbacks.
fn deliver(job: &Bound<'_, PyAny>, outcome: Result<Py<PyAny>>) -> PyResult<()> {
    let py = job.py();
    let (result, error) = match outcome {
        Ok(result) => (result, None),
        Err(failure) => (py.None(), Some(PyErr::from(failure).into_value(py))),
    };
    job.call_method1(interned!(py, "_finish"), (result, error)).map(|_| ())
}

/// The result of a job, and what traces record of it.
struct Finished {
    result: Py<PyAny>,
    /// As in [`JobWork`].
    traces: Option<Py<PyTuple>>,
    trips: Vec<(TensorReport, Duration)>,
    note: Option<String>,
}

type TransferResult = tensorferry_core::Result<Option<Tensor<Owner>>>;

impl JobWork {
    /// The work of a job that starts now. The traces that are open record it.
    pub(crate) fn new(py: Python<'_>) -> Result<Self> {
        let traces = if trace::is_tracing() { Some(trace::open_lists(py)?.unbind()) } else { None };
        Ok(Self {
            tensors: Vec::new(),
            tree: None,
            traces,
            ties: Ties::default(),
            started_at: Instant::now(),
        })
    }

    /// Adds a tensor of the tree.
    pub(crate) fn add(&mut self, tensor: JobTensor, path: &Path<'_, '_>) -> Result<()> {
        for report in &tensor.reports {
            self.ties.add(report.copied, || path.format())?;
        }
        Ok(fallible::try_push(&mut self.tensors, tensor)?)
    }

    /// Whether conversions are recorded.
    pub(crate) fn is_traced(&self) -> bool {
        self.traces.is_some()
    }

    /// Wraps the results, and rebuilds the tree around them.
    fn finish(self, py: Python<'_>, transferred: Vec<TransferResult>) -> Result<Finished> {
        let Self { tensors, tree, traces, ties, started_at } = self;
        let mut transferred = transferred.into_iter();
        let (mut results, mut trips) = (Vec::new(), Vec::new());
        fallible::try_reserve(&mut results, tensors.len())?;
        for JobTensor { source, conversion, reports } in tensors {
            let result = match conversion {
                JobConversion::Done(result) => result,
                JobConversion::Pending(pending) => {
                    let moved = transferred.next().unwrap_or(Ok(None))?;
                    (pending.finish)(py, moved)?
                }
            };
            for report in reports {
                fallible::try_push(&mut trips, (report, started_at.elapsed()))?;
            }
            results.push((source, result));
        }
        let finished = |result| Finished { result, traces, trips, note: ties.note() };
        let Some(JobTree { object, visits_each, late_conversion }) = tree else {
            return results.pop().map(|(_, result)| finished(result)).ok_or_else(|| thread_failed().into());
        };
        // The tree is visited in the order of the start, unless somebody has changed it since.
        let mut position = 0;
        let rebuilt = traverse::walk_any(object.bind(py), visits_each, &mut |leaf, path| {
            let is_source = |(source, _): &(Py<PyAny>, Py<PyAny>)| source.is(leaf.object());
            let found = match results.get(position) {
                Some(result) if is_source(result) => Some(position),
                _ => results.iter().position(is_source),
            };
            match found {
                Some(index) => {
                    position = index + 1;
                    Ok(results[index].1.bind(py).clone())
                }
                None => late_conversion.convert(leaf, path),
            }
        })?;
        Ok(finished(rebuilt.unbind()))
    }
}
