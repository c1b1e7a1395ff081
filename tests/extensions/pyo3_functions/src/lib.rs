//! Functions with which the tests reach every function of `tensorferry-pyo3`.

#![deny(unsafe_code)]

use ndarray::{Array, ArrayD, Axis, IxDyn, arr0, s};
use numpy::{PyReadonlyArrayDyn, PyReadwriteArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ptr::NonNull;
use tensorferry_pyo3::half::{bf16, f16};
use tensorferry_pyo3::num_complex::{Complex32, Complex64};
use tensorferry_pyo3::{
    AnyTensor, BoolByte, DType, Ix0, Ix1, Ix3, TensorElement, TensorView, TensorViewMut, wrap,
};

/// Evaluates an expression in which `$T` is the Rust type of a dtype.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::Bool => {
                type $T = bool;
                $body
            }
            DType::Int8 => {
                type $T = i8;
                $body
            }
            DType::Int16 => {
                type $T = i16;
                $body
            }
            DType::Int32 => {
                type $T = i32;
                $body
            }
            DType::Int64 => {
                type $T = i64;
                $body
            }
            DType::UInt8 => {
                type $T = u8;
                $body
            }
            DType::UInt16 => {
                type $T = u16;
                $body
            }
            DType::UInt32 => {
                type $T = u32;
                $body
            }
            DType::UInt64 => {
                type $T = u64;
                $body
            }
            DType::Float16 => {
                type $T = f16;
                $body
            }
            DType::BFloat16 => {
                type $T = bf16;
                $body
            }
            DType::Float32 => {
                type $T = f32;
                $body
            }
            DType::Float64 => {
                type $T = f64;
                $body
            }
            DType::Complex64 => {
                type $T = Complex32;
                $body
            }
            DType::Complex128 => {
                type $T = Complex64;
                $body
            }
            other => Err(PyValueError::new_err(format!("{other} has no Rust type"))),
        }
    };
}

fn dtype_named(name: &str) -> PyResult<DType> {
    DType::from_name(name).ok_or_else(|| PyValueError::new_err(name.to_owned()))
}

/// Dtype, shape, device, rank, and whether it was copied.
#[pyfunction]
fn describe(x: AnyTensor<'_>) -> (&'static str, Vec<usize>, String, usize, bool) {
    (x.dtype().name(), x.shape().to_vec(), x.device().to_string(), x.rank(), x.is_copied())
}

/// A copy of the elements, read by a view of any rank, and whether the view was a copy.
#[pyfunction]
fn copied<'py>(x: AnyTensor<'py>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    fn copy<'py, T: TensorElement>(view: &TensorView<'py, T>) -> PyResult<(Bound<'py, PyAny>, bool)> {
        Ok((wrap(view.object().py(), view.as_ndarray().to_owned(), "numpy")?, view.is_copied()))
    }
    with_type!(x.dtype(), T => copy(&x.object().extract::<TensorView<'py, T>>()?))
}

/// As `copied`, through `AnyTensor::view`.
#[pyfunction]
fn copied_by_any<'py>(x: AnyTensor<'py>) -> PyResult<Bound<'py, PyAny>> {
    with_type!(x.dtype(), T => {
        let view = x.view::<T, IxDyn>()?;
        wrap(x.object().py(), view.as_ndarray().to_owned(), "numpy")
    })
}

/// The elements in another type, and whether they were copied for it.
#[pyfunction]
fn cast<'py>(x: AnyTensor<'py>, dtype: &str) -> PyResult<(Bound<'py, PyAny>, bool)> {
    with_type!(dtype_named(dtype)?, T => {
        let cast = x.cast::<T>()?;
        Ok((x.wrap_like(cast.as_ndarray().to_owned())?, cast.is_copied()))
    })
}

/// The address and the strides of a view in elements, and its elements as a slice if it has one.
#[pyfunction]
fn layout(x: TensorView<'_, f32>) -> (usize, Vec<isize>, Option<Vec<f32>>) {
    let array = x.as_ndarray();
    (array.as_ptr() as usize, array.strides().to_vec(), x.as_slice().map(<[f32]>::to_vec))
}

/// Adds the index of each element in logical order, in place.
#[pyfunction]
fn add_indices(mut x: TensorViewMut<'_, f32>) {
    for (index, value) in x.as_ndarray_mut().iter_mut().enumerate() {
        *value += index as f32;
    }
}

/// Inverts in place; all elements must be valid.
#[pyfunction]
fn invert(mut x: TensorViewMut<'_, bool>) {
    x.as_ndarray_mut().mapv_inplace(|value| !value);
}

/// The bytes of a bool tensor, and its values.
#[pyfunction]
fn bool_bytes(x: TensorView<'_, BoolByte>) -> (Vec<u16>, Vec<bool>) {
    let array = x.as_ndarray();
    (
        array.iter().map(|element| element.byte().into()).collect(),
        array.iter().map(|element| element.get()).collect(),
    )
}

/// Tensors of fixed ranks.
#[pyfunction]
fn ranks(
    scalar: TensorView<'_, f64, Ix0>,
    line: TensorView<'_, i64, Ix1>,
    cube: TensorView<'_, u8, Ix3>,
) -> (f64, usize, usize) {
    (scalar.as_ndarray().into_scalar().to_owned(), line.as_ndarray().len(), cube.as_ndarray().len())
}

