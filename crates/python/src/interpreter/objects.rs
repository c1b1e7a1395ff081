//! Safe functions for calls of the C API that PyO3 does not wrap, or wraps in functions that panic if memory runs out.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// An estimate of the memory for one tensor beside its values: the result, the plan and the framework's own objects.
pub(crate) const TENSOR_OVERHEAD_BYTES: usize = 4096;

/// Whether the object is an instance of `kind` or of a subclass, so that it has the C struct of `kind`. `isinstance` also
/// accepts an object whose `__class__`, or whose class's `__instancecheck__`, only claims so.
#[inline(always)]
pub(crate) fn has_type(object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) -> bool {
    let (given, kind) = (object.get_type_ptr(), kind.as_type_ptr());
    // SAFETY: `PyType_IsSubtype` requires two live types: `kind` is borrowed, and `object` holds a reference to its type.
    given == kind || unsafe { ffi::PyType_IsSubtype(given, kind) } != 0
}

/// The attributes that an object stores, without a call of its class, which may define `__dict__` itself.
pub(crate) fn instance_dict<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: `PyObject_GenericGetDict` requires a live object, and a `Bound` is one. It returns a new reference, or null with an
    // exception set, which `from_owned_ptr_or_err` takes over.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), dict)
    };
    dict.ok()?.cast_into().ok()
}

/// The objects that an object refers to, at most `limit`, as the garbage collector sees them: without a call of a Python method.
pub(crate) fn referents<'py>(object: &Bound<'py, PyAny>, limit: usize) -> Vec<Bound<'py, PyAny>> {
    unsafe extern "C" fn add(referent: *mut ffi::PyObject, found: *mut c_void) -> c_int {
        // SAFETY: `referents` passes a pointer to its vector, which nothing else uses meanwhile.
        let found = unsafe { &mut *found.cast::<Vec<NonNull<ffi::PyObject>>>() };
        let has_room = found.len() < found.capacity();
        if let (true, Some(referent)) = (has_room, NonNull::new(referent)) {
            found.push(referent);
        }
        c_int::from(!has_room)
    }
    let mut found: Vec<NonNull<ffi::PyObject>> = Vec::new();
    let kind = object.get_type_ptr();
    // SAFETY: `PyType_GetFlags` and `PyType_GetSlot` require a live type, which `object` holds. The slot is null or a `traverseproc`,
    // which is valid for types with the flag. It requires an instance, and a function that runs no Python code, as `add`.
    // The referents are alive when they get references, because the thread has the GIL and no code ran that releases one.
    unsafe {
        let traverse = ffi::PyType_GetSlot(kind, ffi::Py_tp_traverse);
        if ffi::PyType_GetFlags(kind) & ffi::Py_TPFLAGS_HAVE_GC == 0
            || traverse.is_null()
            || found.try_reserve_exact(limit).is_err()
        {
            return Vec::new();
        }
        let traverse: ffi::traverseproc = std::mem::transmute(traverse);
        traverse(object.as_ptr(), add, (&raw mut found).cast());
        found.into_iter().map(|referent| Bound::from_borrowed_ptr(object.py(), referent.as_ptr())).collect()
    }
}

/// Whether the object has the buffer protocol.
pub(crate) fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `PyObject_CheckBuffer` requires a live object, and a `Bound` is one. It runs no Python code.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Whether the instances of a type have the buffer protocol.
pub(crate) fn instances_have_buffer(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: `PyType_GetSlot` requires a live type and the number of a slot. The result is only compared with null.
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null()
}

/// The pointer in a capsule of this name; `None` for other objects and other capsules.
#[inline(always)]
pub(crate) fn capsule_pointer(object: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `raw_capsule_pointer` requires an object and an attached thread: the `Bound` is one and proves the other.
    unsafe { raw_capsule_pointer(object.as_ptr(), name) }
}

/// As [`capsule_pointer`], also for a capsule that is being destroyed, to which no new reference may exist.
///
/// # Safety
/// `object` is a Python object whose memory is not freed yet, and the thread is attached.
#[inline(always)]
pub(crate) unsafe fn raw_capsule_pointer(object: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `PyCapsule_IsValid` accepts any object, and is true only for a capsule of this name whose pointer is not null.
    // `PyCapsule_GetPointer` then succeeds. Both need an attached thread, which the contract of this function grants.
    unsafe {
        let is_valid = ffi::PyCapsule_IsValid(object, name.as_ptr()) == 1;
        if is_valid { NonNull::new(ffi::PyCapsule_GetPointer(object, name.as_ptr())) } else { None }
    }
}

/// The dict of the calling thread, where extensions may store objects; `None` if Python cannot create it.
#[inline(always)]
pub(crate) fn thread_dict(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: `PyThreadState_GetDict` returns null without an exception, or a borrowed reference to a dict, which
    // `from_borrowed_ptr_or_opt` turns into an owned one. The token proves that the thread is attached.
    unsafe {
        let dict = Bound::from_borrowed_ptr_or_opt(py, ffi::PyThreadState_GetDict())?;
        Some(dict.cast_into_unchecked())
    }
}

/// Clears the exception of the calling thread, if one is set.
pub(crate) fn clear_exception(_py: Python<'_>) {
    // SAFETY: `PyErr_Clear` requires an attached thread, which the token proves.
    unsafe { ffi::PyErr_Clear() }
}

/// Runs work that may call Python, with the pending exception of the calling thread put aside. Python destroys objects while an
/// exception is pending, and a function that it calls meanwhile fails with a SystemError.
pub(crate) fn without_pending_exception(_py: Python<'_>, work: impl FnOnce()) {
    let (mut kind, mut value, mut traceback) = Default::default();
    // SAFETY: the functions require an attached thread, which the token proves, and writable pointers, which are those of locals.
    // `PyErr_Restore` takes the references that `PyErr_Fetch` has returned.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            return work();
        }
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
        work();
        ffi::PyErr_Restore(kind, value, traceback);
    }
}

/// A list of objects. PyO3's own constructor panics if memory runs out.
pub(crate) fn list<'py>(py: Python<'py>, items: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: `PyList_New` returns a new list, or null with an exception set. `PyList_SetItem` requires a list that no other
    // code uses, an index below its length, which is that of `items`, and a reference to take, which `into_ptr` gives.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(items.len() as ffi::Py_ssize_t))?;
        for (index, item) in items.into_iter().enumerate() {
            ffi::PyList_SetItem(list.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr());
        }
        Ok(list.cast_into_unchecked())
    }
}

/// A tuple of objects. PyO3's own constructor panics if memory runs out.
pub(crate) fn tuple<'py>(py: Python<'py>, items: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: `PyTuple_New` returns a new tuple, or null with an exception set. `PyTuple_SetItem` requires a tuple with one
    // reference, an index below its length, which is that of `items`, and a reference to take, which `into_ptr` gives.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(items.len() as ffi::Py_ssize_t))?;
        for (index, item) in items.into_iter().enumerate() {
            ffi::PyTuple_SetItem(tuple.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr());
        }
        Ok(tuple.cast_into_unchecked())
    }
}

/// A string of UTF-8 bytes. PyO3's own constructor panics if memory runs out.
pub(crate) fn string<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: `PyUnicode_FromStringAndSize` requires a pointer to as many bytes as the length says: both are those of `text`,
    // which it decodes. It returns a new string, or null with an exception set.
    unsafe {
        let made = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}
