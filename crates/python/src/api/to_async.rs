//! `to_async`: a conversion whose bytes move on another thread.
//!
//! The steps that depend on the caller's thread (current streams, allocators of the frameworks) run before `to_async`
//! returns. Then a thread moves the bytes without the GIL, wraps the results, and passes them to the caller's `ferry.Job`, a
//! `concurrent.futures.Future`.

use crate::api::async_transfer::{Transfer, TransferState};
use crate::api::options::{self, ParsedKeywords};
use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::convert;
use crate::conversion::fill_out;
use crate::conversion::object_kinds::{Recognised, RecognisedObject};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::{Failure, Result, fail};
use crate::frameworks;
use crate::interpreter::guard::{self, InterpreterGuard};
use crate::interpreter::once::interned;
use crate::interpreter::owner::{self, Owner};
use crate::reports::TensorReport;
use crate::reports::trace;
use crate::sparse;
use crate::trees::traverse;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tensorferry_core::{Error, ErrorKind, Tensor, fallible};
use tensorferry_cuda::TransferControl;

/// One tensor of a job.
struct JobTensor {
    /// Kept alive, because the results of a tree are found by the identity of their source.
    source: Py<PyAny>,
    conversion: JobConversion,
    report: Option<TensorReport>,
}

enum JobConversion {
    Done(Py<PyAny>),
    Pending(PendingTransfer),
}

impl From<Started<'_>> for JobConversion {
    fn from(started: Started<'_>) -> Self {
        match started {
            Started::Done(result) => Self::Done(result.unbind()),
            Started::Transfer(pending) => Self::Pending(pending),
        }
    }
}

/// The work of a job's thread.
struct JobWork {
    tensors: Vec<JobTensor>,
    /// The tree that holds the tensors, and its request. `None` for a single tensor.
    tree: Option<(Py<PyAny>, ConversionRequest)>,
    /// The traces that were open at the start.
    traces: Option<Py<PyTuple>>,
    started_at: Instant,
}

/// Starts a conversion and returns at once; bytes move on another thread.
///
/// A shared tensor is available at once. The source of a copy must not be written until the job is done. The copy waits for
/// work that was queued on the source's stream before the call.
///
/// Args:
///     x: A dense tensor or a tree of them, as for `to`.
///     framework: The framework of the result, by name or as its module.
///     device, dtype, copy, writable, stream, budget, out: As for `to`.
///
/// Returns:
///     A Job, which is a concurrent.futures.Future and can be awaited.
///
/// Raises:
///     FerryError: What `to` would raise before bytes move. Later errors are raised by `Job.result`.
///
/// Example:
///     >>> job = ferry.to_async(np.arange(3), "torch", copy=True)
///     >>> job.result().tolist()
///     [0, 1, 2]
#[pyfunction]
#[pyo3(
    signature = (x, framework, **options),
    text_signature = "(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, \
                      budget=None, out=None)"
)]
pub(crate) fn to_async<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    if sparse::is_sparse(x)? {
        return Err(sparse_error());
    }
    let target = frameworks::target(framework)?;
    let keywords = match options {
        None => ParsedKeywords::none(),
        Some(given) => options::parse("to_async", given, true)?,
    };
    if keywords.progress.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "to_async() does not accept progress=",
            "read job.bytes_moved and job.bytes_total",
        ));
    }
    let ParsedKeywords { options, stream, out, .. } = keywords;
    let request = ConversionRequest { options, stream, ..ConversionRequest::new(target) };
    let (started_at, traced) = (Instant::now(), trace::is_tracing());
    let traces = if traced { Some(trace::open_lists(py)?.unbind()) } else { None };
    let resolved = arrow::read::resolve(x, Purpose::Conversion)?;
    let x = resolved.as_ref().unwrap_or(x);
    let recognised = recognise(x)?;
    let container = match out {
        None => traverse::container_of(recognised)?,
        Some(_) => None,
    };
    let work = match (container, out) {
        (Some(container), _) => {
            let mut tensors = Vec::new();
            let mut has_columns = false;
            let rebuilt = traverse::walk(x, container, true, &mut |leaf, _| {
                has_columns |= leaf.kind() == Recognised::ArrowColumn;
                fallible::try_push(&mut tensors, start_tensor(leaf, &request, traced)?)?;
                Ok(leaf.object().clone())
            })?;
            // A table in the tree is read once: the rebuilt tree has its columns.
            let tree = if has_columns { rebuilt } else { x.clone() };
            JobWork { tensors, tree: Some((tree.unbind(), request)), traces, started_at }
        }
        (None, Some(out)) => {
            if matches!(recognised.kind(), Recognised::Container(_)) {
                let hint = "fill one tensor at a time, or leave out out=";
                return Err(fail(
                    ErrorKind::InvalidArgument,
                    "out= accepts one tensor, and x is a tree",
                    hint,
                ));
            }
            let (started, report) = fill_out::start(x, &out, &request, traced, true)?;
            let tensor = JobTensor { source: x.clone().unbind(), conversion: started.into(), report };
            JobWork { tensors: vec![tensor], tree: None, traces, started_at }
        }
        (None, None) => {
            let tensors = vec![start_tensor(recognised, &request, traced)?];
            JobWork { tensors, tree: None, traces, started_at }
        }
    };
    start_job(py, work)
}

