//! The C functions behind a type's methods and attributes, found once and called directly.
//!
//! `t.requires_grad` costs a look-up of the name and a call protocol before the C function that it ends in.
//! A type's tables of methods and attributes are part of the stable ABI (`PyType_GetSlot`, `PyMethodDef`,
//! `PyGetSetDef`), so nothing here depends on a version. Where a type has no such entry, or another calling
//! convention, the name is looked up as usual. Whoever uses these functions has an entry in `fast_paths` for them, whose probe
//! compares them with the names.

use crate::interpreter::call;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use std::ffi::CStr;
use std::ptr;

/// A method that takes no arguments.
pub(crate) struct Method {
    name: Py<PyString>,
    function: Option<ffi::PyCFunction>,
}

/// An attribute that is computed.
pub(crate) struct Attribute {
    name: Py<PyString>,
    getter: Option<(ffi::getter, *mut std::ffi::c_void)>,
}

// SAFETY: the closure pointer is handed to the getter that it came with and to nobody else, by threads that are
// attached to the interpreter.
unsafe impl Send for Attribute {}
// SAFETY: as above.
unsafe impl Sync for Attribute {}

/// A function of a module that takes no arguments and answers with a number.
pub(crate) struct Function {
    object: Py<PyAny>,
    /// The C function behind it, and the object that it belongs to.
    direct: Option<(ffi::PyCFunction, *mut ffi::PyObject)>,
    zero: Py<PyAny>,
}

// SAFETY: the pointer is handed to the function that it came with, by threads that are attached to the interpreter.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// The function of this name.
    pub(crate) fn of(module: &Bound<'_, PyAny>, name: &str) -> Option<Self> {
        let object = module.getattr(name).ok()?;
        // SAFETY: the calls take any object that is a builtin function, which is asked first; what a function belongs
        // to lives with it.
        let direct = unsafe {
            let builtin = ffi::PyCFunction_Check(object.as_ptr()) != 0;
            let simple = builtin && ffi::PyCFunction_GetFlags(object.as_ptr()) == ffi::METH_NOARGS;
            let function = if simple { ffi::PyCFunction_GetFunction(object.as_ptr()) } else { None };
            function.map(|function| (function, ffi::PyCFunction_GetSelf(object.as_ptr())))
        };
        let zero = 0i32.into_pyobject(module.py()).ok()?.into_any().unbind();
        Some(Self { object: object.unbind(), direct, zero })
    }

    /// Whether the answer is zero; an error is no.
    pub(crate) fn is_zero(&self, py: Python<'_>) -> bool {
        let answer = match self.direct {
            // SAFETY: the function takes no arguments and gets the object that it belongs to.
            Some((function, owner)) => unsafe {
                Bound::from_owned_ptr_or_err(py, function(owner, ptr::null_mut()))
            },
            None => self.object.bind(py).call0(),
        };
        // Python has one zero, so that it mostly need not be asked what it is worth.
        match answer.and_then(|answer| Ok(answer.is(&self.zero) || !answer.is_truthy()?)) {
            Ok(zero) => zero,
            Err(error) => {
                crate::errors::forget(py, error);
                false
            }
        }
    }
}

/// What a library that the process has loaded calls so; null if there is no such thing.
pub(crate) fn symbol(library: &CStr, name: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: two strings; the library is not loaded anew, and the framework that did so never lets it go.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    }
}

/// A C++ function of a loaded library that takes nothing and answers yes or no.
#[derive(Clone, Copy)]
pub(crate) struct Question(unsafe extern "C" fn() -> bool);

impl Question {
    /// The function behind a mangled name, which says what it takes; the library is one that the process has loaded.
    ///
    /// # Safety
    /// The name is that of a function which takes nothing, answers with a bool and may be called at any time.
    pub(crate) unsafe fn of(library: &CStr, name: &CStr) -> Option<Self> {
        // SAFETY: null is no function, and the caller vouches for any other.
        let function: Option<unsafe extern "C" fn() -> bool> =
            unsafe { std::mem::transmute(symbol(library, name)) };
        function.map(Self)
    }

    /// Asks.
    #[inline(always)]
    pub(crate) fn ask(self) -> bool {
        // SAFETY: what the maker vouched for.
        unsafe { (self.0)() }
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
        // SAFETY: the slot holds null or a table that ends with an entry without a name, and lives as long as the
        // type; the type is one of a framework, which is never unloaded.
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
            // SAFETY: the function is a method without arguments of the object's type.
            Some(function) => unsafe {
                Bound::from_owned_ptr_or_err(py, function(object.as_ptr(), ptr::null_mut()))
            },
            None => call::method(object, self.name.bind(py)),
        }
    }

    /// Calls the method and asks whether the answer is true.
    ///
    /// # Safety
    /// As [`Method::call`].
    pub(crate) unsafe fn is_true(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: the caller's contract.
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
        // SAFETY: as in `Method::of`.
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
            // SAFETY: the getter and its closure belong to the object's type.
            Some((getter, closure)) => unsafe {
                Bound::from_owned_ptr_or_err(py, getter(object.as_ptr(), closure))
            },
            None => object.getattr(self.name.bind(py)),
        }
    }

    /// Reads the attribute and asks whether it is true.
    ///
    /// # Safety
    /// As [`Attribute::get`].
    pub(crate) unsafe fn is_true(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: the caller's contract.
        truth(&unsafe { self.get(object) }?)
    }
}

fn truth(answer: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: the two are singletons that live for ever.
    let (yes, no) = unsafe { (ffi::Py_True(), ffi::Py_False()) };
    match answer.as_ptr() {
        pointer if pointer == yes => Ok(true),
        pointer if pointer == no => Ok(false),
        _ => answer.is_truthy(),
    }
}

fn text(py: Python<'_>, name: &CStr) -> Py<PyString> {
    PyString::intern(py, &name.to_string_lossy()).unbind()
}
