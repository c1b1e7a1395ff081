//! Python functions that list the fast paths and record the probes of Python code.

use super::register::{State, is_enabled, record, state_of};
use super::table::{FastPath, ROWS};
use crate::errors::{Result, fail};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use tensorferry_core::ErrorKind;

/// One dict per fast path: name, framework, private API, public fallback, probe, state in this process ("unused",
/// "active", "disabled", "missing" or "failed") and, where it is not used, the reason.
#[pyfunction]
pub(crate) fn _fast_paths(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let describe = |path: FastPath| match (is_enabled(path), state_of(py, path)) {
        (false, _) => ("disabled", Some("disabled by TENSORFERRY_DISABLE".to_owned())),
        (true, State::Unused) => ("unused", None),
        (true, State::Active) => ("active", None),
        (true, State::Missing(reason)) => ("missing", Some(reason)),
        (true, State::Failed(reason)) => ("failed", Some(reason)),
    };
    let rows = ROWS.iter().map(|row| {
        let (state, reason) = describe(row.path);
        let texts = [
            ("name", row.name),
            ("framework", row.framework()),
            ("calls", row.calls),
            ("fallback", row.fallback),
            ("probe", row.probe),
            ("state", state),
        ];
        let row = texts.into_py_dict(py)?;
        row.set_item("reason", reason)?;
        Ok(row)
    });
    rows.collect()
}

/// Whether a fast path of Python code is enabled.
#[pyfunction]
pub(crate) fn _fast_path_enabled(name: &str) -> Result<bool> {
    Ok(is_enabled(find(name)?))
}

/// Records the outcome of a probe in Python code; `reason` is given where it failed.
#[pyfunction]
#[pyo3(signature = (name, reason=None))]
pub(crate) fn _fast_path_probed(py: Python<'_>, name: &str, reason: Option<String>) -> Result<()> {
    record(py, find(name)?, reason.map_or(State::Active, State::Failed));
    Ok(())
}

fn find(name: &str) -> Result<FastPath> {
    ROWS.iter().find(|row| row.name == name).map(|row| row.path).ok_or_else(|| {
        fail(
            ErrorKind::InvalidArgument,
            format!("unknown fast path \"{name}\""),
            "use a name from _native._fast_paths()",
        )
    })
}
