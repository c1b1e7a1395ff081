//! The sum of a tensor's elements, by tensorferry-pyo3, by rust-numpy and by dlpark.

use dlpark::TryFromDlpack;
use dlpark::python::{ImportedDlpack, from_dlpack};
use ndarray::ArrayViewD;
use numpy::{PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tensorferry_pyo3::{Ix1, TensorView};

#[pyfunction]
fn sum_view(x: TensorView<'_, f32>) -> f32 {
    x.as_ndarray().sum()
}

#[pyfunction]
fn sum_view_1d(x: TensorView<'_, f32, Ix1>) -> f32 {
    x.as_ndarray().sum()
}

#[pyfunction]
fn sum_rust_numpy(x: PyReadonlyArrayDyn<'_, f32>) -> f32 {
    x.as_array().sum()
}

#[pyfunction]
fn sum_rust_numpy_1d(x: PyReadonlyArray1<'_, f32>) -> f32 {
    x.as_array().sum()
}

#[pyfunction]
fn sum_dlpark(x: Bound<'_, PyAny>) -> PyResult<f32> {
    let imported = from_dlpack(x.as_borrowed(), None, None)?;
    // SAFETY: PyTorch exports valid host tensors, and nothing writes them during the call.
    let array = unsafe {
        match &imported {
            ImportedDlpack::Legacy(tensor) => ArrayViewD::<f32>::try_from_dlpack(tensor, ()),
            ImportedDlpack::Versioned(tensor) => ArrayViewD::<f32>::try_from_dlpack(tensor, ()),
        }
    };
    Ok(array.map_err(|error| PyTypeError::new_err(error.to_string()))?.sum())
}

#[pymodule]
mod tensorferry_bench_extension {
    #[pymodule_export]
    use super::{sum_dlpark, sum_rust_numpy, sum_rust_numpy_1d, sum_view, sum_view_1d};
}
