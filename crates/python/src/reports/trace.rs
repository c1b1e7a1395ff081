//! The context manager `trace`, which records conversions. While no trace is open, a call costs one atomic load.
//!
//! A trace belongs to a context of `contextvars`: conversions of other threads and of other asyncio tasks are not
//! recorded, unless they run in a copy of the context.

use crate::errors::{Result, fail};
use crate::interpreter::objects::TENSOR_OVERHEAD_BYTES;
use crate::interpreter::once::ForkSafeOnce;
use crate::reports::{CopiedMemory, PlanReport, Trip};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tensorferry_core::{ErrorKind, emergency_pool};

/// The number of open traces in all contexts.
static OPEN_TRACES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the last conversion that this thread recorded has copied.
    static LAST_COPIED: Cell<Option<CopiedMemory>> = const { Cell::new(None) };
    /// Whether this thread converts the parts of a conversion that is recorded as a whole.
    static IS_WITHIN_TRIP: Cell<bool> = const { Cell::new(false) };
}

/// Whether a trace is open in any context.
pub(crate) fn is_tracing() -> bool {
    OPEN_TRACES.load(Ordering::Relaxed) != 0 && !IS_WITHIN_TRIP.get()
}

/// While this lives, conversions on its thread are not recorded: they are parts of another one.
pub(crate) struct WithinTrip {
    outer: bool,
}

impl WithinTrip {
    pub(crate) fn begin() -> Self {
        Self { outer: IS_WITHIN_TRIP.replace(true) }
    }
}

impl Drop for WithinTrip {
    fn drop(&mut self) {
        IS_WITHIN_TRIP.set(self.outer);
    }
}

/// Runs a conversion of several parts, and records it as one. `convert` is told whether to report, and returns the result and the
/// report.
pub(crate) fn record_whole<T, R: Into<PlanReport>>(
    py: Python<'_>,
    convert: impl FnOnce(bool) -> Result<(T, Option<R>)>,
) -> Result<T> {
    let started = is_tracing().then(Instant::now);
    let within = started.map(|_| WithinTrip::begin());
    let (result, report) = convert(started.is_some())?;
    drop(within);
    if let (Some(started), Some(report)) = (started, report) {
        record(py, report, started.elapsed())?;
    }
    Ok(result)
}

/// The context variable. Its value is a tuple of the lists to fill, the innermost last.
fn trace_variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let variable = VARIABLE.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("contextvars")?.getattr("ContextVar")?.call1(("tensorferry.trace",))?.unbind())
    })?;
    Ok(variable.bind(py))
}

/// The lists of the traces that are open in this context.
pub(crate) fn open_lists(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    Ok(trace_variable(py)?.call_method1("get", (PyTuple::empty(py),))?.cast_into()?)
}

/// Records a conversion in every trace that is open in this context.
pub(crate) fn record(py: Python<'_>, plan: impl Into<PlanReport>, elapsed: Duration) -> Result<()> {
    let plan = plan.into();
    LAST_COPIED.set(plan.copied());
    record_in(py, &open_lists(py)?, plan, elapsed)
}

/// What the last conversion that this thread recorded has copied. Another call returns `None`.
pub(crate) fn take_copied() -> Option<CopiedMemory> {
    LAST_COPIED.take()
}

/// Records a conversion in these lists.
pub(crate) fn record_in(
    py: Python<'_>,
    lists: &Bound<'_, PyTuple>,
    plan: impl Into<PlanReport>,
    elapsed: Duration,
) -> Result<()> {
    emergency_pool::ensure_headroom(TENSOR_OVERHEAD_BYTES)?;
    let trip = Bound::new(py, Trip::new(plan.into(), elapsed))?;
    for list in lists {
        list.cast_into::<PyList>().map_err(PyErr::from)?.append(&trip)?;
    }
    Ok(())
}

/// Adds a note about a tree to every trace that is open in this context.
pub(crate) fn add_note(py: Python<'_>, note: &str) -> Result<()> {
    add_note_in(&open_lists(py)?, note)
}

/// Adds a note about a tree to these lists.
pub(crate) fn add_note_in(lists: &Bound<'_, PyTuple>, note: &str) -> Result<()> {
    for list in lists {
        let notes = list.getattr("notes")?;
        if !notes.contains(note)? {
            notes.call_method1("append", (note,))?;
        }
    }
    Ok(())
}

/// `with trace() as trips:` fills the list `trips`.
#[pyclass(frozen, module = "tensorferry", name = "_Trace")]
pub(crate) struct Trace {
    token: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl Trace {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if self.token.lock().is_ok_and(|slot| slot.is_some()) {
            let hint = "call trace() again for a second block";
            return Err(fail(ErrorKind::InvalidArgument, "this trace is already open", hint).into());
        }
        static LIST: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
        let trips = LIST.import(py, "tensorferry.traces", "Trips")?.call0()?.cast_into::<PyList>()?;
        let mut lists: Vec<Bound<'py, PyAny>> = open_lists(py)?.iter().collect();
        lists.push(trips.clone().into_any());
        let token = trace_variable(py)?.call_method1("set", (PyTuple::new(py, lists)?,))?;
        let previous = self.token.lock().map(|mut slot| slot.replace(token.unbind()));
        if matches!(previous, Ok(None)) {
            OPEN_TRACES.fetch_add(1, Ordering::Relaxed);
        }
        Ok(trips)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let token = self.token.lock().ok().and_then(|mut slot| slot.take());
        if let Some(token) = token {
            OPEN_TRACES.fetch_sub(1, Ordering::Relaxed);
            trace_variable(py)?.call_method1("reset", (token,))?;
        }
        Ok(())
    }
}

/// Records every conversion inside the block: `with trace() as trips:` fills the list `trips` with Trip objects.
///
/// `print(trips)` and the card in a notebook sum up the list; equal conversions share a row.
///
/// Conversions of other threads and asyncio tasks are not recorded, unless they run in a copy of the context.
///
/// Returns:
///     A context manager that returns the list.
///
/// Example:
///     >>> with ferry.trace() as trips:
///     ...     t = ferry.to(np.arange(3), "torch")
///     >>> len(trips), trips[0].shares
///     (1, True)
#[expect(rustdoc::broken_intra_doc_links, reason = "a docstring of Python")]
#[pyfunction]
pub(crate) fn trace() -> Trace {
    Trace { token: Mutex::new(None) }
}
