//! `to_async`: a transfer whose bytes move while the caller goes on.
//!
//! What depends on the caller's thread (the current streams, the frameworks' allocators) happens before `to_async` returns.
//! Then bytes move on a thread of their own, without the GIL, and the result is made there. The thread hands the result to
//! the caller's `ferry.Job`, a `concurrent.futures.Future` that wraps the [`Transfer`] of this module.

use crate::api::options::{self, Keywords};
use crate::conversion::convert;
use crate::conversion::fill_out;
use crate::conversion::kinds::Recognised;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::{Failure, Result, fail};
use crate::frameworks;
use crate::interpreter::guard::{self, InterpreterGuard};
use crate::interpreter::owner;
use crate::reports::TensorReport;
use crate::reports::trace;
use crate::sparse;
use crate::text::format_bytes;
use crate::trees::traverse;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, fallible};
use tensorferry_cuda::TransferControl;

/// The native part of a `ferry.Job`: counts bytes, and takes the request to cancel.
#[pyclass(frozen, module = "tensorferry._native", name = "_Transfer")]
pub(crate) struct Transfer(Arc<Shared>);

/// What the caller and the transfer's thread share.
struct Shared {
    state: Mutex<State>,
    /// Whether the job has its outcome and its callbacks have run; changed under the lock of `state`.
    is_delivered: AtomicBool,
    /// The process whose thread moves the bytes. The child of a fork has the job, and not the thread.
    process: u32,
    over: Condvar,
    watch: TransferControl,
    total: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Succeeded,
    /// With an error, or cancelled.
    Failed,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the transfer with this outcome, or as cancelled if it was cancelled before now.
    fn end(&self, outcome: Result<Py<PyAny>>) -> Result<Py<PyAny>> {
        let mut state = self.state();
        let cancelled = self.watch.check();
        *state = if outcome.is_ok() && cancelled.is_ok() { State::Succeeded } else { State::Failed };
        drop(state);
        self.over.notify_all();
        let result = outcome?;
        cancelled?;
        Ok(result)
    }

    /// Waits for the callbacks of a transfer that has ended, which run on its thread: the thread must not outlive the
    /// interpreter. Ctrl-C ends the wait.
    fn wait_for_callbacks(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let is_over = py.detach(|| {
                let waits =
                    |state: &mut State| *state != State::Running && !self.is_delivered.load(Ordering::SeqCst);
                let waited = self.over.wait_timeout_while(self.state(), SIGNAL_INTERVAL, waits);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            });
            if is_over {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Says that the job has its outcome and its callbacks have run.
    fn delivered(&self) {
        let state = self.state();
        self.is_delivered.store(true, Ordering::SeqCst);
        drop(state);
        self.over.notify_all();
    }
}

/// Jobs that may be on their way.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// How long the exit waits for jobs that it has called off: what is on its way arrives first.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a wait for callbacks looks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

fn lost() -> Error {
    Error::new(ErrorKind::DeviceFailed, "the thread of a job was lost").with_advice("please report this")
}

/// Called by `atexit`, while threads may still use the interpreter: calls off what is on its way, and waits for that.
#[pyfunction]
pub(crate) fn end_jobs(py: Python<'_>) -> PyResult<()> {
    // Callbacks may start other jobs.
    loop {
        let live = std::mem::take(&mut *LIVE.lock().unwrap_or_else(PoisonError::into_inner));
        let jobs: Vec<Arc<Shared>> = live.iter().filter_map(Weak::upgrade).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        jobs.iter().for_each(|job| job.watch.cancel());
        let end = Instant::now() + PATIENCE;
        for job in &jobs {
            py.detach(|| {
                let left = end.saturating_duration_since(Instant::now());
                drop(job.over.wait_timeout_while(job.state(), left, |state| *state == State::Running));
            });
            job.wait_for_callbacks(py)?;
        }
    }
}

/// Called in the child of a fork, where no job runs: their threads are the parent's.
pub(crate) fn after_fork_in_child() {
    std::mem::take(&mut *LIVE.lock().unwrap_or_else(PoisonError::into_inner));
}

/// One tensor of a job.
struct Leaf {
    /// The source, which is kept so that its address stays its own.
    source: Py<PyAny>,
    rest: Rest,
    report: Option<TensorReport>,
}

enum Rest {
    Done(Py<PyAny>),
    Transfer(PendingTransfer),
}

/// What a job's thread has to do.
struct Errand {
    leaves: Vec<Leaf>,
    /// The tree that the leaves are of, and where it goes; none for one tensor.
    tree: Option<(Py<PyAny>, ConversionRequest)>,
    /// The traces that were open at the start.
    traces: Option<Py<PyTuple>>,
    begin: Instant,
}

/// Starts a transfer and returns at once; the bytes move meanwhile.
///
/// A shared tensor is there at once. The source of a copy must not be written until the job is done; work that was queued on
/// the source's stream before the call is waited for.
///
/// Args:
///     x: A dense tensor or a tree of them, as `to` takes it.
///     framework: The framework of the result, by name or as its module.
///     device, dtype, copy, writable, stream, budget, out: As for `to`.
///
/// Returns:
///     A Job, which is a concurrent.futures.Future and can be awaited.
///
/// Raises:
///     FerryError: What `to` would raise before bytes move. What goes wrong later, `Job.result` raises.
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
        return Err(is_sparse());
    }
    let target = frameworks::target(framework)?;
    let keywords = match options {
        None => Keywords::none(),
        Some(given) => options::parse("to_async", given, true)?,
    };
    if keywords.progress.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "to_async() does not take progress=",
            "read job.bytes_moved and job.bytes_total",
        ));
    }
    let Keywords { options, stream, out, .. } = keywords;
    let request = ConversionRequest { options, stream, ..ConversionRequest::new(target) };
    let (begin, traced) = (Instant::now(), trace::is_on());
    let traces = if traced { Some(trace::open_lists(py)?.unbind()) } else { None };
    let recognised = recognise(x)?;
    let container = match out {
        None => traverse::container_of(x, recognised)?,
        Some(_) => None,
    };
    let errand = match (container, out) {
        (Some(container), _) => {
            let mut leaves = Vec::new();
            traverse::walk(x, container, false, &mut |leaf, kind, _| {
                fallible::try_push(&mut leaves, self::leaf(leaf, kind, &request, traced)?)?;
                Ok(leaf.clone())
            })?;
            Errand { leaves, tree: Some((x.clone().unbind(), request)), traces, begin }
        }
        (None, Some(out)) => {
            if matches!(recognised, Recognised::Container(_)) {
                let hint = "fill one tensor at a time, or leave out out=";
                return Err(fail(ErrorKind::InvalidArgument, "out takes one tensor and x is a tree", hint));
            }
            let (begun, report) = fill_out::start(x, &out, &request, traced, true)?;
            let leaf = Leaf { source: x.clone().unbind(), rest: begun.into(), report };
            Errand { leaves: vec![leaf], tree: None, traces, begin }
        }
        (None, None) => {
            let leaves = vec![leaf(x, recognised, &request, traced)?];
            Errand { leaves, tree: None, traces, begin }
        }
    };
    launch(py, errand)
}

