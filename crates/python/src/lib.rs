//! The extension module `tensorferry._native`.
//!
//! [`to`] and [`plan`](plan()) are the public functions themselves: a Python function in front of them would
//! cost more than many a trip. From here a tensor goes through [`carry`]; who reads and writes it stands in
//! [`frameworks`].

mod cache;
mod call;
mod capsule;
mod carry;
mod errors;
mod frameworks;
mod interpreter;
mod owner;
mod parcel;
mod protocols;
mod recognise;
mod report;
mod source;
mod trace;
mod tree;
mod wishes;

use carry::Journey;
use errors::{Result, fail};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use recognise::{Recognised, recognise};
use tensorferry_core::ErrorKind;
use tensorferry_core::plan::Wishes;

/// Carries a tensor, or a tree of tensors, to a framework.
///
/// Args:
///     x: A tensor of any framework, anything that speaks DLPack, the buffer protocol, the array interface
///         or `__array__`, or a dict, list, tuple, named tuple or dataclass of such.
///     framework: "numpy", "torch", "jax", "tensorflow", "paddle", "mlx", a registered name, or the module.
///     device: "cpu" or "default"; other devices are refused.
///     dtype: The element type of the result, by name or as a framework's own object. None keeps the type;
///         "default" takes the target's default width (float32 for float64, and so on).
///     copy: None shares when it can and copies when it must, True always copies, False shares or raises
///         CopyRequired.
///     writable: True guarantees a result that may be written without harm to anyone; False a read-only one.
///     stream: Must be left out for host memory.
///     budget: The most bytes of extra memory; past it OutOfMemory is raised.
///     out: An existing array or tensor of the target framework to fill and return.
///
/// Returns:
///     The framework's own tensor; `x` itself where nothing needs to change.
///
/// Raises:
///     FerryError: Each is also the builtin exception that one would expect, and has a `hint`.
#[pyfunction]
#[pyo3(signature = (x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, budget=None, out=None))]
#[expect(clippy::too_many_arguments, reason = "the keywords are the public face")]
fn to<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    budget: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let journey = journey(framework, device, dtype, copy, writable, stream, budget)?;
    let recognised = recognise(x)?;
    if let Some(out) = out {
        if matches!(recognised, Recognised::Container(_)) {
            let hint = "fill one tensor at a time, or leave out out=";
            return Err(fail(ErrorKind::InvalidArgument, "out takes one tensor and x is a tree", hint));
        }
        return carry::into(x, out, &journey);
    }
    if matches!(recognised, Recognised::Container(_) | Recognised::Unknown)
        && let Some(container) = tree::container_of(x, recognised)?
    {
        return tree::walk(x, container, true, &mut |leaf, _| carry::one(leaf, &journey));
    }
    carry::one(x, &journey)
}

/// Says what `to` would do with the same arguments (all but `out`), and why, moving nothing.
///
/// An object is asked for its `__dlpack__` or `__array__` all the same, to learn what it holds.
///
/// Returns:
///     A Plan, or a TreePlan for a tree; both print as an explanation.
#[pyfunction]
#[pyo3(signature = (x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, budget=None))]
#[expect(clippy::too_many_arguments, reason = "the keywords are the public face")]
fn plan<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    budget: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    let journey = journey(framework, device, dtype, copy, writable, stream, budget)?;
    let recognised = recognise(x)?;
    let Some(container) = tree::container_of(x, recognised)? else {
        return Ok(Bound::new(py, carry::plan_one(x, &journey)?)?.into_any());
    };
    let mut plans = Vec::new();
    tree::walk(x, container, false, &mut |leaf, place| {
        plans.push((place(), carry::plan_one(leaf, &journey)?));
        Ok(leaf.clone())
    })?;
    Ok(Bound::new(py, report::TreePlan::new(plans))?.into_any())
}

fn journey(
    framework: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    copy: Option<&Bound<'_, PyAny>>,
    writable: Option<&Bound<'_, PyAny>>,
    stream: Option<&Bound<'_, PyAny>>,
    budget: Option<&Bound<'_, PyAny>>,
) -> Result<Journey> {
    wishes::check_stream(stream)?;
    let wishes = Wishes {
        dtype: wishes::dtype(dtype)?,
        copy: wishes::flag("copy", copy)?,
        writable: wishes::flag("writable", writable)?,
        budget: wishes::budget(budget)?,
        on_host: wishes::on_host(device)?,
    };
    Ok(Journey { target: frameworks::target(framework)?, wishes })
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
    errors::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<frameworks::info::FrameworkInfo>()?;
    module.add_class::<report::PlanReport>()?;
    module.add_class::<report::TreePlan>()?;
    module.add_class::<report::Trip>()?;
    module.add_class::<parcel::Parcel>()?;
    module.add_function(wrap_pyfunction!(to, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace, module)?)?;
    module.add_function(wrap_pyfunction!(tree::register_tree, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::registered::register, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::info::frameworks, module)?)?;
    // What is public is listed in the package; PyO3's own list would name the private functions too.
    module.delattr("__all__")?;
    interpreter::watch(module)
}