/// An argument that may be missing.
#[pyfunction]
#[pyo3(signature = (x = None))]
fn optional(x: Option<TensorView<'_, f32>>) -> Option<f32> {
    x.map(|x| x.as_ndarray().sum())
}

/// Calls a function while a view exists.
#[pyfunction]
fn with_view<'py>(x: TensorView<'py, f32>, function: Bound<'py, PyAny>) -> PyResult<f32> {
    function.call0()?;
    Ok(x.as_ndarray().sum())
}

/// Calls a function while a mutable view exists.
#[pyfunction]
fn with_view_mut<'py>(x: TensorViewMut<'py, f32>, function: Bound<'py, PyAny>) -> PyResult<f32> {
    function.call0()?;
    Ok(x.as_ndarray().sum())
}

/// Calls a function while a cast tensor exists.
#[pyfunction]
fn with_cast<'py>(x: AnyTensor<'py>, function: Bound<'py, PyAny>) -> PyResult<f64> {
    let values = x.cast::<f64>()?;
    function.call0()?;
    Ok(values.as_ndarray().sum())
}

/// Calls a function between the extraction and the view, and returns a copy of the elements.
#[pyfunction]
fn call_then_view<'py>(x: AnyTensor<'py>, function: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    function.call0()?;
    wrap(x.object().py(), x.view::<f32, IxDyn>()?.as_ndarray().to_owned(), "numpy")
}

/// Calls a function with the address of the struct of a tensor that is used on a stream.
#[pyfunction]
fn with_struct<'py>(x: Bound<'py, PyAny>, stream: i64, function: Bound<'py, PyAny>) -> PyResult<()> {
    let tensor = AnyTensor::on_stream(&x, stream)?;
    function.call1((tensor.as_dlpack().as_ptr() as usize,))?;
    Ok(())
}

/// The struct at an address, which the caller gives up, as a tensor of the framework of another one.
#[pyfunction]
#[expect(unsafe_code, reason = "the function that it calls is unsafe")]
fn wrap_struct(like: AnyTensor<'_>, address: usize) -> PyResult<Bound<'_, PyAny>> {
    let tensor = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
    let tensor = tensor.ok_or_else(|| PyValueError::new_err("no address"))?;
    // SAFETY: the tests pass the address of a valid struct that nothing else releases or uses.
    unsafe { like.wrap_dlpack_like(tensor) }
}

/// The errors of each kind of view of a tensor.
#[pyfunction]
fn view_errors(x: AnyTensor<'_>) -> Vec<PyErr> {
    let object = x.object();
    [
        object.extract::<TensorView<'_, f32>>().err(),
        object.extract::<TensorViewMut<'_, f32>>().err(),
        x.view::<f32, IxDyn>().err(),
        x.cast::<f32>().err(),
        x.cast::<f64>().err(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Calls a function while rust-numpy reads.
#[pyfunction]
fn with_numpy_readonly<'py>(x: PyReadonlyArrayDyn<'py, f32>, function: Bound<'py, PyAny>) -> PyResult<f32> {
    function.call0()?;
    Ok(x.as_array().sum())
}

/// Calls a function while rust-numpy writes.
#[pyfunction]
fn with_numpy_readwrite<'py>(x: PyReadwriteArrayDyn<'py, f32>, function: Bound<'py, PyAny>) -> PyResult<f32> {
    function.call0()?;
    Ok(x.as_array().sum())
}

/// Reads two tensors.
#[pyfunction]
fn add<'py>(x: TensorView<'py, f32>, y: TensorView<'py, f32>) -> PyResult<Bound<'py, PyAny>> {
    x.wrap_like(&x.as_ndarray() + &y.as_ndarray())
}

/// Reads one tensor and writes another.
#[pyfunction]
fn add_to(mut x: TensorViewMut<'_, f32>, y: TensorView<'_, f32>) {
    x.as_ndarray_mut().zip_mut_with(&y.as_ndarray(), |x, y| *x += y);
}

/// The array `0, 1, 2, ...` of a shape in a layout, as a tensor of a framework, and the address of its first element.
#[pyfunction]
fn arranged<'py>(py: Python<'py>, name: &str, framework: &str) -> PyResult<(Bound<'py, PyAny>, usize)> {
    let count = |shape: &[usize]| -> ArrayD<f32> {
        let mut next = 0.0;
        Array::from_shape_fn(shape, |_| {
            next += 1.0;
            next - 1.0
        })
    };
    let array = match name {
        "dense" => count(&[3, 4]),
        "transposed" => count(&[3, 4]).reversed_axes(),
        "reversed" => {
            let mut array = count(&[3, 4]);
            array.invert_axis(Axis(0));
            array
        }
        "sliced" => count(&[6, 8]).slice_move(s![1..;2, ..;2]).into_dyn(),
        "empty" => count(&[0, 4]),
        "scalar" => arr0(7.0).into_dyn(),
        "deep" => count(&[1, 2, 1, 2, 1, 2, 1]),
        _ => return Err(PyValueError::new_err(name.to_owned())),
    };
    let address = array.as_ptr() as usize;
    Ok((wrap(py, array, framework)?, address))
}

/// The module.
#[pymodule]
mod tensorferry_test_pyo3 {
    #[pymodule_export]
    use super::{
        add, add_indices, add_to, arranged, bool_bytes, call_then_view, cast, copied, copied_by_any,
        describe, invert, layout, optional, ranks, view_errors, with_cast, with_numpy_readonly,
        with_numpy_readwrite, with_struct, with_view, with_view_mut, wrap_struct,
    };
}
