//! The extension module `tensorferry._native`.
//!
//! `to` and `plan` are public functions without a Python function around them, which would cost more than
//! many conversions. The module `conversion` converts a tensor, and `frameworks` reads and wraps the tensors of each framework.

mod api;
mod arrow;
mod c_api;
mod conversion;
mod errors;
mod fast_paths;
mod feeding;
mod frameworks;
mod interpreter;
mod pickling;
mod protocols;
mod reports;
mod settings;
mod share;
mod sparse;
mod text;
mod trees;

use api::{async_transfer, file_writer, files, lifecycle, memory_stats, options, to, to_async};
use conversion::object_kinds::RecognisedObject;
use conversion::recognise::recognise;
use conversion::request::ConversionRequest;
use conversion::sharded;
use errors::Result;
use interpreter::guard;
use protocols::dlpack_export;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reports::{PlanReport, TreeReport, trace};
use tensorferry_core::emergency_pool;
use tensorferry_core::fallible::try_push;
use trees::{registered_nodes, traverse};

#[global_allocator]
static ALLOCATOR: emergency_pool::Allocator = emergency_pool::Allocator;

/// Explains what `to` would do with the same arguments (except `out`), without moving bytes.
///
/// The object's `__dlpack__` or `__array__(copy=False)` is called nevertheless, because only it tells the layout. A Dask graph
/// is not computed.
///
/// Args:
///     x: As for `to`.
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

/// As `plan`, for arguments of functions. A tree without tensors has an empty plan.
#[pyfunction]
fn _plan_any<'py>(x: &Bound<'py, PyAny>, framework: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    plan_of(x, framework, None, true)
}

fn plan_of<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
    allow_no_tensor: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    emergency_pool::check_headroom()?;
    let request = match (frameworks::target(framework), options) {
        (Ok(target), None) => Some(ConversionRequest::new(target)),
        (Ok(target), Some(given)) => {
            let options::ParsedKeywords { options, sharding, stream, .. } =
                options::parse("plan", given, false)?;
            Some(ConversionRequest { options, sharding, stream, ..ConversionRequest::new(target) })
        }
        (Err(_), given) if sparse::sparse_only_framework(framework).is_some() => {
            given.map(|given| options::parse("plan", given, false)).transpose()?;
            None
        }
        (Err(failure), _) => {
            return sparse::retry_as_sparse(failure, sparse::SparseCall::Plan, x, framework, options);
        }
    };
    let plan_one = |recognised: RecognisedObject<'_, 'py>| -> Result<Vec<PlanReport>> {
        let leaf = recognised.object();
        let failure = match &request {
            None => sparse::dense_input_error(leaf, framework),
            Some(request) => match sharded::plan_object(recognised, request) {
                Ok(plans) => return Ok(plans),
                Err(failure) => failure,
            },
        };
        let plan = sparse::retry_as_sparse(failure, sparse::SparseCall::Plan, leaf, framework, options)?;
        Ok(vec![plan.cast::<PlanReport>().map_err(PyErr::from)?.get().clone()])
    };
    let resolved = arrow::read::resolve(x, arrow::read::Purpose::Plan)?;
    let x = resolved.as_ref().unwrap_or(x);
    let recognised = recognise(x)?;
    let (mut parts, mut scalars) = (Vec::new(), Vec::new());
    let passed = match traverse::container_of(recognised)? {
        Some(container) => traverse::walk_for_plan(x, container, allow_no_tensor, &mut |leaf, path| {
            if traverse::is_scalar(leaf.kind()) {
                try_push(&mut scalars, path.format())?;
                return Ok(leaf.object().clone());
            }
            for plan in plan_one(leaf)? {
                try_push(&mut parts, plan.below(path.format()))?;
            }
            Ok(leaf.object().clone())
        })?,
        None => {
            parts = plan_one(recognised)?;
            if let [_] = parts.as_slice() {
                return Ok(Bound::new(py, parts.remove(0))?.into_any());
            }
            Vec::new()
        }
    };
    let target = match &request {
        Some(request) => request.target.capabilities(py)?.framework,
        None => sparse::sparse_only_framework(framework).unwrap_or_default(),
    };
    let tree =
        TreeReport::new(target.to_owned(), parts).with_scalars(&scalars).with_passed(passed).with_ties()?;
    Ok(Bound::new(py, PlanReport::from(tree))?.into_any())
}

/// Raises in a subinterpreter: the types, functions and caches of the module belong to one interpreter.
fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    if guard::is_main_interpreter(py) {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "tensorferry works in the main interpreter only\nhint: use threads or processes instead of subinterpreters",
    ))
}

/// The module. It needs the GIL (see `type_cache`), and declares so.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters(module.py())?;
    // PyO3 checks the interpreter when a thread first attaches. Later the interpreter might be finalised.
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
    module.add_class::<async_transfer::Transfer>()?;
    module.add_class::<files::File>()?;
    module.add_class::<files::FileTensor>()?;
    module.add_class::<file_writer::Writer>()?;
    module.add_function(wrap_pyfunction!(file_writer::_stored, module)?)?;
    module.add_class::<share::Ticket>()?;
    module.add_class::<arrow::batches::ArrowBatches>()?;
    module.add_class::<arrow::column::ArrowColumn>()?;
    module.add_class::<arrow::options::ArrowOptions>()?;
    module.add_class::<arrow::export::ExportedColumn>()?;
    module.add_class::<arrow::export::ExportedTable>()?;
    module.add_function(wrap_pyfunction!(arrow::batches::_arrow_batches, module)?)?;
    module.add_function(wrap_pyfunction!(arrow::export::_arrow_export_column, module)?)?;
    module.add_function(wrap_pyfunction!(arrow::export::_arrow_export_table, module)?)?;
    module.add_function(wrap_pyfunction!(arrow::read::_arrow_read, module)?)?;
    module.add_function(wrap_pyfunction!(arrow::read::_arrow_stack, module)?)?;
    c_api::add(module)?;
    feeding::add(module)?;
    pickling::add(module)?;
    to::add(module)?;
    sparse::add(module)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(_plan_any, module)?)?;
    module.add_function(wrap_pyfunction!(to_async::to_async, module)?)?;
    module.add_function(wrap_pyfunction!(memory_stats::memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(memory_stats::empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace, module)?)?;
    module.add_function(wrap_pyfunction!(reports::trips::_trips_text, module)?)?;
    module.add_function(wrap_pyfunction!(reports::trips::_trips_html, module)?)?;
    module.add_function(wrap_pyfunction!(share::publish::publish, module)?)?;
    module.add_function(wrap_pyfunction!(share::attach::attach, module)?)?;
    module.add_function(wrap_pyfunction!(share::empty::empty_shared, module)?)?;
    module.add_function(wrap_pyfunction!(share::empty::empty_aligned, module)?)?;
    module.add_function(wrap_pyfunction!(registered_nodes::register_container, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::register_framework::register_framework, module)?)?;
    module.add_class::<frameworks::names::Row>()?;
    module.add_function(wrap_pyfunction!(frameworks::names::register, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::names::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::classify::classify, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::classify::classify_type, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::classify::_is_refused, module)?)?;
    module.add_function(wrap_pyfunction!(errors::library_hint, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::frameworks, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::_check_import, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::_import_orders, module)?)?;
    // The package lists the public names. PyO3's list would include the private functions.
    module.delattr("__all__")?;
    lifecycle::register(module)
}
