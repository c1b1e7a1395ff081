//! Objects that pass through a tree with tensors in them, which nobody converts.
//!
//! An object of a type that is not a container stays as it is. If it stores tensors, its user most likely expects them to be
//! converted. A conversion warns once for each type; plans and traces list the objects.

use crate::conversion::object_kinds::{Builtin, Form, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Result, type_name};
use crate::frameworks::numpy;
use crate::interpreter::objects;
use crate::interpreter::once::ForkSafeOnce;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyModule, PySet, PyTuple, PyType};
use std::ffi::CString;

/// Whether the object stores a tensor in an attribute, or in the first item of a list or a tuple there, such as the layers of a cache.
pub(crate) fn stores_tensor(object: &Bound<'_, PyAny>) -> Result<bool> {
    for value in stored_attributes(object)? {
        let first = match (value.cast::<PyList>(), value.cast::<PyTuple>()) {
            (Ok(list), _) => list.iter().next(),
            (_, Ok(tuple)) => tuple.iter().next(),
            _ => None,
        };
        let Some(first) = first else {
            if is_tensor(&value)? {
                return Ok(true);
            }
            continue;
        };
        if is_tensor(&first)? {
            return Ok(true);
        }
        for value in stored_attributes(&first)? {
            if is_tensor(&value)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The values in the `__dict__` and the slots of an object. Runs no property.
fn stored_attributes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    static MEMBER: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
    if object.is_instance_of::<PyType>() || object.is_instance_of::<PyModule>() {
        return Ok(Vec::new());
    }
    let mut values: Vec<_> =
        objects::instance_dict(object).map_or(Vec::new(), |dict| dict.values().iter().collect());
    let member = MEMBER.import(object.py(), "types", "MemberDescriptorType")?;
    for class in object.get_type().mro().iter() {
        let names = class.getattr("__dict__")?;
        if !names.contains("__slots__")? {
            continue;
        }
        for descriptor in names.call_method0("values")?.try_iter()? {
            let descriptor = descriptor?;
            if descriptor.is_instance(member)?
                // A slot that is not set raises.
                && let Ok(value) = descriptor.call_method1("__get__", (object,))
            {
                values.push(value);
            }
        }
    }
    Ok(values)
}

fn is_tensor(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(match recognise(object)?.kind() {
        Recognised::Tensor(_, Form::Scalar) => false,
        // Arrays of Python objects and of text are not tensors.
        Recognised::Tensor(Builtin::Numpy, _) => numpy::dtype_of(&object.getattr("dtype")?).is_ok(),
        Recognised::Tensor(..) | Recognised::Registered(_) => true,
        Recognised::Refused(refusal) => refusal.is_sparse(),
        _ => false,
    })
}

/// Warns that an object passes with tensors in it, once for its type.
pub(crate) fn warn_once(object: &Bound<'_, PyAny>) -> Result<()> {
    static WARNED: ForkSafeOnce<Py<PySet>> = ForkSafeOnce::new();
    let (py, kind) = (object.py(), object.get_type());
    let warned = WARNED.get_or_try_init(py, || PySet::empty(py).map(Bound::unbind))?.bind(py);
    if warned.contains(&kind)? {
        return Ok(());
    }
    warned.add(&kind)?;
    let message = CString::new(format!(
        "an object of type {} in a tree stays as it is, with the tensors in it\n\
         hint: call ferry.register_container for the type to convert them",
        type_name(object)
    ))
    .map_err(PyErr::from)?;
    Ok(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?)
}
