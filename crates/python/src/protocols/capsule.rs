//! DLPack capsules: consuming them and creating them.

use crate::errors::{Result, fail};
use crate::interpreter::objects;
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
    // SAFETY: both imports require a valid struct that nothing else releases. DLPack says that a capsule of this name holds one, and
    // that the consumer which renames the capsule owns it: `consume` has done so.
    unsafe {
        if let Some(managed) = consume(capsule, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME)? {
            return Ok(dlpack::from_versioned(managed.cast())?);
        }
        if let Some(managed) = consume(capsule, abi::LEGACY_NAME, abi::LEGACY_USED_NAME)? {
            return Ok(dlpack::from_legacy(managed.cast())?);
        }
    }
    Err(fail(
        ErrorKind::InvalidTensor,
        "the object is not an unconsumed DLPack capsule",
        "pass the tensor itself; a DLPack capsule can be consumed only once",
    ))
}

/// Marks a capsule of this name as consumed by renaming it, and returns its managed tensor, which the caller then owns. `None`
/// for other objects.
#[inline(always)]
fn consume(
    capsule: &Bound<'_, PyAny>,
    name: &CStr,
    used: &'static CStr,
) -> PyResult<Option<NonNull<std::ffi::c_void>>> {
    let Some(managed) = objects::capsule_pointer(capsule, name) else { return Ok(None) };
    // SAFETY: `PyCapsule_SetName` requires a capsule, as `capsule_pointer` checked, and a name that outlives it: `used` is
    // `'static`.
    match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } {
        0 => Ok(Some(managed)),
        _ => Err(PyErr::fetch(capsule.py())),
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
pub(crate) struct Offered<'py, O = Owner> {
    export: Option<PendingExport<O>>,
    capsule: Bound<'py, PyAny>,
}

impl<'py, O> Offered<'py, O> {
    fn new(py: Python<'py>, export: PendingExport<O>) -> Result<Self> {
        let (pointer, name) = match &export {
            PendingExport::Legacy(offer) => (offer.managed().as_ptr().cast(), abi::LEGACY_NAME),
            PendingExport::Versioned(offer) => (offer.managed().as_ptr().cast(), abi::VERSIONED_NAME),
        };
        // SAFETY: `PyCapsule_New` requires a pointer that is not null, which a `NonNull` is, and a name that outlives the capsule,
        // which a constant does. It returns a new reference, or null with an exception set.
        let capsule =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), None)) }?;
        Ok(Self { export: Some(export), capsule })
    }

    /// The offer, unbound from the interpreter, to outlive the call.
    pub(crate) fn unbind(mut self) -> Offer<O> {
        Offer { export: self.export.take(), capsule: self.capsule.clone().unbind() }
    }
}

impl<O> Drop for Offered<'_, O> {
    fn drop(&mut self) {
        if let Some(export) = self.export.take() {
            export.settle(&self.capsule);
        }
    }
}

impl<'py, O> Deref for Offered<'py, O> {
    type Target = Bound<'py, PyAny>;

    fn deref(&self) -> &Self::Target {
        &self.capsule
    }
}

/// An [`Offered`] capsule that outlives the call, in an object of ours. Once the interpreter exits, its tensor is leaked.
pub(crate) struct Offer<O = Owner> {
    export: Option<PendingExport<O>>,
    capsule: Py<PyAny>,
}

impl<O> Drop for Offer<O> {
    fn drop(&mut self) {
        let export = ManuallyDrop::new(self.export.take());
        Python::try_attach(|py| {
            if let Some(export) = ManuallyDrop::into_inner(export) {
                export.settle(self.capsule.bind(py));
            }
        });
    }
}

impl<O> PendingExport<O> {
    #[inline(always)]
    fn settle(self, capsule: &Bound<'_, PyAny>) {
        match self {
            Self::Legacy(offer) => {
                settle(capsule, offer, abi::LEGACY_NAME, abi::LEGACY_USED_NAME, free_legacy);
            }
            Self::Versioned(offer) => {
                settle(capsule, offer, abi::VERSIONED_NAME, abi::VERSIONED_USED_NAME, free_versioned);
            }
        }
    }
}

/// Ends an offer: the consumer owns the tensor, or has released it, or the capsule becomes the owner.
#[inline(always)]
fn settle<M, O>(
    capsule: &Bound<'_, PyAny>,
    offer: ExportOffer<M, O>,
    name: &'static CStr,
    used: &'static CStr,
    free: unsafe extern "C" fn(*mut ffi::PyObject),
) {
    // SAFETY: `PyCapsule_IsValid` accepts any live object, and the other calls require a capsule, as it has checked. The names are
    // `'static`, so they outlive the capsule. `free` accepts every capsule that Python destroys.
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

/// Offers a tensor in a capsule without a DLPack version.
pub(crate) fn legacy<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    Offered::new(py, PendingExport::Legacy(dlpack::offer_legacy(tensor)?))
}

/// Offers a tensor in a capsule with a DLPack version.
pub(crate) fn versioned<O: Send + 'static>(py: Python<'_>, tensor: Tensor<O>) -> Result<Offered<'_, O>> {
    Offered::new(py, PendingExport::Versioned(dlpack::offer_versioned(tensor)?))
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor once, with the dying capsule, on an attached thread. A capsule that still has this name was
    // not consumed, so nothing else releases its managed tensor, as `ManagedOwner::legacy` requires.
    unsafe {
        let pointer = objects::raw_capsule_pointer(capsule, abi::LEGACY_NAME);
        drop(pointer.map(|managed| ManagedOwner::legacy(managed.cast())));
    }
}

unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor once, with the dying capsule, on an attached thread. A capsule that still has this name was
    // not consumed, so nothing else releases its managed tensor, as `ManagedOwner::versioned` requires.
    unsafe {
        let pointer = objects::raw_capsule_pointer(capsule, abi::VERSIONED_NAME);
        drop(pointer.map(|managed| ManagedOwner::versioned(managed.cast())));
    }
}