impl From<Started<'_>> for Rest {
    fn from(begun: Started<'_>) -> Self {
        match begun {
            Started::Done(result) => Self::Done(result.unbind()),
            Started::Transfer(moving) => Self::Transfer(moving),
        }
    }
}

fn is_sparse() -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        "to_async() does not take sparse tensors",
        "use ferry.to, or ferry.sparse.to for a format",
    )
}

/// Begins the trip of one tensor.
fn leaf(
    object: &Bound<'_, PyAny>,
    kind: Recognised,
    request: &ConversionRequest,
    traced: bool,
) -> Result<Leaf> {
    let (begun, report) = match convert::start_object(object, kind, request, traced) {
        Err(_) if sparse::is_sparse(object)? => return Err(is_sparse()),
        begun => begun?,
    };
    Ok(Leaf { source: object.clone().unbind(), rest: begun.into(), report })
}

/// Starts the thread, unless there is nothing left to do.
fn launch(py: Python<'_>, errand: Errand) -> Result<Bound<'_, PyAny>> {
    let total = errand
        .leaves
        .iter()
        .map(|leaf| if let Rest::Transfer(moving) = &leaf.rest { moving.total } else { 0 })
        .sum();
    let moves = errand.leaves.iter().any(|leaf| matches!(leaf.rest, Rest::Transfer(_)));
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Running),
        is_delivered: AtomicBool::new(false),
        process: std::process::id(),
        over: Condvar::new(),
        watch: TransferControl::default(),
        total,
    });
    let class = py.import(intern!(py, "tensorferry.jobs"))?.getattr(intern!(py, "Job"))?;
    let job = class.call1((Transfer(Arc::clone(&shared)),))?;
    if !moves {
        finish(&job, shared.end(errand.finish(py, Vec::new())))?;
        shared.delivered();
        return Ok(job);
    }
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|job| job.strong_count() > 0);
    live.push(Arc::downgrade(&shared));
    drop(live);
    let there = job.clone().unbind();
    let run = move || errand.run(shared, there);
    std::thread::Builder::new().name("tensorferry".into()).spawn(run).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("the system has no thread for a job: {error}"))
            .with_advice("end some threads, or raise the limit of processes")
    })?;
    Ok(job)
}

