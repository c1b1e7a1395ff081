//! `TensorViewMut`: a host tensor of one type, for writing.

use crate::acquire::ViewMemory;
use crate::element::TensorElement;
use crate::wrap::wrap_array;
use ndarray::{Array, ArrayView, ArrayViewMut, Dimension, IxDyn, RawArrayViewMut};
use pyo3::prelude::*;
use pyo3::{Borrowed, FromPyObject};
use std::fmt;

/// A tensor of any framework in host memory, for writing in place, as a [`PyO3`](pyo3) argument.
///
/// ```no_run
/// use pyo3::prelude::*;
/// use tensorferry_pyo3::TensorViewMut;
///
/// #[pyfunction]
/// fn scale_in_place(mut x: TensorViewMut<'_, f64>, factor: f64) {
///     x.as_ndarray_mut().mapv_inplace(|value| value * factor);
/// }
/// ```
///
/// It accepts what [`TensorView`](crate::TensorView) accepts, but never a copy. These tensors are refused too:
///
/// - read-only ones, and those of frameworks with immutable tensors, such as JAX and TensorFlow;
/// - those whose elements overlap, such as the result of `broadcast_to`;
/// - non-leaf tensors that require a gradient.
///
/// The view is an exclusive borrow of its memory until it is dropped: another view of the same memory raises `BorrowError`.
///
/// # What the compiler refuses
///
/// Two mutable arrays of one view:
///
/// ```compile_fail,E0499
/// # use tensorferry_pyo3::TensorViewMut;
/// fn alias(mut x: TensorViewMut<'_, f32>) {
///     let mut a = x.as_ndarray_mut();
///     let mut b = x.as_ndarray_mut();
///     a += &b.view();
///     b.fill(0.0);
/// }
/// ```
///
/// An array for reading beside one for writing:
///
/// ```compile_fail,E0502
/// # use tensorferry_pyo3::TensorViewMut;
/// fn read_while_writing(mut x: TensorViewMut<'_, f32>) {
///     let a = x.as_ndarray();
///     x.as_ndarray_mut().fill(a.sum());
///     a.sum();
/// }
/// ```
///
/// An array that outlives the view:
///
/// ```compile_fail,E0515
/// # use tensorferry_pyo3::{IxDyn, TensorViewMut};
/// # use ndarray::ArrayViewMut;
/// fn escape<'py>(mut x: TensorViewMut<'py, f32>) -> ArrayViewMut<'py, f32, IxDyn> {
///     x.as_ndarray_mut()
/// }
/// ```
///
/// A view on another thread, and writes through a [`TensorView`](crate::TensorView):
///
/// ```compile_fail,E0277
/// # use tensorferry_pyo3::TensorViewMut;
/// fn send(mut x: TensorViewMut<'static, f32>) {
///     std::thread::spawn(move || x.as_ndarray_mut().fill(0.0));
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use tensorferry_pyo3::TensorView;
/// fn write(mut x: TensorView<'_, f32>) {
///     x.as_ndarray_mut().fill(0.0);
/// }
/// ```
pub struct TensorViewMut<'py, T: TensorElement, D: Dimension = IxDyn>(ViewMemory<'py, RawArrayViewMut<T, D>>);

impl<'a, 'py, T: TensorElement, D: Dimension> FromPyObject<'a, 'py> for TensorViewMut<'py, T, D> {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        ViewMemory::take(object).map(Self)
    }
}

impl<T: TensorElement + fmt::Debug, D: Dimension> fmt::Debug for TensorViewMut<'_, T, D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TensorViewMut").field(&self.as_ndarray()).finish()
    }
}

impl<'py, T: TensorElement, D: Dimension> TensorViewMut<'py, T, D> {
    /// The elements, for reading.
    #[inline]
    pub fn as_ndarray(&self) -> ArrayView<'_, T, D> {
        // SAFETY: `ndarray_layout::check` has accepted type, alignment and lengths. `ViewMemory` keeps the memory alive and exclusively borrowed as
        // long as `self`, which the result borrows, so neither another view nor `as_ndarray_mut` writes it meanwhile.
        unsafe { self.0.array().deref_into_view() }
    }

    /// The elements, for writing.
    #[inline]
    pub fn as_ndarray_mut(&mut self) -> ArrayViewMut<'_, T, D> {
        // SAFETY: `ndarray_layout::check` has accepted type, alignment and lengths. The request was for writing, so the table has refused memory that
        // is read-only and elements that overlap. `ViewMemory` keeps the memory alive and exclusively borrowed as long as
        // `self`, which the result borrows mutably, so that there is one such array.
        unsafe { self.0.array().deref_into_view_mut() }
    }

    /// The lengths of the dimensions.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.shape().len()
    }

    /// The object that was passed.
    #[inline]
    pub fn object(&self) -> &Bound<'py, PyAny> {
        &self.0.object
    }

    /// Returns an array as a tensor of the framework that the argument came from, as
    /// [`TensorView::wrap_like`](crate::TensorView::wrap_like).
    ///
    /// # Errors
    /// The framework's, for example if it does not have the dtype.
    pub fn wrap_like<U: TensorElement, E: Dimension>(
        &self,
        array: Array<U, E>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wrap_array(array, self.0.object.as_borrowed())
    }
}
