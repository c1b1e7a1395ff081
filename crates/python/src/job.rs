//! `start`: a trip whose bytes move while the caller goes on.
//!
//! What depends on the caller's thread (the current streams, the frameworks' allocators) happens before `start` is back;
//! then bytes move on a thread of the job's own, without the interpreter, and the result is made there.

use crate::carry::{self, Journey};
use crate::deferred;
use crate::errors::{Failure, Result, fail};
use crate::frameworks;
use crate::interpreter::{self, InterpreterGuard};
use crate::kinds::Recognised;
use crate::moving::{Begun, Moving};
use crate::out;
use crate::recognise::recognise;
use crate::report::{PlanReport, in_words};
use crate::trace;
use crate::tree;
use crate::wishes::{self, Keywords};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, growth};
use tensorferry_cuda::Watch;

/// How often a thread that waits for a job listens to signals.
const LISTEN: Duration = Duration::from_millis(50);

/// A trip on its way: `done()`, `progress()`, `result()`, `cancel()`; it can be awaited too.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Job(Arc<Shared>);

/// What the caller and the job's thread share.
struct Shared {
    state: Mutex<State>,
    over: Condvar,
    watch: Watch,
    total: usize,
}

struct State {
    /// The result, once there is one.
    outcome: Option<PyResult<Py<PyAny>>>,
    /// Futures that wait for it, each with its loop.
    waiters: Vec<(Py<PyAny>, Py<PyAny>)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.state().outcome.is_some()
    }
}

/// Jobs that may be on their way.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// How long the exit waits for jobs that it has called off: what is on its way arrives first.
const PATIENCE: Duration = Duration::from_secs(5);

fn lost() -> Error {
    Error::new(ErrorKind::DeviceFailed, "the thread of a job was lost").with_hint("please report this")
}

/// Called by `atexit`, while threads may still use the interpreter: calls off what is on its way, and waits for that.
#[pyfunction]
fn end_jobs(py: Python<'_>) {
    let live = std::mem::take(&mut *LIVE.lock().unwrap_or_else(PoisonError::into_inner));
    let jobs: Vec<Arc<Shared>> = live.iter().filter_map(Weak::upgrade).collect();
    jobs.iter().filter(|job| !job.is_over()).for_each(|job| job.watch.call_off());
    py.detach(|| {
        let end = Instant::now() + PATIENCE;
        for job in &jobs {
            let left = end.saturating_duration_since(Instant::now());
            drop(job.over.wait_timeout_while(job.state(), left, |state| state.outcome.is_none()));
        }
    });
}

/// Asks Python to tell us of its end, before anybody else of ours hears of it.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let ends = wrap_pyfunction!(end_jobs, module)?;
    module.py().import("atexit")?.call_method1("register", (ends,)).map(|_| ())
}

/// One tensor of a job.
struct Leaf {
    /// The source, which is kept so that its address stays its own.
    source: Py<PyAny>,
    rest: Rest,
    report: Option<PlanReport>,
}

enum Rest {
    Done(Py<PyAny>),
    Moving(Moving),
}

/// What a job's thread has to do.
struct Errand {
    leaves: Vec<Leaf>,
    /// The tree that the leaves are of, and where it goes; none for one tensor.
    tree: Option<(Py<PyAny>, Journey)>,
    /// The traces that were open at the start.
    traces: Option<Py<PyTuple>>,
    begin: Instant,
}

/// Begins a trip and comes back at once; the bytes move meanwhile.
///
/// Takes the arguments of `to`, but for `progress`, and gives a Job. A tensor that is shared is there at once. Of a tensor
/// that is copied, the source must not be written until the job is done; what was queued on the source's stream
/// before the call is waited for.
#[pyfunction]
#[pyo3(
    signature = (x, framework, **wishes),
    text_signature = "(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, \
                      budget=None, out=None)"
)]
pub(crate) fn start<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    wishes: Option<&Bound<'py, PyDict>>,
) -> Result<Job> {
    let py = x.py();
    let target = frameworks::target(framework)?;
    let keywords = match wishes {
        None => Keywords::none(),
        Some(given) => wishes::parse("start", given, true)?,
    };
    if keywords.progress.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "start() shows no progress by itself",
            "ask the job: job.progress(), of job.total bytes",
        ));
    }
    let Keywords { wishes, stream, out, .. } = keywords;
    let journey = Journey { wishes, stream, ..Journey::plain(target) };
    let (begin, traced) = (Instant::now(), trace::is_on());
    let traces = if traced { Some(trace::open_lists(py)?.unbind()) } else { None };
    let recognised = recognise(x)?;
    let container = match out {
        None => tree::container_of(x, recognised)?,
        Some(_) => None,
    };
    let errand = match (container, out) {
        (Some(container), _) => {
            let mut leaves = Vec::new();
            tree::walk(x, container, false, &mut |leaf, kind, _| {
                growth::push(&mut leaves, self::leaf(leaf, kind, &journey, traced)?)?;
                Ok(leaf.clone())
            })?;
            Errand { leaves, tree: Some((x.clone().unbind(), journey)), traces, begin }
        }
        (None, Some(out)) => {
            if matches!(recognised, Recognised::Container(_)) {
                let hint = "fill one tensor at a time, or leave out out=";
                return Err(fail(ErrorKind::InvalidArgument, "out takes one tensor and x is a tree", hint));
            }
            let (begun, report) = out::begin(x, &out, &journey, traced, true)?;
            let leaf = Leaf { source: x.clone().unbind(), rest: begun.into(), report };
            Errand { leaves: vec![leaf], tree: None, traces, begin }
        }
        (None, None) => {
            let leaves = vec![leaf(x, recognised, &journey, traced)?];
            Errand { leaves, tree: None, traces, begin }
        }
    };
    launch(py, errand)
}

