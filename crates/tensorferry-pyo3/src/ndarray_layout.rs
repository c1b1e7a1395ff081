//! DLPack's shapes and strides in ndarray's terms, and back.
//!
//! ndarray creates views with strides that are not negative, and inverts axes afterwards. It requires a bound on the product of
//! all lengths that are not zero, which DLPack does not have for empty tensors.

use crate::element::TensorElement;
use ndarray::{
    Array, ArrayView, Axis, Dimension, Ix1, Ix2, RawArrayView, RawArrayViewMut, ShapeBuilder, StrideShape,
};
use pyo3::exceptions::{PyMemoryError, PySystemError, PyValueError};
use pyo3::prelude::*;
use std::ptr::NonNull;
use std::slice;
use tensorferry_core::dlpack::abi::{ManagedTensorVersioned, RawTensor};
use tensorferry_core::dlpack::to_versioned;
use tensorferry_core::{Access, ByteOrder, Device, Error, ErrorKind, Layout, Tensor};

/// Shape and strides, in elements.
///
/// # Errors
/// When the rank is negative, or a pointer is null although the rank is not 0.
///
/// # Safety
/// The arrays of the tensor have `ndim` numbers.
pub(crate) unsafe fn numbers(tensor: &RawTensor) -> PyResult<(&[i64], &[i64])> {
    let rank = usize::try_from(tensor.ndim).map_err(|_| contract_error("a negative rank"))?;
    if rank == 0 {
        return Ok((&[], &[]));
    }
    if tensor.shape.is_null() || tensor.strides.is_null() {
        return Err(contract_error("no shape or no strides"));
    }
    // SAFETY: both pointers were checked for null, and have `ndim` numbers by the contract of this function, which live as long
    // as the tensor.
    Ok(unsafe { (slice::from_raw_parts(tensor.shape, rank), slice::from_raw_parts(tensor.strides, rank)) })
}

/// A raw view of ndarray's, for reading or for writing. Only the first may have elements that overlap.
pub(crate) trait RawView: Sized {
    type Element: TensorElement;
    type Dim: Dimension;
    const IS_MUTABLE: bool;
    /// The same view with another type of dimension.
    type WithDim<E: Dimension>: RawView<Element = Self::Element, Dim = E, WithDim<Self::Dim> = Self>;

    /// # Safety
    /// As `RawArrayView::from_shape_ptr`, and as `RawArrayViewMut::from_shape_ptr` if the view is mutable.
    unsafe fn from_shape(shape: StrideShape<Self::Dim>, start: *mut Self::Element) -> Self;

    fn invert_axis(&mut self, axis: Axis);

    /// The same view with another type of dimension; `None` if that has another rank.
    fn with_dim<E: Dimension>(self) -> Option<Self::WithDim<E>>;

    /// The first byte of each element.
    ///
    /// # Safety
    /// The elements are readable as long as the result is used.
    unsafe fn bytes<'a>(self) -> ArrayView<'a, u8, Self::Dim>;
}

macro_rules! raw_views {
    ($($view:ident, $is_mutable:literal);*) => {$(
        impl<T: TensorElement, D: Dimension> RawView for $view<T, D> {
            type Element = T;
            type Dim = D;
            const IS_MUTABLE: bool = $is_mutable;
            type WithDim<E: Dimension> = $view<T, E>;

            #[inline]
            unsafe fn from_shape(shape: StrideShape<D>, start: *mut T) -> Self {
                // SAFETY: the contract of this function is that of `from_shape_ptr`.
                unsafe { Self::from_shape_ptr(shape, start) }
            }

            #[inline]
            fn invert_axis(&mut self, axis: Axis) {
                self.invert_axis(axis);
            }

            #[inline(always)]
            fn with_dim<E: Dimension>(self) -> Option<$view<T, E>> {
                self.into_dimensionality().ok()
            }

            unsafe fn bytes<'a>(self) -> ArrayView<'a, u8, D> {
                // SAFETY: the elements are readable by the contract of this function, and every byte is a `u8`.
                unsafe { self.cast::<u8>().deref_into_view() }
            }
        }
    )*};
}

