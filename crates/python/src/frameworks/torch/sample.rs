//! Sample tensors for probes.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyModule};

/// A tensor to try things with.
pub(super) fn sample<'py>(torch: &Bound<'py, PyModule>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = torch.py();
    let place = "cpu".into_pyobject(py)?.into_any();
    let options = [("dtype", torch.getattr(dtype)?), ("device", place)].into_py_dict(py)?;
    torch.getattr("empty")?.call((1,), Some(&options))
}
