//! Describes Python objects in messages.

use super::failure::{Failure, fail};
use super::library_types::library_hint;
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PySet, PyString, PyType};
use tensorferry_core::ErrorKind;

/// Describes an invalid argument: the text of a string, or the type of any other object.
pub(crate) fn describe_argument(given: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = given.cast::<PyString>() {
        return format!("\"{}\"", text.to_string_lossy().lines().next().unwrap_or_default());
    }
    match given.cast::<PyType>().map(|class| class.fully_qualified_name()) {
        Ok(Ok(name)) => format!("the class {name}"),
        _ => format!("an object of type {}", type_name(given)),
    }
}

/// The qualified name of an object's type.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map(|name| name.to_string()).unwrap_or_default()
}

/// The error for an object that is not a tensor.
pub(crate) fn not_a_tensor(object: &Bound<'_, PyAny>) -> Failure {
    let name = type_name(object);
    if name == "h5py._hl.base.Empty" {
        return without_values(object);
    }
    let hint = known_hint(object).unwrap_or_else(|| {
        let hint = match name.as_str() {
            "int" | "float" | "complex" | "bool" | "range" => "make a tensor of it first: numpy.asarray(x)",
            _ if has_method(object, "keys") => "pass dict(x), if its values are tensors",
            _ if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() => "pass list(x)",
            _ if is_loader(object) => "use ferry.feed(x, framework), if it yields batches of tensors",
            _ => "pass a tensor, a buffer, or a dict, list, tuple or dataclass of them",
        };
        hint.to_owned()
    });
    fail(ErrorKind::NotATensor, format!("an object of type {name} is not a tensor"), hint)
}

/// Whether the object is an iterable or a map-style dataset.
pub(crate) fn is_loader(object: &Bound<'_, PyAny>) -> bool {
    !object.is_instance_of::<PyString>()
        && (has_method(object, "__iter__")
            || has_method(object, "__len__") && has_method(object, "__getitem__"))
}

/// Whether a class of the object has the method; a metaclass, such as that of an enum, does not count.
fn has_method(object: &Bound<'_, PyAny>, name: &str) -> bool {
    let has = |class: Bound<'_, PyAny>| class.getattr("__dict__")?.contains(name);
    object.get_type().mro().iter().any(|class| has(class).unwrap_or(false))
}

/// The error for an object of HDF5 with a null dataspace.
pub(crate) fn without_values(object: &Bound<'_, PyAny>) -> Failure {
    let fact = format!("{} is empty: it has a type, and neither a shape nor values", type_name(object));
    fail(ErrorKind::NotATensor, fact, "pass numpy.empty(0, x.dtype), or leave it out")
}

/// Whether the object is a dataset of Hugging Face whose columns `ferry.arrow` reads: not a dict of datasets, a column of one, or a
/// dataset with a transform.
pub(crate) fn is_dataset(object: &Bound<'_, PyAny>) -> bool {
    let name = type_name(object);
    let has_transform = || -> PyResult<bool> { object.getattr("format")?.get_item("type")?.eq("custom") };
    name.starts_with("datasets.") && name.ends_with("Dataset") && !has_transform().unwrap_or(false)
}

/// What to do with an object of a type that [`library_hint`] knows, or that has a `state_dict()`, as modules and optimizers of PyTorch do.
pub(crate) fn known_hint(object: &Bound<'_, PyAny>) -> Option<String> {
    let has_state_dict = || {
        let found = object.get_type().getattr_opt("state_dict");
        found.is_ok_and(|found| found.is_some_and(|method| method.is_callable()))
    };
    library_hint(object).or_else(|| {
        has_state_dict().then(|| "pass x.state_dict(), which is a dict of its tensors".to_owned())
    })
}
