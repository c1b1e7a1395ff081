//! Five functions over tensors of every framework.

#![forbid(unsafe_code)]

use ndarray::{Array1, Axis};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry_pyo3::{AnyTensor, DType, Ix2, TensorView, TensorViewMut};

/// Divides each row by its norm.
#[pyfunction]
fn normalise<'py>(x: TensorView<'py, f32, Ix2>, eps: f32) -> PyResult<Bound<'py, PyAny>> {
    let a = x.as_ndarray();
    let norm = a.map_axis(Axis(1), |row| row.dot(&row).sqrt() + eps);
    x.wrap_like(&a / &norm.insert_axis(Axis(1)))
}

/// Multiplies all elements by a factor, in the tensor's own memory.
#[pyfunction]
fn scale_in_place(mut x: TensorViewMut<'_, f32>, factor: f32) {
    x.as_ndarray_mut().mapv_inplace(|value| value * factor);
}

/// The sum of each row: in the type of the tensor if it is float32 or float64, and otherwise in float64.
#[pyfunction]
fn row_sums<'py>(x: AnyTensor<'py>) -> PyResult<Bound<'py, PyAny>> {
    match x.dtype() {
        DType::Float32 => x.wrap_like(x.view::<f32, Ix2>()?.as_ndarray().sum_axis(Axis(1))),
        DType::Float64 => x.wrap_like(x.view::<f64, Ix2>()?.as_ndarray().sum_axis(Axis(1))),
        _ => {
            let values = x.cast::<f64>()?.into_dimensionality::<Ix2>()?;
            x.wrap_like(values.as_ndarray().sum_axis(Axis(1)))
        }
    }
}

/// The number of true elements along the first axis.
#[pyfunction]
fn count_true<'py>(mask: TensorView<'py, bool, Ix2>) -> PyResult<Bound<'py, PyAny>> {
    let counts: Array1<i32> =
        mask.as_ndarray().map_axis(Axis(0), |column| column.iter().filter(|&&is| is).count() as i32);
    mask.wrap_like(counts)
}

/// The matrix product, without the GIL.
#[pyfunction]
fn matmul<'py>(
    py: Python<'py>,
    a: TensorView<'py, f32, Ix2>,
    b: TensorView<'py, f32, Ix2>,
) -> PyResult<Bound<'py, PyAny>> {
    let (left, right) = (a.as_ndarray(), b.as_ndarray());
    if left.ncols() != right.nrows() {
        return Err(PyValueError::new_err(format!(
            "the shapes {:?} and {:?} have no matrix product",
            a.shape(),
            b.shape()
        )));
    }
    let product = py.detach(|| left.dot(&right));
    a.wrap_like(product)
}

/// The module.
#[pymodule]
fn tensorferry_example_pyo3(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(normalise, module)?)?;
    module.add_function(wrap_pyfunction!(scale_in_place, module)?)?;
    module.add_function(wrap_pyfunction!(row_sums, module)?)?;
    module.add_function(wrap_pyfunction!(count_true, module)?)?;
    module.add_function(wrap_pyfunction!(matmul, module)?)?;
    Ok(())
}
