//! Shallow copies of containers, which get the results in place of their parts.

use crate::conversion::object_kinds::Container;
use crate::errors::{Failure, Result, type_name, wrap_exception};
use crate::interpreter::objects;
use pyo3::exceptions::{PyAttributeError, PyBaseException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tensorferry_core::ErrorKind;

pub(super) fn shallow_copy<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    py.import("copy")?.call_method1("copy", (object,)).map_err(|error| copy_error(object, error))
}

/// A copy of a dataclass or an attrs object, of which fields may not be set. The `__getstate__` that both generate for a class with slots
/// fails then, and that of attrs leaves out what is not a field.
pub(super) fn copy_attributes<'py>(
    object: &Bound<'py, PyAny>,
    container: Container,
) -> Result<Bound<'py, PyAny>> {
    let (py, kind) = (object.py(), object.get_type());
    if kind.hasattr("__copy__")? {
        return shallow_copy(object);
    }
    let copy = match py.import("copy")?.call_method1("copy", (object,)) {
        Ok(copy) if container == Container::Dataclass => return Ok(copy),
        // An exception is copied by a call of its constructor, which may accept names only.
        Err(error)
            if error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py) =>
        {
            kind.call_method1("__new__", (&kind,))
        }
        copied => copied,
    };
    let copy = copy.map_err(|error| copy_error(object, error))?;
    copy_dict(object, &copy)?;
    let base = py.get_type::<PyAny>();
    if object.is_instance_of::<PyBaseException>() {
        base.call_method1("__setattr__", (&copy, "args", object.getattr("args")?))?;
    }
    // A pair of dicts, of attributes and of slots, if slots are set.
    if let Ok(state) = base.call_method1("__getstate__", (object,))?.cast_into::<PyTuple>() {
        for (name, value) in state.get_item(1)?.cast::<PyDict>().map_err(PyErr::from)? {
            base.call_method1("__setattr__", (&copy, name, value))?;
        }
    }
    Ok(copy)
}

/// Gives a copy the attributes of an object that are in its `__dict__`.
pub(super) fn copy_dict(object: &Bound<'_, PyAny>, copy: &Bound<'_, PyAny>) -> Result<()> {
    if let (Some(from), Some(to)) = (objects::instance_dict(object), objects::instance_dict(copy)) {
        to.update(from.as_mapping())?;
    }
    Ok(())
}

pub(super) fn copy_error(object: &Bound<'_, PyAny>, error: PyErr) -> Failure {
    let about = format!("{} cannot be copied", type_name(object));
    let hint = "fix its __copy__, or pass a dict or a list";
    wrap_exception(object.py(), error, ErrorKind::FrameworkFailed, &about, hint)
}
