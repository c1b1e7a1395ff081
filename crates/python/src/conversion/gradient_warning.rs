//! The warning about a tensor that requires a gradient and is converted without it.
//!
//! A training step that calls `to` computes the right loss and wrong gradients, without an error. The warning appears once in a
//! process, for the first such conversion. It does not appear where gradients are off (`torch.no_grad()`), which is also how
//! `via(..., grad=True)` converts its arguments.
//!
//! A tensor that requires no gradient pays nothing: [`SourceMutability::Differentiable`] is not handled by the fast path, whose
//! comparison of the mutability rejects it together with cached memory. One that requires a gradient always takes the planner.

use crate::errors::Result;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::plan::{Plan, Route, SourceDescription, SourceMutability, TargetCapabilities};

static WAS_GIVEN: AtomicBool = AtomicBool::new(false);

/// Warns if the plan leaves out the gradient of its source.
#[inline]
pub(crate) fn check_plan(
    py: Python<'_>,
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    plan: &Plan,
) -> Result<()> {
    if source.mutability != SourceMutability::Differentiable || matches!(plan.route, Route::Itself) {
        return Ok(());
    }
    warn_once(py, source.framework, target.framework)
}

/// Warns that a tensor of the framework `source` is converted without its gradient.
#[cold]
pub(crate) fn warn_once(py: Python<'_>, source: &str, target: &str) -> Result<()> {
    if WAS_GIVEN.load(Ordering::Relaxed) || !is_recording(py, source)? {
        return Ok(());
    }
    if WAS_GIVEN.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let alternative = if source != target && ["torch", "jax", "tensorflow"].contains(&target) {
        format!("decorate the function with @ferry.via(\"{target}\", grad=True)")
    } else {
        format!("compute with functions of {source}, which keep the gradient")
    };
    let message = CString::new(format!(
        "a {source} tensor that requires a gradient was converted to {target} without it: no gradient flows back \
         through the result\n\
         hint: pass x.detach() if none is needed, or {alternative}"
    ))
    .map_err(PyErr::from)?;
    Ok(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?)
}

/// Whether the framework records operations for gradients on this thread. A framework without such a switch always does.
fn is_recording(py: Python<'_>, framework: &str) -> PyResult<bool> {
    let modules = py.import("sys")?.getattr("modules")?;
    let module = modules.call_method1("get", (framework,))?;
    match module.getattr_opt("is_grad_enabled")? {
        Some(question) => question.call0()?.is_truthy(),
        None => Ok(true),
    }
}
