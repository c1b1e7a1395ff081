//! DLPack capsules: the Python objects around managed tensors.

use crate::errors::{Result, fail};
use crate::owner::Owner;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::ptr::NonNull;
use tensorferry_core::dlpack::{self, Managed, abi};
use tensorferry_core::{ErrorKind, Tensor};

/// Takes the tensor out of a capsule of either form.
pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Result<Tensor<Managed>> {
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
pub(crate) fn owned(tensor: Tensor<Managed>) -> Tensor<Owner> {
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

/// A capsule of the form without a version.
pub(crate) fn legacy<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let managed = dlpack::to_legacy(tensor)?;
    // SAFETY: the pointer is not null, the name lives for ever, the destructor frees what nobody took. Without a capsule the
    // struct is still ours.
    unsafe {
        let capsule =
            ffi::PyCapsule_New(managed.as_ptr().cast(), abi::LEGACY_NAME.as_ptr(), Some(free_legacy));
        Bound::from_owned_ptr_or_err(py, capsule).map_err(|error| {
            drop(Managed::legacy(managed));
            error.into()
        })
    }
}

/// A capsule of the form with a version.
pub(crate) fn versioned<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let managed = dlpack::to_versioned(tensor)?;
    // SAFETY: as in `legacy`.
    unsafe {
        let capsule =
            ffi::PyCapsule_New(managed.as_ptr().cast(), abi::VERSIONED_NAME.as_ptr(), Some(free_versioned));
        Bound::from_owned_ptr_or_err(py, capsule).map_err(|error| {
            drop(Managed::versioned(managed));
            error.into()
        })
    }
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule that dies; its name tells whether somebody took the tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, abi::LEGACY_NAME.as_ptr()) == 1
            && let Some(managed) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, abi::LEGACY_NAME.as_ptr()))
        {
            drop(Managed::legacy(managed.cast()));
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
            drop(Managed::versioned(managed.cast()));
        }
    }
}
