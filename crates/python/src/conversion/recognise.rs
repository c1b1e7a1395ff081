//! Whose object is this? Answered from the type alone, once for each type, importing nothing.
//!
//! A framework's types are known by module and name along the method resolution order, so that an object
//! of a framework that is not loaded cannot exist and one that is loaded need not be imported again.

use crate::conversion::kinds::{CONCLUSIONS, Container, Recognised};
use crate::errors::Result;
use crate::frameworks;
use crate::frameworks::register::by_type;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple, PyType};

/// What `object` is.
pub(crate) fn recognise(object: &Bound<'_, PyAny>) -> Result<Recognised> {
    let py = object.py();
    // SAFETY: the object is alive, and so is its type.
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    if let Some(known) = CONCLUSIONS.get(py, kind.cast()) {
        return Ok(known);
    }
    conclude(&object.get_type())
}

/// What objects of a type are.
pub(crate) fn recognise_type(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    match CONCLUSIONS.get(kind.py(), kind.as_ptr()) {
        Some(known) => Ok(known),
        None => conclude(kind),
    }
}

fn conclude(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    let recognised = classify(kind)?;
    CONCLUSIONS.put(kind, recognised);
    Ok(recognised)
}

fn classify(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    if let Some(recognised) = by_bases(kind)? {
        return Ok(recognised);
    }
    let recognised = by_shape(kind)?;
    if recognised != Recognised::Unknown {
        return Ok(recognised);
    }
    // Before a type is nobody's, installed packages may say that it is theirs.
    frameworks::registered::load_entry_points(kind.py())?;
    Ok(by_bases(kind)?.unwrap_or(Recognised::Unknown))
}

fn by_bases(kind: &Bound<'_, PyType>) -> PyResult<Option<Recognised>> {
    let py = kind.py();
    for (position, class) in kind.mro().iter().enumerate() {
        let class = class.cast_into::<PyType>()?;
        let (module, name) = (class.getattr("__module__")?, class.getattr("__qualname__")?);
        let (Ok(module), Ok(name)) = (module.extract::<String>(), name.extract::<String>()) else { continue };
        if let Some(place) = frameworks::registered::index_of_type(py, &module, &name) {
            return Ok(Some(Recognised::Registered(place)));
        }
        match by_type(&module, &name, position == 0) {
            // The name alone is not believed: readers look into the C structs of these types.
            Some(Recognised::Tensor(..)) if !is_genuine(&class, &module, &name)? => {}
            Some(recognised) => return Ok(Some(recognised)),
            None => {}
        }
    }
    Ok(None)
}

/// Whether the class is the one that its module has under that name.
fn is_genuine(class: &Bound<'_, PyType>, module: &str, name: &str) -> PyResult<bool> {
    let modules = class.py().import("sys")?.getattr("modules")?;
    let Ok(module) = modules.get_item(module) else { return Ok(false) };
    Ok(module.getattr_opt(name)?.is_some_and(|known| known.is(class)))
}

fn class<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?)
}

fn by_shape(kind: &Bound<'_, PyType>) -> PyResult<Recognised> {
    let py = kind.py();
    let is = |other: &Bound<'_, PyType>| kind.is_subclass(other);
    if is(&py.get_type::<PyDict>())? {
        return Ok(Recognised::Container(Container::Dict));
    }
    if is(&py.get_type::<PyList>())? {
        return Ok(Recognised::Container(Container::List));
    }
    if is(&py.get_type::<PyTuple>())? {
        let named = kind.hasattr("_fields")? && kind.hasattr("_make")?;
        return Ok(Recognised::Container(if named { Container::NamedTuple } else { Container::Tuple }));
    }
    if is(&py.get_type::<pyo3::types::PyBytes>())? {
        return Ok(Recognised::Bytes);
    }
    if is(&py.get_type::<pyo3::types::PyString>())?
        || is(&py.get_type::<pyo3::types::PyInt>())?
        || is(&py.get_type::<pyo3::types::PyFloat>())?
        || is(&py.get_type::<pyo3::types::PyComplex>())?
        || is(&py.get_type::<PySet>())?
        || is(&py.get_type::<PyFrozenSet>())?
        || kind.is(py.None().bind(py).get_type())
    {
        return Ok(Recognised::Leaf);
    }
    if crate::protocols::reader::speaks_dlpack(kind)? {
        return Ok(Recognised::Protocol);
    }
    // SAFETY: the type is alive; the slot is asked for, not called.
    if !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null() {
        return Ok(Recognised::Buffer);
    }
    if crate::protocols::reader::speaks_array(kind)? {
        return Ok(Recognised::Protocol);
    }
    if crate::trees::registered_nodes::is_registered(kind)? {
        return Ok(Recognised::Container(Container::Registered));
    }
    if is(&class(py, "collections", "deque")?)? {
        return Ok(Recognised::Container(Container::Deque));
    }
    if is(&class(py, "collections", "UserDict")?)? {
        return Ok(Recognised::Container(Container::UserDict));
    }
    if is(&class(py, "collections", "UserList")?)? {
        return Ok(Recognised::Container(Container::UserList));
    }
    if kind.hasattr("__dataclass_fields__")? {
        return Ok(Recognised::Container(Container::Dataclass));
    }
    Ok(Recognised::Unknown)
}