fn sparse_error() -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        "to_async() does not accept sparse tensors",
        "use ferry.to, or ferry.sparse.to for a format",
    )
}

/// The thread of a job panicked.
fn thread_failed() -> Error {
    Error::new(ErrorKind::DeviceFailed, "the thread of a job ended without a result")
        .with_advice("please report this")
}

/// Starts the conversion of one tensor.
fn start_tensor(
    recognised: RecognisedObject<'_, '_>,
    request: &ConversionRequest,
    traced: bool,
) -> Result<JobTensor> {
    let object = recognised.object();
    let (started, report) = match convert::start_object(recognised, request, traced) {
        Err(_) if sparse::is_sparse(object)? => return Err(sparse_error()),
        started => started?,
    };
    Ok(JobTensor { source: object.clone().unbind(), conversion: started.into(), report })
}

/// Starts the thread of a job, or finishes the job at once if no bytes have to move.
fn start_job(py: Python<'_>, work: JobWork) -> Result<Bound<'_, PyAny>> {
    let total = work
        .tensors
        .iter()
        .map(
            |tensor| if let JobConversion::Pending(pending) = &tensor.conversion { pending.total } else { 0 },
        )
        .sum();
    let needs_thread =
        work.tensors.iter().any(|tensor| matches!(tensor.conversion, JobConversion::Pending(_)));
    let state = TransferState::new(total);
    let class = py.import(interned!(py, "tensorferry.jobs"))?.getattr(interned!(py, "Job"))?;
    let job = class.call1((Transfer(Arc::clone(&state)),))?;
    if !needs_thread {
        deliver(&job, state.end(work.finish(py, Vec::new())))?;
        state.set_delivered();
        return Ok(job);
    }
    state.register();
    let thread_job = job.clone().unbind();
    let run = move || work.run(state, thread_job);
    std::thread::Builder::new().name("tensorferry".into()).spawn(run).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("the system cannot start a thread for a job: {error}"))
            .with_advice("end some threads, or raise the limit on processes")
    })?;
    Ok(job)
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

type TransferResult = tensorferry_core::Result<Option<Tensor<Owner>>>;

impl JobWork {
    /// Runs on the thread of the job.
    fn run(mut self, state: Arc<TransferState>, job: Py<PyAny>) {
        let mut transferred = Vec::new();
        for tensor in &mut self.tensors {
            if let JobConversion::Pending(pending) = &mut tensor.conversion {
                let no_work: Box<dyn FnOnce(&TransferControl) -> TransferResult + Send> =
                    Box::new(|_| Ok(None));
                let work = std::mem::replace(&mut pending.work, no_work);
                let result = catch_unwind(AssertUnwindSafe(|| work(&state.control)));
                let result = result.unwrap_or_else(|_| Err(thread_failed()));
                let failed = result.is_err();
                transferred.push(result);
                if failed {
                    break;
                }
            }
        }
        let Some(guard) = InterpreterGuard::get() else {
            // Python objects cannot be released once the interpreter exits; the system frees their memory.
            std::mem::forget((self, transferred, job));
            return;
        };
        guard.attach(|py| {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.finish(py, transferred)));
            // The sources that this thread held are released before the job has its result.
            owner::drop_deferred(py);
            let outcome = state.end(outcome.unwrap_or_else(|_| Err(thread_failed().into())));
            let job = job.into_bound(py);
            // Callbacks are user code.
            if let Err(error) = guard::as_python_code(|| deliver(&job, outcome)) {
                error.write_unraisable(py, Some(&job));
            }
        });
        state.set_delivered();
    }

    /// Wraps the results, and rebuilds the tree around them.
    fn finish(self, py: Python<'_>, transferred: Vec<TransferResult>) -> Result<Py<PyAny>> {
        let Self { tensors, tree, traces, started_at } = self;
        let mut transferred = transferred.into_iter();
        let mut results = Vec::new();
        fallible::try_reserve(&mut results, tensors.len())?;
        for JobTensor { source, conversion, report } in tensors {
            let result = match conversion {
                JobConversion::Done(result) => result,
                JobConversion::Pending(pending) => {
                    let moved = transferred.next().unwrap_or(Ok(None))?;
                    (pending.finish)(py, moved)?
                }
            };
            if let (Some(report), Some(traces)) = (report, &traces) {
                trace::record_in(py, traces.bind(py), report, started_at.elapsed())?;
            }
            results.push((source, result));
        }
        let Some((tree, request)) = tree else {
            return results.pop().map(|(_, result)| result).ok_or_else(|| thread_failed().into());
        };
        let tree = tree.bind(py);
        let Some(container) = traverse::container_of(recognise(tree)?)? else {
            return Ok(tree.clone().unbind());
        };
        let rebuilt = traverse::walk_allowing_no_tensor(tree, container, true, &mut |leaf, _| {
            match results.iter().find(|(source, _)| source.is(leaf.object())) {
                Some((_, result)) => Ok(result.bind(py).clone()),
                // The leaf was added to the tree after the start.
                None => convert::convert_object(leaf, &request),
            }
        })?;
        Ok(rebuilt.unbind())
    }
}
