//! Arrays of ndarray as tensors of a framework.

use crate::acquire::ManagedStruct;
use crate::element::TensorElement;
use crate::ndarray_layout::export;
use crate::table;
use ndarray::{Array, Dimension};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::mem;

/// Returns an array as a new tensor of the framework with this name, such as `"torch"` or `"numpy"`.
///
/// The memory of the array moves into the tensor, and is copied only if the framework cannot use it.
///
/// ```no_run
/// use ndarray::Array1;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn squares<'py>(py: Python<'py>, count: u32, framework: &str) -> PyResult<Bound<'py, PyAny>> {
///     let squares: Array1<f32> = (0..count).map(|number| (number * number) as f32).collect();
///     tensorferry_pyo3::wrap(py, squares, framework)
/// }
/// ```
///
/// # Errors
/// `ImportError` if the framework is not installed, and the framework's own, for example if it does not have the dtype.
pub fn wrap<'py, T: TensorElement, D: Dimension>(
    py: Python<'py>,
    array: Array<T, D>,
    framework: &str,
) -> PyResult<Bound<'py, PyAny>> {
    wrap_array(array, PyString::new(py, framework).as_any().as_borrowed())
}

/// As [`wrap()`], for the framework of a tensor or with a name.
pub(crate) fn wrap_array<'py, T: TensorElement, D: Dimension>(
    array: Array<T, D>,
    like_or_name: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `export` made a valid struct, which belongs to this function.
    let managed = unsafe { ManagedStruct::new(export(array)?) };
    // SAFETY: the struct is valid. On success it is forgotten here, so that only the table releases it, and nothing else refers
    // to its memory, which the array owned. After an error `managed` releases it.
    let made = unsafe { table::wrap(like_or_name.py(), managed.pointer(), like_or_name) }?;
    mem::forget(managed);
    Ok(made)
}