impl From<Begun<'_>> for Rest {
    fn from(begun: Begun<'_>) -> Self {
        match begun {
            Begun::Done(result) => Self::Done(result.unbind()),
            Begun::Moving(moving) => Self::Moving(moving),
        }
    }
}

/// Begins the trip of one tensor.
fn leaf(object: &Bound<'_, PyAny>, kind: Recognised, journey: &Journey, traced: bool) -> Result<Leaf> {
    let (begun, report) = carry::begin_one(object, kind, journey, traced)?;
    Ok(Leaf { source: object.clone().unbind(), rest: begun.into(), report })
}

/// Starts the thread, unless nothing is left to do.
fn launch(py: Python<'_>, errand: Errand) -> Result<Job> {
    let total = errand
        .leaves
        .iter()
        .map(|leaf| if let Rest::Moving(moving) = &leaf.rest { moving.total } else { 0 })
        .sum();
    let moves = errand.leaves.iter().any(|leaf| matches!(leaf.rest, Rest::Moving(_)));
    let shared = Arc::new(Shared {
        state: Mutex::new(State { outcome: None, waiters: Vec::new() }),
        over: Condvar::new(),
        watch: Watch::default(),
        total,
    });
    if !moves {
        let outcome = errand.finish(py, Vec::new());
        shared.state().outcome = Some(outcome.map_err(PyErr::from));
        return Ok(Job(shared));
    }
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|job| job.strong_count() > 0);
    live.push(Arc::downgrade(&shared));
    drop(live);
    let there = Arc::clone(&shared);
    std::thread::Builder::new().name("tensorferry".into()).spawn(move || errand.run(there)).map_err(
        |error| {
            Error::new(ErrorKind::OutOfMemory, format!("the system has no thread for a job: {error}"))
                .with_hint("end some threads, or raise the limit of processes")
        },
    )?;
    Ok(Job(shared))
}

type Moved = tensorferry_core::Result<Option<tensorferry_core::host::HostBlock>>;

