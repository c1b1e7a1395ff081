//! Calls of Python objects without a tuple of arguments, which is the fastest call that the stable ABI has.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ptr;

/// Calls `callable(argument)`.
pub(crate) fn call1<'py>(
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both are live objects, the list of arguments ends with null, and a null result has an error set.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            callable.as_ptr(),
            argument.as_ptr(),
            ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls `callable(first, second)`.
pub(crate) fn call2<'py>(
    callable: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: as in `call1`.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            callable.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls `callable(first, second, third)`.
pub(crate) fn call3<'py>(
    callable: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
    third: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: as in `call1`.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            callable.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            third.as_ptr(),
            ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls `object.name()`, without making a bound method first.
pub(crate) fn method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: as in `call1`.
    unsafe {
        let result =
            ffi::PyObject_CallMethodObjArgs(object.as_ptr(), name.as_ptr(), ptr::null_mut::<ffi::PyObject>());
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}
