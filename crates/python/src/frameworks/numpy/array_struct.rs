//! Direct access to two fields of the C struct of an array (the fast path `numpy.array_struct`).
//!
//! `PyArray_SetBaseObject` walks the chain of base arrays to find the owner. Our bases are either no arrays or keep the same
//! memory, so the field is set directly. The C API does not expose the list of weak references.

use super::{Result, import};
use crate::conversion::object_kinds::Builtin;
use crate::fast_paths::{self, FastPath, Probed, check};
use numpy::npyffi::{PY_ARRAY_API, PyArrayObject};
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU8, Ordering};

static PROBE_STATE: AtomicU8 = AtomicU8::new(NOT_PROBED);
const NOT_PROBED: u8 = 0;
const USABLE: u8 = 1;
const UNUSABLE: u8 = 2;

/// Whether the fields have the expected offsets.
#[inline(always)]
fn is_usable(py: Python<'_>) -> bool {
    match PROBE_STATE.load(Ordering::Relaxed) {
        USABLE => true,
        UNUSABLE => false,
        _ => run_probe(py),
    }
}

#[cold]
#[inline(never)]
fn run_probe(py: Python<'_>) -> bool {
    let usable = fast_paths::probe(py, FastPath::NumpyArrayStruct, || probe(py)).is_some();
    PROBE_STATE.store(if usable { USABLE } else { UNUSABLE }, Ordering::Relaxed);
    usable
}

/// Makes an array keep an object alive.
///
/// # Safety
/// The object is a new `ndarray` that is not yet visible to other code and has no base.
#[inline(always)]
pub(super) unsafe fn set_base(array: &Bound<'_, PyAny>, base: Py<PyAny>) -> Result<()> {
    if is_usable(array.py()) {
        // SAFETY: the probe verified the offset of the field; the array takes the reference.
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
    // SAFETY: the caller guarantees an ndarray without a base; the call takes the reference, also if it fails.
    match unsafe { PY_ARRAY_API.PyArray_SetBaseObject(array.py(), pointer, base.into_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(array.py()).into()),
    }
}

/// Whether a weak reference to an array exists.
pub(super) fn has_weak_references(array: &Bound<'_, PyAny>) -> Result<bool> {
    let py = array.py();
    if is_usable(py) {
        // SAFETY: the caller has an ndarray, and the probe verified the offset of the field.
        return Ok(!unsafe { fields(array).1 }.is_null());
    }
    Ok(py.import("weakref")?.call_method1("getweakrefcount", (array,))?.extract::<usize>()? != 0)
}

/// The fields `base` and `weakreflist`.
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
    // SAFETY: arrays that NumPy has just created.
    let ((none, unreferenced), (found, _)) = unsafe { (fields(&array), fields(&view)) };
    check(none.is_null() && found == base.as_ptr(), || {
        "the field base differs from the attribute base".to_owned()
    })?;
    let reference = py.import("weakref")?.call_method1("ref", (&array,))?;
    // SAFETY: as above.
    let referenced = unsafe { fields(&array).1 };
    check(unreferenced.is_null() && referenced == reference.as_ptr(), || {
        "the field weakreflist does not hold the weak reference".to_owned()
    })
}
