//! Direct calls of the C functions behind a type's methods and attributes, which are looked up once.
//!
//! `t.requires_grad` costs a look-up of the name and a call protocol before its C function runs. A type's tables of methods
//! and attributes are part of the stable ABI (`PyType_GetSlot`, `PyMethodDef`, `PyGetSetDef`), so this module depends on no
//! version. If a type has no such entry, or another calling convention, the name is looked up at each call. Every user of this
//! module has an entry in `fast_paths`, whose probe compares the direct call with the call by name.

use crate::interpreter::call;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use std::ffi::CStr;
use std::ptr;

/// A method without arguments.
pub(crate) struct Method {
    name: Py<PyString>,
    function: Option<ffi::PyCFunction>,
}

/// An attribute with a getter.
pub(crate) struct Attribute {
    name: Py<PyString>,
    getter: Option<(ffi::getter, *mut std::ffi::c_void)>,
}

// SAFETY: moving the struct moves addresses. Only `get` uses the closure: it passes it to the getter of the same entry, on a
// thread that has the GIL, since `get` takes a `Bound`.
unsafe impl Send for Attribute {}
// SAFETY: `get` reads the fields, and nothing writes them. CPython calls getters from every thread that has the GIL, and so does
// `get`.
unsafe impl Sync for Attribute {}

/// The address of a symbol in a library that the process has loaded, or null.
pub(crate) fn symbol(library: &CStr, name: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: `dlopen` and `dlsym` require C strings, which `CStr` guarantees, and a handle, which is checked for null. With
    // `RTLD_NOLOAD` no code of a library runs. The reference to the library is never closed, so the address stays valid.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    }
}

impl Method {
    /// The method of this name, looked up at each call.
    pub(crate) fn by_name(py: Python<'_>, name: &CStr) -> Self {
        Self { name: text(py, name), function: None }
    }

    /// Whether the C function was found.
    pub(crate) fn is_direct(&self) -> bool {
        self.function.is_some()
    }

    /// The method of this name that `kind` itself defines.
    pub(crate) fn of(kind: &Bound<'_, PyType>, name: &CStr) -> Self {
        // SAFETY: `PyType_GetSlot` requires a live type, and returns null or `tp_methods`: a table that lives as long as the type and
        // ends with an entry without a name. `entry` advances only past an entry that has one. The field of the union is
        // that of the flag, which is compared first.
        let function = unsafe {
            let mut entry =
                ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_methods).cast::<ffi::PyMethodDef>();
            loop {
                if entry.is_null() || (*entry).ml_name.is_null() {
                    break None;
                }
                if CStr::from_ptr((*entry).ml_name) == name {
                    break ((*entry).ml_flags == ffi::METH_NOARGS).then(|| (*entry).ml_meth.PyCFunction);
                }
                entry = entry.add(1);
            }
        };
        Self { name: text(kind.py(), name), function }
    }

    /// Calls the method.
    ///
    /// # Safety
    /// The object is an instance of the type that the method was found in.
    pub(crate) unsafe fn call<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match self.function {
            // SAFETY: a `METH_NOARGS` function, as `of` checked, requires an instance of its type and null. The contract of `call`
            // says that the object is one, and it keeps its type alive. The result is a new reference, or null with an exception.
            Some(function) => unsafe {
                Bound::from_owned_ptr_or_err(py, function(object.as_ptr(), ptr::null_mut()))
            },
            None => call::method(object, self.name.bind(py)),
        }
    }

    /// Calls the method and returns the truth of its result.
    ///
    /// # Safety
    /// The object is an instance of the type that the method was found in.
    pub(crate) unsafe fn is_true(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: `call` requires an instance of the type that the method was found in, and so does this function.
        truth(&unsafe { self.call(object) }?)
    }
}

impl Attribute {
    /// The attribute of this name, looked up each time it is read.
    pub(crate) fn by_name(py: Python<'_>, name: &CStr) -> Self {
        Self { name: text(py, name), getter: None }
    }

    /// Whether the C function was found.
    pub(crate) fn is_direct(&self) -> bool {
        self.getter.is_some()
    }

    /// The attribute of this name that `kind` itself defines.
    pub(crate) fn of(kind: &Bound<'_, PyType>, name: &CStr) -> Self {
        // SAFETY: `PyType_GetSlot` requires a live type, and returns null or `tp_getset`: a table that lives as long as the type and
        // ends with an entry without a name. `entry` advances only past an entry that has one.
        let getter = unsafe {
            let mut entry =
                ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_getset).cast::<ffi::PyGetSetDef>();
            loop {
                if entry.is_null() || (*entry).name.is_null() {
                    break None;
                }
                if CStr::from_ptr((*entry).name) == name {
                    break (*entry).get.map(|getter| (getter, (*entry).closure));
                }
                entry = entry.add(1);
            }
        };
        Self { name: text(kind.py(), name), getter }
    }

    /// Reads the attribute.
    ///
    /// # Safety
    /// The object is an instance of the type that the attribute was found in.
    pub(crate) unsafe fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match self.getter {
            // SAFETY: a getter requires an instance of its type and the closure of its entry, which `of` stored beside it. The
            // contract of `get` says that the object is one, and it keeps its type alive. The result is a new reference, or null
            // with an exception.
            Some((getter, closure)) => unsafe {
                Bound::from_owned_ptr_or_err(py, getter(object.as_ptr(), closure))
            },
            None => object.getattr(self.name.bind(py)),
        }
    }

    /// Reads the attribute and returns its truth.
    ///
    /// # Safety
    /// The object is an instance of the type that the attribute was found in.
    pub(crate) unsafe fn is_true(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: `get` requires an instance of the type that the attribute was found in, and so does this function.
        truth(&unsafe { self.get(object) }?)
    }
}

fn truth(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: both functions return the address of a static of CPython and have no precondition.
    let (yes, no) = unsafe { (ffi::Py_True(), ffi::Py_False()) };
    match value.as_ptr() {
        pointer if pointer == yes => Ok(true),
        pointer if pointer == no => Ok(false),
        _ => value.is_truthy(),
    }
}

fn text(py: Python<'_>, name: &CStr) -> Py<PyString> {
    PyString::intern(py, &name.to_string_lossy()).unbind()
}
