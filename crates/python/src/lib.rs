//! The extension module `tensorferry._native`.
//!
//! [`to`](mod@to) and [`plan`](plan()) are the public functions themselves: a Python function in front of them would
//! cost more than many a trip. From here a tensor goes through [`carry`]; who reads and writes it stands in
//! [`frameworks`].

mod api;
mod conversion;
mod errors;
mod fast_paths;
mod frameworks;
mod interpreter;
mod protocols;
mod reports;
mod settings;
mod share;
mod sparse;
mod text;
mod trees;

use api::{files, lifecycle, memory_stats, options, to, to_async};
use conversion::convert;
use conversion::recognise::recognise;
use conversion::request::ConversionRequest;
use errors::Result;
use protocols::dlpack_export;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reports::{PlanReport, TreeReport, trace};
use tensorferry_core::emergency_pool;
use tensorferry_core::fallible::try_push;
use trees::{registered_nodes, traverse};

#[global_allocator]
static ALLOCATOR: emergency_pool::Allocator = emergency_pool::Allocator;

/// Says what `to` would do with the same arguments (all but `out`), and why, moving nothing.
///
/// An object is asked for its `__dlpack__` or `__array__(copy=False)` all the same, to learn what it holds. A Dask
/// graph is not computed.
///
/// Args:
///     x: What `to` takes.
///     framework: The framework of the result, by name or as its module.
///     device, dtype, copy, writable, stream, budget: As for `to`.
///
/// Returns:
///     A Plan, which prints as an explanation; for a tree and for a sparse tensor it has parts.
///
/// Raises:
///     FerryError: What `to` would raise.
///
/// Example:
///     >>> plan = ferry.plan(np.arange(3), "torch")
///     >>> plan.action, plan.bytes_moved
///     ('share', 0)
#[pyfunction]
#[pyo3(
    signature = (x, framework, **options),
    text_signature = "(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, \
                      budget=None)"
)]
fn plan<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    plan_of(x, framework, options, false)
}

/// As `plan`, for arguments of functions: a tree without tensors has an empty plan.
#[pyfunction]
fn _plan_any<'py>(x: &Bound<'py, PyAny>, framework: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    plan_of(x, framework, None, true)
}

fn plan_of<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
    any: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    emergency_pool::check_headroom()?;
    let request = match (frameworks::target(framework), options) {
        (Ok(target), None) => Some(ConversionRequest::new(target)),
        (Ok(target), Some(given)) => {
            let options::Keywords { options, stream, .. } = options::parse("plan", given, false)?;
            Some(ConversionRequest { options, stream, ..ConversionRequest::new(target) })
        }
        (Err(_), given) if sparse::sparse_only(framework).is_some() => {
            given.map(|given| options::parse("plan", given, false)).transpose()?;
            None
        }
        (Err(failure), _) => return sparse::or_sparse(failure, sparse::Asked::Plan, x, framework, options),
    };
    let one = |leaf: &Bound<'py, PyAny>, kind| -> Result<PlanReport> {
        let failure = match &request {
            None => sparse::is_dense(leaf, framework),
            Some(request) => match convert::plan_object(leaf, kind, request) {
                Ok(report) => return Ok(report.into()),
                Err(failure) => failure,
            },
        };
        let plan = sparse::or_sparse(failure, sparse::Asked::Plan, leaf, framework, options)?;
        Ok(plan.cast::<PlanReport>().map_err(PyErr::from)?.get().clone())
    };
    let recognised = recognise(x)?;
    let Some(container) = traverse::container_of(x, recognised)? else {
        return Ok(Bound::new(py, one(x, recognised)?)?.into_any());
    };
    let mut parts = Vec::new();
    let walk = if any { traverse::walk_any } else { traverse::walk };
    walk(x, container, false, &mut |leaf, kind, place| {
        try_push(&mut parts, one(leaf, kind)?.named(place()))?;
        Ok(leaf.clone())
    })?;
    let target = match &request {
        Some(request) => request.target.facts(py)?.framework,
        None => sparse::sparse_only(framework).unwrap_or_default(),
    };
    let tree = TreeReport::new(target.to_owned(), parts);
    Ok(Bound::new(py, PlanReport::from(tree))?.into_any())
}

/// What the module keeps (types, functions, caches) belongs to one interpreter.
fn refuse_subinterpreters() -> PyResult<()> {
    // SAFETY: a module is made by a thread that is attached, so there is an interpreter to ask for.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "tensorferry works in the main interpreter only\nhint: use threads or processes instead of subinterpreters",
    ))
}

/// The module. It relies on the GIL (see `cache`), and says so.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters()?;
    // PyO3 looks at the interpreter when a thread first attaches by itself. Later than here it might be gone.
    module.py().detach(|| Python::attach(|_| ()));
    settings::read(module.py())?;
    errors::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(fast_paths::_fast_paths, module)?)?;
    module.add_function(wrap_pyfunction!(fast_paths::_fast_path_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(fast_paths::_fast_path_probed, module)?)?;
    module.add_class::<frameworks::info::FrameworkInfo>()?;
    module.add_class::<memory_stats::MemoryStats>()?;
    module.add_class::<PlanReport>()?;
    module.add_class::<reports::Trip>()?;
    module.add_class::<dlpack_export::ExportedTensor>()?;
    module.add_class::<to_async::Transfer>()?;
    module.add_class::<files::File>()?;
    module.add_class::<files::FileTensor>()?;
    module.add_class::<files::Writer>()?;
    module.add_class::<share::Ticket>()?;
    to::add(module)?;
    sparse::add(module)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(_plan_any, module)?)?;
    module.add_function(wrap_pyfunction!(to_async::to_async, module)?)?;
    module.add_function(wrap_pyfunction!(memory_stats::memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(memory_stats::empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace, module)?)?;
    module.add_function(wrap_pyfunction!(share::publish::publish, module)?)?;
    module.add_function(wrap_pyfunction!(share::attach::attach, module)?)?;
    module.add_function(wrap_pyfunction!(share::empty::empty_shared, module)?)?;
    module.add_function(wrap_pyfunction!(share::empty::empty_aligned, module)?)?;
    module.add_function(wrap_pyfunction!(registered_nodes::register_container, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::registration::register_framework, module)?)?;
    module.add_class::<frameworks::names::Row>()?;
    module.add_function(wrap_pyfunction!(frameworks::names::register, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::names::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::classify::classify, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::classify::classify_type, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::frameworks, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::_check_import, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::_import_orders, module)?)?;
    // What is public is listed in the package; PyO3's own list would name the private functions too.
    module.delattr("__all__")?;
    lifecycle::register(module)
}
