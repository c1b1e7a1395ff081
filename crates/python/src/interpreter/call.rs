//! Calls of Python objects without a tuple of arguments, which is the fastest call that the stable ABI has.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ptr;

/// Calls `PyObject_CallFunctionObjArgs` or `PyObject_CallMethodObjArgs` with these objects.
macro_rules! call_with_objects {
    ($function:ident, $first:expr $(, $other:expr)*) => {
        // SAFETY: both functions require live objects of type `PyObject *`, followed by null, and an attached thread. Each
        // argument is a `Bound`, which is alive and proves the attachment, and the macro appends the null. The result is a new
        // reference, or null with an exception set, as `from_owned_ptr_or_err` requires.
        unsafe {
            let result = ffi::$function(
                $first.as_ptr(),
                $($other.as_ptr(),)*
                ptr::null_mut::<ffi::PyObject>(),
            );
            Bound::from_owned_ptr_or_err($first.py(), result)
        }
    };
}

/// Calls `callable(argument)`.
pub(crate) fn call1<'py>(
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    call_with_objects!(PyObject_CallFunctionObjArgs, callable, argument)
}

/// Calls `callable(first, second)`.
pub(crate) fn call2<'py>(
    callable: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    call_with_objects!(PyObject_CallFunctionObjArgs, callable, first, second)
}

/// Calls `callable(first, second, third)`.
pub(crate) fn call3<'py>(
    callable: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
    third: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    call_with_objects!(PyObject_CallFunctionObjArgs, callable, first, second, third)
}

/// Calls `object.name()`, without making a bound method first.
pub(crate) fn method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    call_with_objects!(PyObject_CallMethodObjArgs, object, name)
}