raw_views! { RawArrayView, false; RawArrayViewMut, true }

/// Checks what [`raw_view`] relies on.
///
/// # Errors
/// When the tensor does not have the type and rank of the view or an aligned address in host memory, or when ndarray does not
/// support its shape.
///
/// # Safety
/// The arrays of the tensor have `ndim` numbers.
#[inline]
pub(crate) unsafe fn check<V: RawView>(tensor: &RawTensor) -> PyResult<()> {
    // SAFETY: the arrays have `ndim` numbers by the contract of this function.
    let (shape, _) = unsafe { numbers(tensor) }?;
    let is_other_rank = V::Dim::NDIM.is_some_and(|rank| rank != shape.len());
    if is_other_rank || tensor.dtype != V::Element::RAW_DTYPE || !is_host(tensor) {
        return Err(contract_error("a tensor of another type, rank or device"));
    }
    let (mut count, mut is_empty) = (1i64, false);
    for &length in shape {
        if length < 0 {
            return Err(contract_error("a negative length"));
        }
        is_empty |= length == 0;
        count = count.checked_mul(length.max(1)).ok_or_else(|| too_many_elements(shape))?;
    }
    let start = first_element::<V::Element>(tensor);
    if !is_empty && (start.is_null() || !start.is_aligned()) {
        return Err(contract_error("a null or unaligned address"));
    }
    Ok(())
}

/// The tensor as a view of ndarray's.
///
/// # Safety
/// The tensor is valid: its arrays have `ndim` numbers, and every element that they reach is in one allocation. [`check`] has
/// accepted it for `V`. If the view is mutable, no two elements overlap.
#[inline]
pub(crate) unsafe fn raw_view<V: RawView>(tensor: &RawTensor) -> V {
    // For vectors and matrices, ndarray is quicker with a rank that the compiler knows, also if the view is then converted.
    // SAFETY: the contract of `view_of` is that of this function, which has the tensor's rank where `V` has none.
    unsafe {
        let converted = match (V::Dim::NDIM, tensor.ndim) {
            (None, 1) => view_of::<V::WithDim<Ix1>>(tensor).with_dim::<V::Dim>(),
            (None, 2) => view_of::<V::WithDim<Ix2>>(tensor).with_dim::<V::Dim>(),
            _ => None,
        };
        converted.unwrap_or_else(|| view_of(tensor))
    }
}

/// The view that [`raw_view`] returns, made with the rank of `V`.
///
/// # Safety
/// As [`raw_view`].
#[inline(always)]
unsafe fn view_of<V: RawView>(tensor: &RawTensor) -> V {
    let rank = tensor.ndim as usize;
    let (mut lengths, mut steps) = (V::Dim::zeros(rank), V::Dim::zeros(rank));
    let mut start = first_element::<V::Element>(tensor);
    let (mut is_empty, mut is_inverted) = (false, false);
    let (to_lengths, to_steps) = (lengths.slice_mut(), steps.slice_mut());
    for (axis, (to_length, to_step)) in to_lengths.iter_mut().zip(to_steps).enumerate() {
        // SAFETY: the arrays have `ndim` numbers by the contract of this function.
        let (length, stride) = unsafe { (*tensor.shape.add(axis), *tensor.strides.add(axis)) };
        *to_length = length as usize;
        is_empty |= length == 0;
        // The stride of an axis with one element is not used, and may have any value. ndarray expects 1 in contiguous arrays.
        *to_step = if length == 1 { 1 } else { stride.unsigned_abs() as usize };
        if length > 1 && stride < 0 {
            is_inverted = true;
            // Of an empty tensor, the product may wrap, and the address is not used.
            start = start.wrapping_offset((length - 1).wrapping_mul(stride) as isize);
        }
    }
    if is_empty {
        // SAFETY: the array is empty, so the pointer may dangle, and the default strides of an empty array are 0. `check` has
        // bounded the product of the other lengths.
        return unsafe { V::from_shape(lengths.into(), NonNull::dangling().as_ptr()) };
    }
    // SAFETY: all elements lie in one allocation (the contract of this function), which has at most `isize::MAX` bytes, so
    // offsets between them do not overflow. `start` is the lowest of them, and the strides are not negative. `check` has
    // bounded the product of the lengths. Elements of a mutable view do not overlap (the same contract).
    let mut view = unsafe { V::from_shape(lengths.strides(steps), start) };
    if is_inverted {
        for axis in 0..rank {
            // SAFETY: the arrays have `ndim` numbers by the contract of this function.
            let (length, stride) = unsafe { (*tensor.shape.add(axis), *tensor.strides.add(axis)) };
            if length > 1 && stride < 0 {
                view.invert_axis(Axis(axis));
            }
        }
    }
    view
}

