//! Fields of the C struct of an array that NumPy's C API has no function for, or a slower one.
//!
//! `PyArray_SetBaseObject` looks for arrays behind the base to hold instead. It finds none, or one that keeps the same
//! memory, so the field is set directly. The list of weak references is not exposed at all in C.

use super::{Result, import};
use crate::conversion::kinds::Builtin;
use crate::fast_paths::{self, FastPath, Probed, check};
use numpy::npyffi::{PY_ARRAY_API, PyArrayObject};
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU8, Ordering};

static FIELDS: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const KNOWN: u8 = 1;
const OFF: u8 = 2;

/// Whether the fields are where they are expected.
#[inline(always)]
fn is_known(py: Python<'_>) -> bool {
    match FIELDS.load(Ordering::Relaxed) {
        KNOWN => true,
        OFF => false,
        _ => first(py),
    }
}

#[cold]
#[inline(never)]
fn first(py: Python<'_>) -> bool {
    let found = fast_paths::probe(py, FastPath::NumpyArrayStruct, || probe(py)).is_some();
    FIELDS.store(if found { KNOWN } else { OFF }, Ordering::Relaxed);
    found
}

/// Makes an array keep an object alive.
///
/// # Safety
/// The object is an `ndarray` that is new, seen by nobody and without a base.
#[inline(always)]
pub(super) unsafe fn set_base(array: &Bound<'_, PyAny>, base: Py<PyAny>) -> Result<()> {
    if is_known(array.py()) {
        // SAFETY: the field is where the probe has seen it; the array takes the reference.
        unsafe { (*array.as_ptr().cast::<PyArrayObject>()).fields.base = base.into_ptr() };
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { set_base_by_function(array, base) }
}

/// # Safety
/// As [`set_base`].
#[cold]
#[inline(never)]
unsafe fn set_base_by_function(array: &Bound<'_, PyAny>, base: Py<PyAny>) -> Result<()> {
    let pointer = array.as_ptr().cast::<PyArrayObject>();
    // SAFETY: an ndarray without a base, as the caller vouches; the call takes the reference, also where it fails.
    match unsafe { PY_ARRAY_API.PyArray_SetBaseObject(array.py(), pointer, base.into_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(array.py()).into()),
    }
}

/// Whether somebody has a weak reference to an array.
pub(super) fn has_weak_references(array: &Bound<'_, PyAny>) -> Result<bool> {
    let py = array.py();
    if is_known(py) {
        // SAFETY: the caller has an ndarray, whose field is where the probe has seen it.
        return Ok(!unsafe { fields(array).1 }.is_null());
    }
    Ok(py.import("weakref")?.call_method1("getweakrefcount", (array,))?.extract::<usize>()? != 0)
}

/// The two fields.
///
/// # Safety
/// The object is an `ndarray`.
unsafe fn fields(array: &Bound<'_, PyAny>) -> (*mut ffi::PyObject, *mut ffi::PyObject) {
    // SAFETY: an ndarray has at least the fields of the struct.
    unsafe {
        let fields = &raw const (*array.as_ptr().cast::<PyArrayObject>()).fields;
        ((*fields).base, (*fields).weakreflist)
    }
}

fn probe(py: Python<'_>) -> Probed<()> {
    let array = import(py, Builtin::Numpy)?.call_method1("zeros", (3,))?;
    let view = array.call_method0("view")?;
    let base = view.getattr("base")?;
    // SAFETY: arrays that NumPy has just made.
    let ((none, unreferenced), (found, _)) = unsafe { (fields(&array), fields(&view)) };
    check(none.is_null() && found == base.as_ptr(), || {
        "the field base is not what the attribute base says".to_owned()
    })?;
    let reference = py.import("weakref")?.call_method1("ref", (&array,))?;
    // SAFETY: as above.
    let referenced = unsafe { fields(&array).1 };
    check(unreferenced.is_null() && referenced == reference.as_ptr(), || {
        "the field weakreflist does not follow weak references".to_owned()
    })
}
