//! Tensors that the table has given: their ownership, and their borrow.

use crate::element::TensorElement;
use crate::ndarray_layout::{self, RawView};
use crate::table;
use ndarray::{Axis, Dimension, RawArrayView};
use pyo3::Borrowed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;
use tensorferry_core::c_api::{ANY_RANK, NO_STREAM, Request};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dlpack::ManagedOwner;
use tensorferry_core::dlpack::abi::{FLAG_IS_COPIED, ManagedTensorVersioned, RawDevice, RawTensor};

/// A struct of DLPack's that is released when the value is dropped.
#[derive(Debug)]
pub(crate) struct ManagedStruct {
    pointer: NonNull<ManagedTensorVersioned>,
    _owner: ManagedOwner,
}

impl ManagedStruct {
    /// Takes ownership of a struct.
    ///
    /// # Safety
    /// The struct is valid, with `ndim` numbers in its shape and strides, and nothing else releases it.
    #[inline]
    pub(crate) unsafe fn new(pointer: NonNull<ManagedTensorVersioned>) -> Self {
        // SAFETY: the struct is valid and nothing else releases it, by the contract of this function.
        Self { pointer, _owner: unsafe { ManagedOwner::versioned(pointer) } }
    }

    /// Reads a tensor by the table.
    #[inline]
    pub(crate) fn take(object: Borrowed<'_, '_, PyAny>, request: &Request) -> PyResult<Self> {
        // SAFETY: the result of `take` is valid until its deleter is called, and belongs to the caller (`tensorferry.h`).
        table::take(object, request).map(|pointer| unsafe { Self::new(pointer) })
    }

    pub(crate) fn pointer(&self) -> NonNull<ManagedTensorVersioned> {
        self.pointer
    }

    /// The tensor in the struct: its arrays have `ndim` numbers.
    #[inline]
    pub(crate) fn tensor(&self) -> &RawTensor {
        // SAFETY: the struct is valid by the contract of `new`, until `_owner` is dropped with this value. Nothing writes it.
        unsafe { &(*self.pointer.as_ptr()).dl_tensor }
    }

    /// Whether the memory is a copy that tensorferry made for this struct.
    #[inline]
    pub(crate) fn is_copied(&self) -> bool {
        // SAFETY: as in `tensor`.
        unsafe { (*self.pointer.as_ptr()).flags & FLAG_IS_COPIED != 0 }
    }
}

/// What keeps the memory of a view alive.
#[derive(Debug)]
pub(crate) enum ViewOwner {
    /// The view's own struct, which borrows the memory if it is not a copy.
    Own(ManagedStruct),
    /// The copy of the `AnyTensor` that the view was made from.
    Shared(Rc<ManagedStruct>),
}

impl ViewOwner {
    #[inline]
    fn managed(&self) -> &ManagedStruct {
        match self {
            Self::Own(managed) => managed,
            Self::Shared(managed) => managed,
        }
    }
}

/// The memory of a view: borrowed, alive, and of the type and rank of `V`.
///
/// The array is made at each use, which is quicker than to move one around with the struct.
pub(crate) struct ViewMemory<'py, V> {
    owner: ViewOwner,
    pub(crate) object: Bound<'py, PyAny>,
    array: PhantomData<V>,
}

impl<'py, V: RawView> ViewMemory<'py, V> {
    /// Reads a host tensor of this type and rank by the table, and borrows it.
    #[inline]
    pub(crate) fn take(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let dtype = V::Element::RAW_DTYPE;
        let request = Request {
            dtypes: &raw const dtype,
            dtype_count: 1,
            device: HOST,
            // No rank of ndarray's static dimensions is over 6.
            rank: V::Dim::NDIM.map_or(ANY_RANK, |rank| rank as i32),
            writable: i32::from(V::IS_MUTABLE),
            stream: NO_STREAM,
            borrow: 1,
            ..Request::INIT
        };
        Self::of_owner(object, ViewOwner::Own(ManagedStruct::take(object, &request)?))
    }

    #[inline]
    fn of_owner(object: Borrowed<'_, 'py, PyAny>, owner: ViewOwner) -> PyResult<Self> {
        // SAFETY: a `ManagedStruct` has a valid tensor with `ndim` numbers in its arrays.
        unsafe { ndarray_layout::check::<V>(owner.managed().tensor()) }?;
        let memory = Self { owner, object: object.to_owned(), array: PhantomData };
        if V::Element::IS_BOOL {
            check_bools(memory.array())?;
        }
        Ok(memory)
    }

    /// The elements: readable, and writable if `V` is mutable, as long as this value exists.
    #[inline]
    pub(crate) fn array(&self) -> V {
        // SAFETY: a `ManagedStruct` has a valid tensor, and `of_owner` or `with_dimension` has checked it for `V`. Only `take` makes
        // memory for mutable views, and its request refuses elements that overlap.
        unsafe { ndarray_layout::raw_view(self.owner.managed().tensor()) }
    }

    /// Whether the memory is a copy.
    #[inline]
    pub(crate) fn is_copied(&self) -> bool {
        match &self.owner {
            ViewOwner::Own(managed) => managed.is_copied(),
            ViewOwner::Shared(_) => true,
        }
    }

    /// The lengths of the dimensions.
    #[inline]
    pub(crate) fn shape(&self) -> &[usize] {
        // SAFETY: a `ManagedStruct` has a valid tensor, and `of_owner` has checked its shape.
        unsafe { ndarray_layout::lengths(self.owner.managed().tensor()) }
    }
}

impl<'py, T: TensorElement, D: Dimension> ViewMemory<'py, RawArrayView<T, D>> {
    /// The memory of a copy, which nothing writes.
    ///
    /// # Errors
    /// When the memory is not of the type and rank, or `bool`s are invalid.
    pub(crate) fn of_copy(object: Borrowed<'_, 'py, PyAny>, copy: Rc<ManagedStruct>) -> PyResult<Self> {
        Self::of_owner(object, ViewOwner::Shared(copy))
    }

    /// The same memory with another type of dimension. One of another rank drops the memory.
    pub(crate) fn with_dimension<E: Dimension>(self) -> Option<ViewMemory<'py, RawArrayView<T, E>>> {
        if E::NDIM.is_some_and(|rank| rank != self.shape().len()) {
            return None;
        }
        let Self { owner, object, .. } = self;
        Some(ViewMemory { owner, object, array: PhantomData })
    }
}

/// The host, for requests.
pub(crate) const HOST: RawDevice = RawDevice { device_type: DeviceKind::Cpu as i32, device_id: 0 };

/// Refuses bytes that are not values of Rust's `bool`.
fn check_bools(array: impl RawView) -> PyResult<()> {
    // SAFETY: the elements are readable while `of_owner` has their memory, and the result is used here only.
    let mut bytes = unsafe { array.bytes() };
    // Elements that are repeated are read once.
    for axis in (0..bytes.ndim()).map(Axis) {
        if bytes.len_of(axis) > 1 && bytes.stride_of(axis) == 0 {
            bytes.collapse_axis(axis, 0);
        }
    }
    // Without a branch, so that it is vectorised.
    let all_bits = bytes.fold(0, |bits, byte| bits | byte);
    if all_bits <= 1 {
        return Ok(());
    }
    let invalid = bytes.iter().find(|byte| **byte > 1).copied().unwrap_or(all_bits);
    Err(PyValueError::new_err(format!(
        "the bool tensor has the byte {invalid}, and this function accepts 0 and 1\nhint: pass x != 0, which has valid bytes"
    )))
}