/// The lengths of the dimensions as ndarray counts them.
///
/// # Safety
/// The shape has `ndim` numbers, and [`check`] has accepted them.
#[inline]
pub(crate) unsafe fn lengths(tensor: &RawTensor) -> &[usize] {
    const { assert!(size_of::<usize>() == size_of::<i64>() && align_of::<usize>() == align_of::<i64>()) };
    if tensor.ndim == 0 {
        return &[];
    }
    // SAFETY: the shape has `ndim` numbers by the contract of this function. They are not negative, so that they are the same
    // number as `usize`, which has the size and the alignment of `i64`.
    unsafe { slice::from_raw_parts(tensor.shape.cast::<usize>(), tensor.ndim as usize) }
}

#[inline]
fn first_element<T>(tensor: &RawTensor) -> *mut T {
    tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast()
}

#[cold]
fn too_many_elements(shape: &[i64]) -> PyErr {
    PyValueError::new_err(format!(
        "shape {shape:?} has too many elements for an array\nhint: remove the lengths of the empty tensor"
    ))
}

/// Whether the memory is the host's: ordinary or pinned.
fn is_host(tensor: &RawTensor) -> bool {
    use tensorferry_core::device::DeviceKind::{Cpu, CudaHost};
    [Cpu as i32, CudaHost as i32].contains(&tensor.device.device_type)
}

/// Moves an array into a struct of DLPack's, whose deleter frees the memory on any thread.
///
/// # Errors
/// When memory runs out.
pub(crate) fn export<T: TensorElement, D: Dimension>(
    array: Array<T, D>,
) -> PyResult<NonNull<ManagedTensorVersioned>> {
    let shape: Vec<i64> = array.shape().iter().map(|&length| length as i64).collect();
    let strides: Vec<i64> = array.strides().iter().map(|&stride| stride as i64).collect();
    let layout = Layout::strided_by_element(size_of::<T>(), &shape, &strides).map_err(core_error)?;
    let (mut memory, offset) = array.into_raw_vec_and_offset();
    let data = memory.as_mut_ptr().wrapping_add(offset.unwrap_or(0)).cast();
    let (order, access) = (ByteOrder::Native, Access::ReadWrite);
    // SAFETY: the array had this shape, these strides and this offset within its vector, which is the owner and does not move its
    // elements. Nothing else refers to them, because the array owned them.
    let tensor = unsafe { Tensor::new(data, T::DTYPE, layout, Device::CPU, order, access, memory) };
    tensor.and_then(to_versioned).map_err(core_error)
}

/// An error of the core as a Python exception.
pub(crate) fn core_error(error: Error) -> PyErr {
    let fact = error.fact().to_owned();
    match error.kind() {
        ErrorKind::OutOfMemory => PyMemoryError::new_err(fact),
        _ => PyValueError::new_err(fact),
    }
}

/// The table returned what its contract excludes.
#[cold]
fn contract_error(found: &str) -> PyErr {
    PySystemError::new_err(format!("tensorferry's C table returned {found}"))
}
