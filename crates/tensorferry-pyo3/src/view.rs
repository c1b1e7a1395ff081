//! `TensorView`: a host tensor of one type, for reading.

use crate::acquire::ViewMemory;
use crate::element::TensorElement;
use crate::wrap::wrap_array;
use ndarray::{Array, ArrayView, Dimension, IxDyn, RawArrayView};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{Borrowed, FromPyObject};
use std::fmt;

/// A tensor of any framework in host memory, for reading, as a [`PyO3`](pyo3) argument.
///
/// `T` is the type of the elements, and `D` the rank: `Ix0` to `Ix6`, or `IxDyn` for any.
///
/// ```no_run
/// use ndarray::Axis;
/// use pyo3::prelude::*;
/// use tensorferry_pyo3::{Ix2, TensorView};
///
/// #[pyfunction]
/// fn normalise<'py>(x: TensorView<'py, f32, Ix2>, eps: f32) -> PyResult<Bound<'py, PyAny>> {
///     let a = x.as_ndarray();
///     let norm = a.map_axis(Axis(1), |row| row.dot(&row).sqrt() + eps);
///     x.wrap_like(&a / &norm.insert_axis(Axis(1)))
/// }
/// ```
///
/// # What is accepted
///
/// - Tensors of every framework that tensorferry knows, and objects with DLPack, the buffer protocol or the array interface.
/// - The dtype must be that of `T`: another one raises `TypeError`. [`AnyTensor::cast`](crate::AnyTensor::cast) converts.
/// - The rank must be that of `D`: another one raises `ValueError`.
/// - A tensor on a GPU raises `ValueError`. It is never downloaded.
/// - Strides may be negative or zero. Byte-swapped and unaligned elements are copied, and so are values that the framework has not
///   computed yet, such as a lazy conjugation. [`is_copied`](Self::is_copied) is true then.
/// - The bytes of a `bool` tensor are checked when the view is made, which reads all of it. [`BoolByte`](crate::BoolByte) avoids
///   that.
///
/// # Borrows
///
/// The view is a shared borrow of its memory in tensorferry's table of borrows, until it is dropped. While it exists,
/// a [`TensorViewMut`](crate::TensorViewMut) of the same memory raises `BorrowError`, in every extension module that uses the
/// table, and so does a `PyReadwriteArray` of rust-numpy for the same array. A copy borrows the memory only while it is made. The [crate documentation](crate#what-other-code-can-still-do) says what
/// the table cannot prevent.
///
/// # What the compiler refuses
///
/// An array outlives neither its view nor the argument:
///
/// ```compile_fail,E0515
/// # use tensorferry_pyo3::{TensorView, IxDyn};
/// # use ndarray::ArrayView;
/// fn escape<'py>(x: TensorView<'py, f32>) -> ArrayView<'py, f32, IxDyn> {
///     x.as_ndarray()
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use tensorferry_pyo3::TensorView;
/// fn use_after_release(x: TensorView<'_, f32>) -> f32 {
///     let a = x.as_ndarray();
///     drop(x);
///     a.sum()
/// }
/// ```
///
/// A view does not outlive the call, for example in a class or on a thread-local list:
///
/// ```compile_fail,E0521
/// # use std::cell::RefCell;
/// # use tensorferry_pyo3::TensorView;
/// thread_local! {
///     static KEPT: RefCell<Vec<TensorView<'static, f32>>> = RefCell::default();
/// }
///
/// fn keep(x: TensorView<'_, f32>) {
///     KEPT.with_borrow_mut(|kept| kept.push(x));
/// }
/// ```
///
/// ```compile_fail,E0106
/// # use pyo3::prelude::*;
/// # use tensorferry_pyo3::TensorView;
/// #[pyclass(unsendable)]
/// struct Kept {
///     view: TensorView<f32>,
/// }
/// ```
///
/// A view stays on its thread, because its drop needs the GIL:
///
/// ```compile_fail,E0277
/// # use tensorferry_pyo3::TensorView;
/// fn send(x: TensorView<'static, f32>) {
///     std::thread::spawn(move || x.as_ndarray().sum());
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use pyo3::prelude::*;
/// # use tensorferry_pyo3::TensorView;
/// fn detach(py: Python<'_>, x: TensorView<'_, f32>) -> f32 {
///     py.detach(|| x.as_ndarray().sum())
/// }
/// ```
///
/// The array itself may be used without the GIL:
///
/// ```no_run
/// # use pyo3::prelude::*;
/// # use tensorferry_pyo3::TensorView;
/// fn detach(py: Python<'_>, x: TensorView<'_, f32>) -> f32 {
///     let a = x.as_ndarray();
///     py.detach(|| a.sum())
/// }
/// ```
pub struct TensorView<'py, T: TensorElement, D: Dimension = IxDyn>(ViewMemory<'py, RawArrayView<T, D>>);

impl<'a, 'py, T: TensorElement, D: Dimension> FromPyObject<'a, 'py> for TensorView<'py, T, D> {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        ViewMemory::take(object).map(Self)
    }
}

impl<T: TensorElement + fmt::Debug, D: Dimension> fmt::Debug for TensorView<'_, T, D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TensorView").field(&self.as_ndarray()).finish()
    }
}

impl<'py, T: TensorElement, D: Dimension> TensorView<'py, T, D> {
    /// A view of memory that is borrowed, or that nothing else refers to.
    pub(crate) fn new(memory: ViewMemory<'py, RawArrayView<T, D>>) -> Self {
        Self(memory)
    }

    /// The elements as a view of ndarray's.
    #[inline]
    pub fn as_ndarray(&self) -> ArrayView<'_, T, D> {
        // SAFETY: `ndarray_layout::check` has accepted type, alignment and lengths. `ViewMemory` keeps the memory alive and borrowed as long as
        // `self`, which the result borrows, so no `TensorViewMut` writes it meanwhile. The other writers are excluded by the
        // rules in the crate documentation.
        unsafe { self.0.array().deref_into_view() }
    }

    /// The elements as a slice, if they are contiguous in row-major order.
    #[inline]
    pub fn as_slice(&self) -> Option<&[T]> {
        self.as_ndarray().to_slice()
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

    /// Whether the view is of a copy, and not of the tensor's own memory.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.0.is_copied()
    }

    /// The object that was passed.
    #[inline]
    pub fn object(&self) -> &Bound<'py, PyAny> {
        &self.0.object
    }

    /// The same view with another type of dimension, such as `Ix2` for a view with `IxDyn`.
    ///
    /// # Errors
    /// `ValueError` if the rank is another one.
    pub fn into_dimensionality<E: Dimension>(self) -> PyResult<TensorView<'py, T, E>> {
        let (found, expected) = (self.rank(), E::NDIM.unwrap_or_default());
        self.0.with_dimension().map(TensorView).ok_or_else(|| {
            PyValueError::new_err(format!(
                "the tensor has {found} dimensions, and this function accepts {expected}\nhint: reshape it before the call"
            ))
        })
    }

    /// Returns an array as a tensor of the framework that the argument came from: PyTorch in, PyTorch out.
    ///
    /// The memory of the array moves into the tensor, and is copied only if the framework cannot use it (JAX and TensorFlow
    /// require an alignment of 64 bytes). An argument without a framework, such as a `memoryview`, gives a NumPy array.
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
