//! DLPack capsules: consuming them and creating them.

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

/// Consumes a capsule, versioned or legacy.
pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Result<Tensor<ManagedOwner>> {
    let pointer = capsule.as_ptr();
    // SAFETY: the calls accept any object; `IsValid` checks that it is a capsule of that name.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, abi::VERSIONED_NAME.as_ptr()) == 1 {
            let managed = consume(capsule, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME)?;
            return Ok(dlpack::from_versioned(managed.cast())?);
        }
        if ffi::PyCapsule_IsValid(pointer, abi::LEGACY_NAME.as_ptr()) == 1 {
            let managed = consume(capsule, abi::LEGACY_NAME, abi::LEGACY_USED_NAME)?;
            return Ok(dlpack::from_legacy(managed.cast())?);
        }
    }
    Err(fail(
        ErrorKind::InvalidTensor,
        "the object is not an unconsumed DLPack capsule",
        "pass the tensor itself; a DLPack capsule can be consumed only once",
    ))
}

/// Marks the capsule as consumed by renaming it. The caller then owns the managed tensor.
fn consume(
    capsule: &Bound<'_, PyAny>,
    name: &CStr,
    used: &'static CStr,
) -> PyResult<NonNull<std::ffi::c_void>> {
    // SAFETY: the caller checked that it is a capsule of that name; `used` is `'static`.
    unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        let Some(pointer) = NonNull::new(pointer) else { return Err(PyErr::fetch(capsule.py())) };
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(pointer)
    }
}

/// The export of an [`Offer`], in either form of the protocol.
enum PendingExport<O> {
    Legacy(ExportOffer<abi::ManagedTensor, O>),
    Versioned(ExportOffer<abi::ManagedTensorVersioned, O>),
}

/// A capsule during the call of its consumer.
///
/// The capsule has no destructor at first. When the offer is dropped, after the call of the consumer, the capsule's name
/// shows whether the consumer took the tensor. If it did not, it may still have released the tensor: `torch.from_dlpack`
/// does so if it runs out of memory. Otherwise the capsule becomes the owner, for a later consumer.
pub(crate) struct Offer<O = Owner> {
    export: Option<PendingExport<O>>,
    capsule: ManuallyDrop<Py<PyAny>>,
}

impl<O> Offer<O> {
    fn new(py: Python<'_>, export: PendingExport<O>) -> Result<Self> {
        let (pointer, name) = match &export {
            PendingExport::Legacy(offer) => (offer.managed().as_ptr().cast(), abi::LEGACY_NAME),
            PendingExport::Versioned(offer) => (offer.managed().as_ptr().cast(), abi::VERSIONED_NAME),
        };
        // SAFETY: the pointer is not null, and the name is `'static`.
        let capsule =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), None)) }?;
        Ok(Self { export: Some(export), capsule: ManuallyDrop::new(capsule.unbind()) })
    }

    /// The capsule.
    pub(crate) fn bind<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.capsule.bind(py)
    }
}

impl<O> Drop for Offer<O> {
    fn drop(&mut self) {
        // SAFETY: offers are dropped while the interpreter is attached: by the function that created them, or by Python with
        // the `ExportedTensor` that holds them. The reference is released once.
        let (capsule, py) = unsafe { (ManuallyDrop::take(&mut self.capsule), Python::assume_attached()) };
        match self.export.take() {
            Some(PendingExport::Legacy(offer)) => {
                settle(&capsule, offer, abi::LEGACY_NAME, abi::LEGACY_USED_NAME, free_legacy);
            }
            Some(PendingExport::Versioned(offer)) => {
                settle(&capsule, offer, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME, free_versioned);
            }
            None => {}
        }
        capsule.drop_ref(py);
    }
}

/// Ends an offer: the consumer owns the tensor, or has released it, or the capsule becomes the owner.
fn settle<M, O>(
    capsule: &Py<PyAny>,
    offer: ExportOffer<M, O>,
    name: &'static CStr,
    used: &'static CStr,
    free: unsafe extern "C" fn(*mut ffi::PyObject),
) {
    // SAFETY: a live capsule; the names are `'static`; the destructor frees a tensor only if the capsule's name shows that it
    // was not consumed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 1 {
            offer.taken();
        } else if offer.is_released() {
            ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
        } else {
            ffi::PyCapsule_SetDestructor(capsule.as_ptr(), Some(free));
            offer.taken();
        }
    }
}

/// An offer, bound to the attached interpreter.
pub(crate) struct Offered<'py, O = Owner> {
    offer: Offer<O>,
    py: Python<'py>,
}

impl<O> Offered<'_, O> {
    /// The offer, unbound from the interpreter, to outlive the call.
    pub(crate) fn unbind(self) -> Offer<O> {
        self.offer
    }
}

impl<'py, O> Deref for Offered<'py, O> {
    type Target = Bound<'py, PyAny>;

    fn deref(&self) -> &Self::Target {
        self.offer.bind(self.py)
    }
}

/// Offers a tensor in a capsule without a DLPack version.
pub(crate) fn legacy<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    let export = PendingExport::Legacy(dlpack::offer_legacy(tensor)?);
    Ok(Offered { offer: Offer::new(py, export)?, py })
}

/// Offers a tensor in a capsule with a DLPack version.
pub(crate) fn versioned<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    let export = PendingExport::Versioned(dlpack::offer_versioned(tensor)?);
    Ok(Offered { offer: Offer::new(py, export)?, py })
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule that is being destroyed; its name shows whether the tensor was consumed.
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
