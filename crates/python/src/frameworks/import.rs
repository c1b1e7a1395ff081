//! Importing frameworks, in an order that does not end the process.

use crate::conversion::object_kinds::Builtin;
use crate::errors::{Result, fail, wrap_exception};
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::types::PyModule;
use tensorferry_core::ErrorKind;

/// Runs `work` inside of context managers, the first one outermost.
pub(crate) fn within<'py, T>(
    managers: &[Bound<'py, PyAny>],
    work: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let Some((outer, inner)) = managers.split_first() else { return work() };
    outer.call_method0("__enter__")?;
    let done = within(inner, work);
    let none = outer.py().None();
    outer.call_method1("__exit__", (&none, &none, &none))?;
    done
}

/// Two modules that one process can import in one order only; in the other order, the second import kills the process.
pub(crate) struct ImportOrder {
    /// The module that must be imported first.
    pub(crate) first: &'static str,
    /// The module that may be imported after it, and not before.
    pub(crate) second: &'static str,
    /// The framework that imports `first`: `first` itself, or one that imports it on demand.
    pub(crate) framework: &'static str,
    /// The signal that was observed, and with which versions.
    pub(crate) observed: &'static str,
}

/// The import orders that kill the process, as observed on Linux. `tensorferry doctor` tries them on the user's machine.
pub(crate) const IMPORT_ORDERS: [ImportOrder; 2] = [
    ImportOrder {
        first: "paddle",
        second: "tensorflow",
        framework: "paddle",
        observed: "SIGSEGV with Paddle 3.3 and TensorFlow 2.21",
    },
    ImportOrder {
        first: "triton",
        second: "tensorflow",
        framework: "torch",
        observed: "SIGABRT with Triton 3.9 and TensorFlow 2.21",
    },
];

/// Fails if an import of the module would kill the process. A module that is already loaded never fails, nor does one that is not
/// installed: its import raises an exception.
pub(crate) fn check_import(py: Python<'_>, module: &str) -> Result<()> {
    let top = module.split('.').next().unwrap_or(module);
    let modules = py.import("sys")?.getattr("modules")?;
    // `sys.modules[name] = None` blocks an import.
    let is_loaded =
        |name: &str| -> PyResult<bool> { Ok(modules.contains(name)? && !modules.get_item(name)?.is_none()) };
    if is_loaded(top)? {
        return Ok(());
    }
    for ImportOrder { first, second, observed, .. } in &IMPORT_ORDERS {
        if *first == top && is_loaded(second)? && is_installed(py, top)? {
            return Err(fail(
                ErrorKind::FrameworkMissing,
                format!("importing {first} after {second} would kill the process ({observed})"),
                format!("import {first} before {second}, at the start of the program"),
            ));
        }
    }
    Ok(())
}

/// Whether a top-level module can be found. Nothing is imported.
pub(super) fn is_installed(py: Python<'_>, top: &str) -> PyResult<bool> {
    Ok(!py.import("importlib.util")?.call_method1("find_spec", (top,))?.is_none())
}

/// Imports a framework's module.
pub(crate) fn import<'py>(py: Python<'py>, framework: Builtin) -> Result<Bound<'py, PyModule>> {
    let entry = framework.entry();
    check_import(py, entry.module)?;
    py.import(entry.module).map_err(|error| {
        let top = entry.module.split('.').next().unwrap_or(entry.module);
        let name =
            error.value(py).getattr("name").and_then(|name| name.extract::<String>()).unwrap_or_default();
        let missing =
            error.is_instance_of::<PyModuleNotFoundError>(py) && name.split('.').next() == Some(top);
        if missing {
            fail(
                ErrorKind::FrameworkMissing,
                format!("{} is not installed", entry.title),
                format!("pip install {}", entry.distributions[0]),
            )
        } else {
            let about = format!("{} is installed but cannot be imported", entry.title);
            wrap_exception(py, error, ErrorKind::FrameworkMissing, &about, "repair or reinstall it")
        }
    })
}
