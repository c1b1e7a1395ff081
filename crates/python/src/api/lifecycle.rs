//! Callbacks for the exit of the interpreter and for forks of the process.

use crate::api::async_transfer;
use crate::c_api::borrow;
use crate::interpreter::{fork_lock, guard, once, owner};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Called by `atexit`, before the interpreter begins to finalise.
#[pyfunction]
fn interpreter_exits(py: Python<'_>) {
    owner::drop_deferred(py);
    guard::begin_exit(py);
}

/// Called in the child of a fork.
#[pyfunction]
fn after_fork_in_child(py: Python<'_>) -> PyResult<()> {
    guard::after_fork_in_child();
    owner::after_fork_in_child();
    async_transfer::after_fork_in_child();
    borrow::after_fork_in_child(py);
    fork_lock::after_fork(py)
}

/// Registers the callbacks with `atexit` and `os.register_at_fork`. `atexit` calls the last one first, so that running jobs end
/// before guards are refused.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Initialise these cells now: a fork during the first call would leave them locked in the child.
    guard::has_gil();
    once::initialise_pyo3_cells(module)?;
    let atexit = py.import("atexit")?;
    atexit.call_method1("register", (wrap_pyfunction!(interpreter_exits, module)?,))?;
    let keywords = PyDict::new(py);
    keywords.set_item("before", wrap_pyfunction!(fork_lock::before_fork, module)?)?;
    keywords.set_item("after_in_parent", wrap_pyfunction!(fork_lock::after_fork, module)?)?;
    keywords.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&keywords))?;
    atexit.call_method1("register", (wrap_pyfunction!(async_transfer::end_jobs, module)?,))?;
    Ok(())
}