impl Errand {
    /// What the job's thread does.
    fn run(mut self, shared: Arc<Shared>) {
        let mut moved = Vec::new();
        for leaf in &mut self.leaves {
            if let Rest::Moving(moving) = &mut leaf.rest {
                let nothing: Box<dyn FnOnce(&Watch) -> Moved + Send> = Box::new(|_| Ok(None));
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
            std::mem::forget((self, moved));
            return;
        };
        guard.attach(|py| {
            let made = catch_unwind(AssertUnwindSafe(|| self.finish(py, moved)));
            // What this thread held until now, the source above all, goes before anybody has the result.
            deferred::drop_deferred();
            let outcome = made.unwrap_or_else(|_| Err(lost().into())).map_err(PyErr::from);
            let waiters = {
                let mut state = shared.state();
                // Whoever was told that it was called off in time shall find it so.
                let outcome = match shared.watch.check() {
                    Err(error) if outcome.is_ok() => Err(PyErr::from(Failure::from(error))),
                    _ => outcome,
                };
                state.outcome = Some(outcome);
                std::mem::take(&mut state.waiters)
            };
            shared.over.notify_all();
            let job = Bound::new(py, Job(Arc::clone(&shared)));
            for (event_loop, future) in waiters {
                // A loop that was closed meanwhile waits for nothing.
                let told = job.as_ref().map_err(|error| error.clone_ref(py)).and_then(|job| {
                    let deliver = pyo3::wrap_pyfunction!(deliver, py)?;
                    event_loop.call_method1(py, "call_soon_threadsafe", (deliver, future, job))
                });
                drop(told);
            }
            drop(job);
        });
    }

    /// Makes the results, and the tree of them.
    fn finish(self, py: Python<'_>, moved: Vec<Moved>) -> Result<Py<PyAny>> {
        let Self { leaves, tree, traces, begin } = self;
        let mut moved = moved.into_iter();
        let mut results = Vec::new();
        growth::reserve(&mut results, leaves.len())?;
        for Leaf { source, rest, report } in leaves {
            let result = match rest {
                Rest::Done(result) => result,
                Rest::Moving(moving) => {
                    let block = moved.next().unwrap_or(Ok(None))?;
                    (moving.finish)(py, block)?
                }
            };
            if let (Some(report), Some(traces)) = (report, &traces) {
                trace::record_in(py, traces.bind(py), report, begin.elapsed())?;
            }
            results.push((source, result));
        }
        let Some((tree, journey)) = tree else {
            return results.pop().map(|(_, result)| result).ok_or_else(|| lost().into());
        };
        let tree = tree.bind(py);
        let Some(container) = tree::container_of(tree, recognise(tree)?)? else {
            return Ok(tree.clone().unbind());
        };
        let rebuilt = tree::walk(tree, container, true, &mut |leaf, kind, _| {
            match results.iter().find(|(source, _)| source.is(leaf)) {
                Some((_, result)) => Ok(result.bind(py).clone()),
                // Put into the tree since the start.
                None => carry::one(leaf, kind, &journey),
            }
        })?;
        Ok(rebuilt.unbind())
    }
}

/// Gives a future what a job has come to.
#[pyfunction]
fn deliver(future: &Bound<'_, PyAny>, job: &Bound<'_, Job>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    match job.get().outcome(py) {
        Some(Ok(result)) => future.call_method1("set_result", (result,))?,
        Some(Err(error)) => future.call_method1("set_exception", (error.value(py),))?,
        None => return Ok(()),
    };
    Ok(())
}

impl Job {
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        self.0.state().outcome.as_ref().map(|outcome| match outcome {
            Ok(result) => Ok(result.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        })
    }
}

#[pymethods]
impl Job {
    /// Whether it is over: with a result, with an error, or called off.
    fn done(&self) -> bool {
        self.0.is_over()
    }

    /// Bytes that have moved.
    fn progress(&self) -> usize {
        if self.0.is_over() && !self.failed() { self.0.total } else { self.0.watch.moved().min(self.0.total) }
    }

    /// Bytes that move altogether.
    #[getter]
    fn total(&self) -> usize {
        self.0.total
    }

    /// Waits for the result and gives it, or raises what went wrong.
    ///
    /// Args:
    ///     timeout: Seconds after which TimedOut is raised, a TimeoutError; None waits as long as it takes.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        // More seconds than can be counted are as good as none given.
        let time = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let end = time.and_then(|time| Instant::now().checked_add(time));
        loop {
            if let Some(outcome) = self.outcome(py) {
                return outcome;
            }
            if interpreter::exits() {
                let error = Error::new(ErrorKind::Cancelled, "the interpreter exits, and the job with it");
                return Err(Failure::from(error.with_hint("wait for jobs before the program ends")).into());
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let error = Error::new(ErrorKind::TimedOut, "the job is not done within the timeout");
                return Err(Failure::from(error.with_hint("wait longer, or cancel() it")).into());
            }
            let time = left.map_or(LISTEN, |left| left.min(LISTEN));
            py.detach(|| {
                let state = self.0.state();
                let waited = self.0.over.wait_timeout_while(state, time, |state| state.outcome.is_none());
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            });
            py.check_signals()?;
        }
    }

    /// Calls it off; whether that was in time. What is on its way arrives, and `result` raises Cancelled.
    ///
    /// Cancelling a task that awaits a job does not call the job off.
    fn cancel(&self) -> bool {
        // Under the lock, so that the outcome cannot come in between.
        let state = self.0.state();
        if state.outcome.is_none() {
            self.0.watch.call_off();
        }
        state.outcome.is_none()
    }

    /// Waits without holding up the loop.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = event_loop.call_method0("create_future")?;
        let waits = {
            let mut state = slf.get().0.state();
            let waits = state.outcome.is_none();
            if waits {
                state.waiters.push((event_loop.unbind(), future.clone().unbind()));
            }
            waits
        };
        if !waits {
            deliver(&future, slf)?;
        }
        future.call_method0(intern!(py, "__await__"))
    }

    fn __repr__(&self) -> String {
        let state = match self.0.state().outcome {
            None => "on its way",
            Some(Ok(_)) => "done",
            Some(Err(_)) => "failed",
        };
        format!("<Job {state}, {} of {}>", in_words(self.progress()), in_words(self.0.total))
    }
}

impl Job {
    fn failed(&self) -> bool {
        matches!(self.0.state().outcome, Some(Err(_)))
    }
}
