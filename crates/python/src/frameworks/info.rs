//! `ferry.frameworks()`: the supported frameworks, their versions, and whether they are loaded. Imports none of them.

use super::builtin_frameworks::{Entry, REGISTER};
use super::import::is_installed;
use super::{IMPORT_ORDERS, check_import, user_frameworks};
use crate::errors::Result;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// One framework that `to` supports.
///
/// Example:
///     >>> ferry.frameworks()[0].name
///     'numpy'
#[expect(rustdoc::broken_intra_doc_links, reason = "a docstring of Python")]
#[pyclass(frozen, get_all, module = "tensorferry", name = "FrameworkInfo")]
pub(crate) struct FrameworkInfo {
    /// The name in `to(x, name)`.
    name: String,
    /// The framework's own spelling of its name.
    title: String,
    /// The installed version; None if it is not installed, or was registered with register_framework.
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

/// The frameworks that `to` supports, and whether they are installed and loaded. Imports none of them.
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
        .map(|entry| inspect(py, entry))
        .collect::<PyResult<Vec<_>>>()?;
    user_frameworks::load_entry_points(py)?;
    found.extend(user_frameworks::names(py).into_iter().map(|name| FrameworkInfo {
        title: name.clone(),
        name,
        version: None,
        installed: true,
        loaded: true,
    }));
    Ok(found)
}

fn inspect(py: Python<'_>, entry: &Entry) -> PyResult<FrameworkInfo> {
    let loaded = py.import("sys")?.getattr("modules")?.contains(entry.module)?;
    let top = entry.module.split('.').next().unwrap_or(entry.module);
    let installed = loaded || is_installed(py, top)?;
    Ok(FrameworkInfo {
        name: entry.name.to_owned(),
        title: entry.title.to_owned(),
        version: if installed { version(py, entry)? } else { None },
        installed,
        loaded,
    })
}

/// Raises FrameworkNotFoundError if an import of the module would kill the process.
#[pyfunction]
pub(crate) fn _check_import(py: Python<'_>, module: &str) -> Result<()> {
    check_import(py, module)
}

/// The import orders that kill the process: the module to import first, the one to import after it, the framework that
/// imports the first, and the observed signal.
#[pyfunction]
pub(crate) fn _import_orders() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    IMPORT_ORDERS.iter().map(|order| (order.first, order.second, order.framework, order.observed)).collect()
}

/// The version of the first installed distribution of a framework.
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
