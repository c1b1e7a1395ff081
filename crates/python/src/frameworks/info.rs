//! Which frameworks are here, found without importing any of them.

use super::register::{Entry, REGISTER};
use super::{IMPORT_ORDERS, check_import, registered};
use crate::errors::Result;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// One framework that `to` knows.
///
/// Example:
///     >>> ferry.frameworks()[0].name
///     'numpy'
#[pyclass(frozen, get_all, module = "tensorferry", name = "FrameworkInfo")]
pub(crate) struct FrameworkInfo {
    /// What to write in `to(x, name)`.
    name: String,
    /// How the framework writes itself.
    title: String,
    /// The installed version; None where it is not installed, or was registered by somebody.
    version: Option<String>,
    /// Whether it can be imported.
    installed: bool,
    /// Whether this process has imported it.
    loaded: bool,
}

#[pymethods]
impl FrameworkInfo {
    fn __repr__(&self) -> String {
        let state = match (&self.version, self.installed) {
            (Some(version), _) => version.as_str(),
            (None, true) => "registered",
            (None, false) => "not installed",
        };
        format!("<FrameworkInfo {} {state}{}>", self.name, if self.loaded { ", loaded" } else { "" })
    }
}

/// The frameworks that `to` knows, with what is installed and loaded. Imports none of them.
///
/// Returns:
///     A list of FrameworkInfo.
///
/// Example:
///     >>> [info.name for info in ferry.frameworks() if info.loaded and info.name == "numpy"]
///     ['numpy']
#[pyfunction]
pub(crate) fn frameworks(py: Python<'_>) -> Result<Vec<FrameworkInfo>> {
    let mut found = REGISTER
        .iter()
        .filter(|entry| entry.dense.is_some())
        .map(|entry| look(py, entry))
        .collect::<PyResult<Vec<_>>>()?;
    registered::load_entry_points(py)?;
    found.extend(registered::names(py).into_iter().map(|name| FrameworkInfo {
        title: name.clone(),
        name,
        version: None,
        installed: true,
        loaded: true,
    }));
    Ok(found)
}

fn look(py: Python<'_>, entry: &Entry) -> PyResult<FrameworkInfo> {
    let loaded = py.import("sys")?.getattr("modules")?.contains(entry.module)?;
    let top = entry.module.split('.').next().unwrap_or(entry.module);
    let installed = loaded || !py.import("importlib.util")?.call_method1("find_spec", (top,))?.is_none();
    Ok(FrameworkInfo {
        name: entry.name.to_owned(),
        title: entry.title.to_owned(),
        version: if installed { version(py, entry)? } else { None },
        installed,
        loaded,
    })
}

/// Raises FrameworkNotFoundError if an import of the module would end the process now.
#[pyfunction]
pub(crate) fn _check_import(py: Python<'_>, module: &str) -> Result<()> {
    check_import(py, module)
}

/// The orders of import that end the process: the module to import first, the one to import after it, the framework that
/// imports the first, and what was seen.
#[pyfunction]
pub(crate) fn _import_orders() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    IMPORT_ORDERS.iter().map(|order| (order.first, order.second, order.framework, order.seen)).collect()
}

/// The version of the first of its distributions that is installed.
fn version(py: Python<'_>, entry: &Entry) -> PyResult<Option<String>> {
    let metadata = py.import("importlib.metadata")?;
    for package in entry.distributions {
        match metadata.call_method1("version", (package,)) {
            Ok(version) => return Ok(Some(version.extract()?)),
            Err(error) if error.is_instance_of::<PyException>(py) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
