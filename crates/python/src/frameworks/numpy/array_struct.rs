//! Direct access to two fields of the C struct of an array (the fast path `numpy.array_struct`).
//!
//! `PyArray_SetBaseObject` walks the chain of base arrays to find the owner. Our bases are either no arrays or keep the same
//! memory, so the field is set directly. The C API does not expose the list of weak references.

use super::{Result, import};
use crate::conversion::object_kinds::Builtin;
use crate::fast_paths::{self, FastPath, Probed, check};
use crate::interpreter::objects;
use numpy::npyffi::{PY_ARRAY_API, PyArrayObject};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
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
        // SAFETY: the write requires a field `base` at this offset, which the probe has compared with the attribute. It requires an
        // array that nothing else uses and whose base is null, as the contract of `set_base` says. NumPy releases the reference
        // with the array.
        unsafe { (*array.as_ptr().cast::<PyArrayObject>()).fields.base = base.into_ptr() };
        return Ok(());
    }
    // SAFETY: `set_base_by_function` requires a new ndarray without a base, and so does this function.
    unsafe { set_base_by_function(array, base) }
}

/// # Safety
/// The object is a new `ndarray` that is not yet visible to other code and has no base.
#[cold]
#[inline(never)]
unsafe fn set_base_by_function(array: &Bound<'_, PyAny>, base: Py<PyAny>) -> Result<()> {
    let pointer = array.as_ptr().cast::<PyArrayObject>();
    // SAFETY: `PyArray_SetBaseObject` requires an ndarray without a base, as the contract of this function says, and a reference,
    // which it takes also if it fails.
    match unsafe { PY_ARRAY_API.PyArray_SetBaseObject(array.py(), pointer, base.into_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(array.py()).into()),
    }
}

/// Whether a weak reference to an array exists.
///
/// # Safety
/// The object is an `ndarray`.
pub(super) unsafe fn has_weak_references(array: &Bound<'_, PyAny>) -> Result<bool> {
    let py = array.py();
    if is_usable(py) {
        // SAFETY: `fields` requires an ndarray, and so does this function. The probe has found the list at the offset.
        return Ok(!unsafe { fields(array).1 }.is_null());
    }
    Ok(py.import("weakref")?.call_method1("getweakrefcount", (array,))?.extract::<usize>()? != 0)
}

/// The fields `base` and `weakreflist`.
///
/// # Safety
/// The object is an `ndarray`.
unsafe fn fields(array: &Bound<'_, PyAny>) -> (*mut ffi::PyObject, *mut ffi::PyObject) {
    // SAFETY: the reads require an object of at least this size: NumPy's headers declare these fields for every `ndarray`, which the
    // object is by the contract of `fields`. They are plain pointers, which are not dereferenced.
    unsafe {
        let fields = &raw const (*array.as_ptr().cast::<PyArrayObject>()).fields;
        ((*fields).base, (*fields).weakreflist)
    }
}

fn probe(py: Python<'_>) -> Probed<()> {
    let numpy = import(py, Builtin::Numpy)?;
    let kind = numpy.getattr("ndarray")?.cast_into::<PyType>().map_err(PyErr::from)?;
    let array = numpy.call_method1("zeros", (3,))?;
    let view = array.call_method0("view")?;
    let base = view.getattr("base")?;
    check(objects::has_type(&array, &kind) && objects::has_type(&view, &kind), || {
        "a sample is not an ndarray".to_owned()
    })?;
    // SAFETY: `fields` requires an ndarray: `has_type` has checked both.
    let ((none, unreferenced), (found, _)) = unsafe { (fields(&array), fields(&view)) };
    check(none.is_null() && found == base.as_ptr(), || {
        "the field base differs from the attribute base".to_owned()
    })?;
    let reference = py.import("weakref")?.call_method1("ref", (&array,))?;
    // SAFETY: `fields` requires an ndarray: `has_type` has checked it.
    let referenced = unsafe { fields(&array).1 };
    check(unreferenced.is_null() && referenced == reference.as_ptr(), || {
        "the field weakreflist does not hold the weak reference".to_owned()
    })
}
