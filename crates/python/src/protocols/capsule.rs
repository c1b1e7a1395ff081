//! DLPack capsules: the Python objects around managed tensors.

use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use tensorferry_core::dlpack::{self, ExportOffer, ManagedOwner, abi};
use tensorferry_core::{ErrorKind, Tensor};

/// Takes the tensor out of a capsule of either form.
pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Result<Tensor<ManagedOwner>> {
    let pointer = capsule.as_ptr();
    // SAFETY: the calls take any object; `IsValid` says whether it is a capsule of that name.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, abi::VERSIONED_NAME.as_ptr()) == 1 {
            let managed = claim(capsule, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME)?;
            return Ok(dlpack::from_versioned(managed.cast())?);
        }
        if ffi::PyCapsule_IsValid(pointer, abi::LEGACY_NAME.as_ptr()) == 1 {
            let managed = claim(capsule, abi::LEGACY_NAME, abi::LEGACY_USED_NAME)?;
            return Ok(dlpack::from_legacy(managed.cast())?);
        }
    }
    Err(fail(
        ErrorKind::InvalidTensor,
        "the object holds no DLPack tensor that is still to be taken",
        "pass the tensor itself; a DLPack capsule can be consumed only once",
    ))
}

/// The tensor under an owner of this crate, which holds what the framework handed over.
#[inline]
pub(crate) fn owned(tensor: Tensor<ManagedOwner>) -> Tensor<Owner> {
    // SAFETY: `Owner::managed` holds the managed tensor, and calls its deleter no sooner than in its own drop.
    unsafe { tensor.map_owner(Owner::managed) }
}

/// Renames the capsule, which makes its tensor ours.
fn claim(
    capsule: &Bound<'_, PyAny>,
    name: &CStr,
    used: &'static CStr,
) -> PyResult<NonNull<std::ffi::c_void>> {
    // SAFETY: the caller has seen that it is a capsule of that name; `used` lives for ever.
    unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        let Some(pointer) = NonNull::new(pointer) else { return Err(PyErr::fetch(capsule.py())) };
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(pointer)
    }
}

/// A tensor on its way to a consumer.
enum Sent<O> {
    Legacy(ExportOffer<abi::ManagedTensor, O>),
    Versioned(ExportOffer<abi::ManagedTensorVersioned, O>),
}

/// A tensor in a capsule, until its consumer has imported it or failed to.
///
/// Meanwhile the capsule has no destructor. When the offer is dropped, after the call of the consumer, the capsule's name
/// tells whether the consumer has taken the tensor. Where it has not, the consumer may have released the tensor all the
/// same: `torch.from_dlpack` does so where it has no memory for its own objects. Otherwise the tensor stays the capsule's,
/// for a consumer that takes it later.
pub(crate) struct Offer<O = Owner> {
    sent: Option<Sent<O>>,
    capsule: ManuallyDrop<Py<PyAny>>,
}

impl<O> Offer<O> {
    fn new(py: Python<'_>, sent: Sent<O>) -> Result<Self> {
        let (pointer, name) = match &sent {
            Sent::Legacy(handover) => (handover.managed().as_ptr().cast(), abi::LEGACY_NAME),
            Sent::Versioned(handover) => (handover.managed().as_ptr().cast(), abi::VERSIONED_NAME),
        };
        // SAFETY: the pointer is not null, and the name lives for ever.
        let capsule =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), None)) }?;
        Ok(Self { sent: Some(sent), capsule: ManuallyDrop::new(capsule.unbind()) })
    }

    /// The capsule.
    pub(crate) fn bind<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.capsule.bind(py)
    }
}

impl<O> Drop for Offer<O> {
    fn drop(&mut self) {
        // SAFETY: offers are dropped where the interpreter is attached: by the writer that made them, and by Python with the
        // exported tensor that holds them. The reference is given back once.
        let (capsule, py) = unsafe { (ManuallyDrop::take(&mut self.capsule), Python::assume_attached()) };
        match self.sent.take() {
            Some(Sent::Legacy(handover)) => {
                settle(&capsule, handover, abi::LEGACY_NAME, abi::LEGACY_USED_NAME, free_legacy);
            }
            Some(Sent::Versioned(handover)) => {
                settle(&capsule, handover, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME, free_versioned);
            }
            None => {}
        }
        capsule.drop_ref(py);
    }
}

/// Ends a hand-over: the tensor is the consumer's now, or the capsule's, or gone.
fn settle<M, O>(
    capsule: &Py<PyAny>,
    handover: ExportOffer<M, O>,
    name: &'static CStr,
    used: &'static CStr,
    free: unsafe extern "C" fn(*mut ffi::PyObject),
) {
    // SAFETY: a live capsule; the name lives for ever; the destructor frees what nobody took, which the capsule's name tells.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 1 {
            handover.taken();
        } else if handover.is_released() {
            ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
        } else {
            ffi::PyCapsule_SetDestructor(capsule.as_ptr(), Some(free));
            handover.taken();
        }
    }
}

/// An offer, within one call.
pub(crate) struct Offered<'py, O = Owner> {
    offer: Offer<O>,
    py: Python<'py>,
}

impl<O> Offered<'_, O> {
    /// The offer, for longer than the call.
    pub(crate) fn keep(self) -> Offer<O> {
        self.offer
    }
}

impl<'py, O> Deref for Offered<'py, O> {
    type Target = Bound<'py, PyAny>;

    fn deref(&self) -> &Self::Target {
        self.offer.bind(self.py)
    }
}

/// Offers a tensor in a capsule of the form without a version.
pub(crate) fn legacy<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    let sent = Sent::Legacy(dlpack::offer_legacy(tensor)?);
    Ok(Offered { offer: Offer::new(py, sent)?, py })
}

/// Offers a tensor in a capsule of the form with a version.
pub(crate) fn versioned<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    let sent = Sent::Versioned(dlpack::offer_versioned(tensor)?);
    Ok(Offered { offer: Offer::new(py, sent)?, py })
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule that dies; its name tells whether somebody took the tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, abi::LEGACY_NAME.as_ptr()) == 1
            && let Some(managed) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, abi::LEGACY_NAME.as_ptr()))
        {
            drop(ManagedOwner::legacy(managed.cast()));
        }
    }
}

unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `free_legacy`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, abi::VERSIONED_NAME.as_ptr()) == 1
            && let Some(managed) =
                NonNull::new(ffi::PyCapsule_GetPointer(capsule, abi::VERSIONED_NAME.as_ptr()))
        {
            drop(ManagedOwner::versioned(managed.cast()));
        }
    }
}
