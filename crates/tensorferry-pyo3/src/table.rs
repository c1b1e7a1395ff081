//! Calls of the C table of tensorferry (`tensorferry.h`), with Python's errors as results.
//!
//! The table is found once per process and never freed, so its address is a static. A lock would hang the child of a fork that
//! happens while another thread has it; two threads that import the table at once find the same one.

use pyo3::exceptions::{PyImportError, PyModuleNotFoundError, PySystemError};
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use tensorferry_core::c_api::{Api, CAPSULE_NAME, MAJOR, MINOR, Request};
use tensorferry_core::dlpack::abi::ManagedTensorVersioned;

static TABLE: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());

/// The table of the tensorferry that this process imports.
#[inline]
fn table(py: Python<'_>) -> PyResult<&'static Api> {
    let known = TABLE.load(Ordering::Acquire);
    if known.is_null() {
        return import(py);
    }
    // SAFETY: `import` stored the address after it had checked the version and the size; tensorferry never frees or changes the
    // table (the contract of `tensorferry.h`).
    Ok(unsafe { &*known })
}

#[cold]
fn import(py: Python<'_>) -> PyResult<&'static Api> {
    let capsule = match py.import("tensorferry") {
        // Another error, such as that of a library which tensorferry needs, says more than advice to install it.
        Err(cause) if !is_missing(py, &cause) => return Err(cause),
        Err(cause) => Err(cause),
        Ok(module) => module.getattr("_C_API"),
    };
    let pointer = capsule.and_then(|capsule| {
        // SAFETY: the GIL is held, which `py` proves, the capsule is a live object, and the name is a C string.
        match unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE_NAME.as_ptr()) } {
            pointer if pointer.is_null() => Err(PyErr::fetch(py)),
            pointer => Ok(pointer),
        }
    });
    let api = pointer.map_err(|cause| without_table(py, cause))?.cast::<Api>();
    // SAFETY: the capsule of this name has a `TfApi`, which begins with the version and the size in every version. It is never
    // freed. The fields are read one by one, because the table may be smaller than `Api`.
    let (major, minor, size) = unsafe {
        ((&raw const (*api).major).read(), (&raw const (*api).minor).read(), (&raw const (*api).size).read())
    };
    if major != MAJOR || size < size_of::<Api>() {
        return Err(PyImportError::new_err(format!(
            "this extension needs version {MAJOR}.{MINOR} of tensorferry's C table, and the installed one is {major}.{minor}\n\
             hint: pip install -U tensorferry, or rebuild the extension"
        )));
    }
    TABLE.store(api, Ordering::Release);
    // SAFETY: the table has this major version and reaches at least to the end of `Api`. It is never freed or changed.
    Ok(unsafe { &*api })
}

/// Whether tensorferry itself is not installed.
fn is_missing(py: Python<'_>, cause: &PyErr) -> bool {
    let name = || cause.value(py).getattr("name").and_then(|name| name.eq("tensorferry"));
    cause.is_instance_of::<PyModuleNotFoundError>(py) && name().unwrap_or(false)
}

/// The error of a tensorferry that is missing, or has no table.
fn without_table(py: Python<'_>, cause: PyErr) -> PyErr {
    let error = PyImportError::new_err(
        "this extension needs tensorferry with a C table\nhint: pip install -U tensorferry",
    );
    error.set_cause(py, Some(cause));
    error
}

/// Reads a tensor. The result owns its struct: the caller calls the deleter once.
#[inline]
pub(crate) fn take(
    object: Borrowed<'_, '_, PyAny>,
    request: &Request,
) -> PyResult<NonNull<ManagedTensorVersioned>> {
    let py = object.py();
    let mut tensor = ptr::null_mut();
    // SAFETY: the GIL is held (`py`), the object and the request are alive during the call, and `request.dtypes` points to
    // `dtype_count` types, which the callers in `acquire` and `any_tensor` borrow over the call.
    let code = unsafe { (table(py)?.take)(object.as_ptr().cast(), request, &raw mut tensor) };
    check(py, code)?;
    NonNull::new(tensor).ok_or_else(|| PySystemError::new_err("tensorferry's C table returned no tensor"))
}

/// Creates a framework's tensor.
///
/// # Errors
/// With the exception of the framework or of tensorferry. The caller then still owns `tensor`.
///
/// # Safety
/// `tensor` is a valid struct. On success nothing else releases it, and nothing else uses its memory.
pub(crate) unsafe fn wrap<'py>(
    py: Python<'py>,
    tensor: NonNull<ManagedTensorVersioned>,
    like_or_name: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held (`py`), the object is alive, and the struct is valid by the contract of this function. The result
    // is a new reference, or null with an exception set (`tensorferry.h`).
    unsafe {
        let made = (table(py)?.wrap)(tensor.as_ptr(), like_or_name.as_ptr().cast());
        Bound::from_owned_ptr_or_err(py, made.cast())
    }
}

/// Turns the result of a function of the table into Python's current exception.
#[inline]
fn check(py: Python<'_>, code: c_int) -> PyResult<()> {
    if code == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}