/// Hands the outcome to the `ferry.Job`, which wakes the threads that wait for it and runs its callbacks.
fn finish(job: &Bound<'_, PyAny>, outcome: Result<Py<PyAny>>) -> PyResult<()> {
    let py = job.py();
    let (result, error) = match outcome {
        Ok(result) => (result, None),
        Err(failure) => (py.None(), Some(PyErr::from(failure).into_value(py))),
    };
    job.call_method1(intern!(py, "_finish"), (result, error)).map(|_| ())
}

type Moved = tensorferry_core::Result<Option<tensorferry_core::host::HostBlock>>;

impl Errand {
    /// What the transfer's thread does.
    fn run(mut self, shared: Arc<Shared>, job: Py<PyAny>) {
        let mut moved = Vec::new();
        for leaf in &mut self.leaves {
            if let Rest::Transfer(moving) = &mut leaf.rest {
                let nothing: Box<dyn FnOnce(&TransferControl) -> Moved + Send> = Box::new(|_| Ok(None));
                let work = std::mem::replace(&mut moving.work, nothing);
                let result = catch_unwind(AssertUnwindSafe(|| work(&shared.watch)));
                let result = result.unwrap_or_else(|_| Err(lost()));
                let failed = result.is_err();
                moved.push(result);
                if failed {
                    break;
                }
            }
        }
        let Some(guard) = InterpreterGuard::get() else {
            // Once the interpreter exits, what it would have to let go is left to the system.
            std::mem::forget((self, moved, job));
            return;
        };
        guard.attach(|py| {
            let made = catch_unwind(AssertUnwindSafe(|| self.finish(py, moved)));
            // What this thread held until now, the source above all, goes before anybody has the result.
            owner::drop_deferred();
            let outcome = shared.end(made.unwrap_or_else(|_| Err(lost().into())));
            let job = job.into_bound(py);
            // Callbacks are user code.
            if let Err(error) = guard::as_python_code(|| finish(&job, outcome)) {
                error.write_unraisable(py, Some(&job));
            }
        });
        shared.delivered();
    }

    /// Makes the results, and the tree of them.
    fn finish(self, py: Python<'_>, moved: Vec<Moved>) -> Result<Py<PyAny>> {
        let Self { leaves, tree, traces, begin } = self;
        let mut moved = moved.into_iter();
        let mut results = Vec::new();
        fallible::try_reserve(&mut results, leaves.len())?;
        for Leaf { source, rest, report } in leaves {
            let result = match rest {
                Rest::Done(result) => result,
                Rest::Transfer(moving) => {
                    let block = moved.next().unwrap_or(Ok(None))?;
                    (moving.finish)(py, block)?
                }
            };
            if let (Some(report), Some(traces)) = (report, &traces) {
                trace::record_in(py, traces.bind(py), report, begin.elapsed())?;
            }
            results.push((source, result));
        }
        let Some((tree, request)) = tree else {
            return results.pop().map(|(_, result)| result).ok_or_else(|| lost().into());
        };
        let tree = tree.bind(py);
        let Some(container) = traverse::container_of(tree, recognise(tree)?)? else {
            return Ok(tree.clone().unbind());
        };
        let rebuilt = traverse::walk_any(tree, container, true, &mut |leaf, kind, _| {
            match results.iter().find(|(source, _)| source.is(leaf)) {
                Some((_, result)) => Ok(result.bind(py).clone()),
                // Put into the tree since the start.
                None => convert::convert_object(leaf, kind, &request),
            }
        })?;
        Ok(rebuilt.unbind())
    }
}

impl Transfer {
    fn is_inherited(&self) -> bool {
        self.0.process != std::process::id()
    }
}

#[pymethods]
impl Transfer {
    /// The bytes that have moved.
    #[getter]
    fn bytes_moved(&self) -> usize {
        if *self.0.state() == State::Succeeded {
            self.0.total
        } else {
            self.0.watch.bytes_moved().min(self.0.total)
        }
    }

    /// The bytes that the whole transfer moves.
    #[getter]
    fn bytes_total(&self) -> usize {
        self.0.total
    }

    /// Asks for an end; whether that was in time, now or before.
    fn cancel(&self) -> bool {
        // Under the lock, so that the transfer cannot end in between.
        let state = self.0.state();
        if *state == State::Running {
            if self.is_inherited() {
                return false;
            }
            self.0.watch.cancel();
        }
        *state != State::Succeeded && self.0.watch.check().is_err()
    }

    /// Why there will be no result, and what to do; None where there will be one.
    fn why_abandoned(&self) -> Option<(&'static str, &'static str)> {
        if *self.0.state() != State::Running {
            None
        } else if self.is_inherited() {
            Some((
                "the job belongs to the process that forked this one",
                "start a job in the process that waits for it",
            ))
        } else if guard::exits() {
            Some(("the interpreter exits, and the job with it", "wait for jobs before the program ends"))
        } else {
            None
        }
    }

    fn __repr__(&self) -> String {
        format!("{} of {}", format_bytes(self.bytes_moved()), format_bytes(self.0.total))
    }
}
