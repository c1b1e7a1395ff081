//! Sample tensors for probes.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyModule};

/// A one-element tensor on the CPU, for probes.
pub(super) fn sample<'py>(torch: &Bound<'py, PyModule>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = torch.py();
    let device = "cpu".into_pyobject(py)?.into_any();
    let options = [("dtype", torch.getattr(dtype)?), ("device", device)].into_py_dict(py)?;
    torch.getattr("empty")?.call((1,), Some(&options))
}
