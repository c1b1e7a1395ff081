//! Recognises the kind of an object from its type, once for each type, without an import.
//!
//! A framework's types are found by module and name along the method resolution order. An object can only exist if its
//! framework is loaded, so a look-up in `sys.modules` is enough.

use crate::arrow::column::ArrowColumn;
use crate::conversion::object_kinds::{Container, RECOGNISED_TYPES, Recognised, RecognisedObject, Refusal};
use crate::errors::{Result, find_refused};
use crate::frameworks;
use crate::frameworks::builtin_frameworks::classify_by_type;
use crate::interpreter::objects;
use crate::protocols::reader::{has_array_interface, has_dlpack, ranks_above_arrow};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

/// The kind of an object.
#[inline(always)]
pub(crate) fn recognise<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Result<RecognisedObject<'a, 'py>> {
    let kind = match RECOGNISED_TYPES.get(object.py(), object.get_type_ptr().cast()) {
        Some(known) => known,
        None => recognise_new_type(&object.get_type())?,
    };
    // SAFETY: `new` requires the kind of the object's type: it was found for this type, now or before. `by_bases` returns
    // `Recognised::Tensor` only if `is_genuine` found the class in the framework's own module.
    Ok(unsafe { RecognisedObject::new(object, kind) })
}

/// The kind of the objects of a type.
pub(crate) fn recognise_type(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    match RECOGNISED_TYPES.get(kind.py(), kind.as_ptr()) {
        Some(known) => Ok(known),
        None => recognise_new_type(kind),
    }
}

#[cold]
#[inline(never)]
fn recognise_new_type(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    let recognised = classify(kind)?;
    RECOGNISED_TYPES.put(kind, recognised);
    Ok(recognised)
}

fn classify(kind: &Bound<'_, PyType>) -> Result<Recognised> {
    if let Some(recognised) = by_bases(kind)? {
        return Ok(recognised);
    }
    let recognised = by_protocol(kind)?;
    if recognised != Recognised::Unknown {
        return Ok(recognised);
    }
    // Entry points of installed packages may register the type.
    frameworks::user_frameworks::load_entry_points(kind.py())?;
    Ok(by_bases(kind)?.unwrap_or(Recognised::Unknown))
}

/// The kind by the names of the type and its bases.
fn by_bases(kind: &Bound<'_, PyType>) -> PyResult<Option<Recognised>> {
    let py = kind.py();
    for (position, class) in kind.mro().iter().enumerate() {
        let class = class.cast_into::<PyType>()?;
        let (module, name) = (class.getattr("__module__")?, class.getattr("__qualname__")?);
        let (Ok(module), Ok(name)) = (module.extract::<String>(), name.extract::<String>()) else { continue };
        if let Some(index) = frameworks::user_frameworks::index_of_type(py, &module, &name) {
            return Ok(Some(Recognised::Registered(index)));
        }
        let of_library = match (module.as_str(), name.as_str()) {
            ("PIL.Image", "Image") => Some(Recognised::Image),
            ("keras.src.backend.common.variables", name) if name.ends_with("Variable") => {
                Some(Recognised::KerasVariable)
            }
            (module, "OrtValue") if module.starts_with("onnxruntime.") => Some(Recognised::OrtValue),
            (module, name) => {
                find_refused(module, name).map(|types| Recognised::Refused(Refusal::Library(types)))
            }
        };
        if of_library.is_some() {
            return Ok(of_library);
        }
        match classify_by_type(&module, &name, position == 0) {
            // The name alone is not enough: readers access the C structs of these types.
            Some(Recognised::Tensor(..)) if !is_genuine(&class, &module, &name)? => {}
            Some(recognised) => return Ok(Some(recognised)),
            None => {}
        }
    }
    Ok(None)
}

/// Whether the module has this class under that name.
fn is_genuine(class: &Bound<'_, PyType>, module: &str, name: &str) -> PyResult<bool> {
    let modules = class.py().import("sys")?.getattr("modules")?;
    let Ok(module) = modules.get_item(module) else { return Ok(false) };
    Ok(module.getattr_opt(name)?.is_some_and(|known| known.is(class)))
}

fn class<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?)
}

/// The kind of a type with the Arrow C data interface; `None` without one.
///
/// That of pandas is not used, because it turns NaN into null and the index into a column: pandas is read through its own API. That
/// of xarray makes a table of an array and its coordinates.
fn by_arrow_interface(kind: &Bound<'_, PyType>) -> PyResult<Option<Recognised>> {
    if ranks_above_arrow(kind)? {
        return Ok(None);
    }
    for class in kind.mro().iter() {
        let own = class.getattr("__dict__")?;
        if own.contains("__arrow_c_array__")?
            || own.contains("__arrow_c_stream__")?
            || own.contains("__arrow_c_device_array__")?
        {
            let module = class.getattr("__module__")?.extract::<String>().unwrap_or_default();
            return Ok(match module.split('.').next() {
                Some("pandas") => Some(Recognised::Pandas),
                Some("xarray") => None,
                _ => Some(Recognised::Arrow),
            });
        }
    }
    Ok(None)
}

/// The kind by builtin bases and protocols.
fn by_protocol(kind: &Bound<'_, PyType>) -> PyResult<Recognised> {
    let py = kind.py();
    let is = |other: &Bound<'_, PyType>| kind.is_subclass(other);
    if is(&py.get_type::<PyDict>())? {
        return Ok(Recognised::Container(Container::Dict));
    }
    if is(&py.get_type::<PyList>())? {
        return Ok(Recognised::Container(Container::List));
    }
    if is(&py.get_type::<PyTuple>())? {
        let is_named = kind.hasattr("_fields")? && kind.hasattr("_make")?;
        return Ok(Recognised::Container(if is_named { Container::NamedTuple } else { Container::Tuple }));
    }
    if is(&py.get_type::<pyo3::types::PyBytes>())? {
        return Ok(Recognised::Bytes);
    }
    if is(&py.get_type::<pyo3::types::PyString>())?
        || is(&py.get_type::<pyo3::types::PyInt>())?
        || is(&py.get_type::<pyo3::types::PyFloat>())?
        || is(&py.get_type::<pyo3::types::PyComplex>())?
        || kind.is(py.None().bind(py).get_type())
    {
        return Ok(Recognised::Leaf);
    }
    if is(&py.get_type::<ArrowColumn>())? {
        return Ok(Recognised::ArrowColumn);
    }
    if let Some(recognised) = by_arrow_interface(kind)? {
        return Ok(recognised);
    }
    if has_dlpack(kind)? {
        return Ok(Recognised::Protocol);
    }
    if objects::instances_have_buffer(kind) {
        return Ok(Recognised::Buffer);
    }
    if has_array_interface(kind)? {
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
    if is(&class(py, "collections", "ChainMap")?)? {
        return Ok(Recognised::Container(Container::ChainMap));
    }
    if is(&class(py, "types", "MappingProxyType")?)? {
        return Ok(Recognised::Container(Container::MappingProxy));
    }
    if is(&class(py, "types", "SimpleNamespace")?)? {
        return Ok(Recognised::Container(Container::Namespace));
    }
    if kind.hasattr("__dataclass_fields__")? {
        return Ok(Recognised::Container(Container::Dataclass));
    }
    if kind.hasattr("__attrs_attrs__")? {
        return Ok(Recognised::Container(Container::Attrs));
    }
    Ok(Recognised::Unknown)
}
