//! Objects that pass through a tree with tensors in them, which nobody converts.
//!
//! An object of a type that is not a container stays as it is. If it holds tensors, its user most likely expects them to be
//! converted. A conversion warns once for each type; plans and traces list the objects.
//!
//! The search follows the references that the garbage collector sees, so no property runs and no iterator advances. It stays
//! inside data: modules, functions and loggers refer to objects that have nothing to do with the tree.

use crate::conversion::object_kinds::{Builtin, Form, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Result, has_state_dict, library_hint, type_name};
use crate::frameworks::numpy;
use crate::interpreter::objects::{has_buffer, referents};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::type_cache::Cache;
use crate::protocols::reader::has_dlpack;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PySet, PyType};
use std::ffi::CString;

/// How many references below the object a tensor may be. Dicts do not count, because some objects have one for their attributes.
const MAX_LEVELS: usize = 4;
/// How many objects are searched.
const MAX_OBJECTS: usize = 256;
/// How many references of each are followed.
const MAX_REFERENTS: usize = 256;

/// Whether a tensor is in the object.
pub(crate) fn contains_tensor(object: &Bound<'_, PyAny>) -> bool {
    let mut found = vec![(object.clone(), 0)];
    let mut next = 0;
    while let Some((owner, level)) = found.get(next).cloned() {
        next += 1;
        if !is_data(&owner.get_type()) {
            continue;
        }
        for part in referents(&owner, MAX_REFERENTS) {
            let Ok(kind) = recognise(&part).map(|recognised| recognised.kind()) else { continue };
            if is_tensor(&part, kind) {
                return true;
            }
            let level = level + usize::from(!part.is_instance_of::<PyDict>());
            if !matches!(kind, Recognised::Leaf | Recognised::Bytes | Recognised::Tensor(..))
                && level < MAX_LEVELS
                && found.len() < MAX_OBJECTS
                && !found.iter().any(|(known, _)| known.is(&part))
            {
                found.push((part, level));
            }
        }
    }
    false
}

fn is_tensor(object: &Bound<'_, PyAny>, kind: Recognised) -> bool {
    match kind {
        Recognised::Tensor(_, Form::Scalar) => false,
        // Arrays of Python objects and of text are not tensors.
        Recognised::Tensor(Builtin::Numpy, _) => {
            object.getattr("dtype").is_ok_and(|dtype| numpy::dtype_of(&dtype).is_ok())
        }
        Recognised::Tensor(..)
        | Recognised::Registered(_)
        | Recognised::KerasVariable
        | Recognised::OrtValue
        | Recognised::Arrow => true,
        Recognised::Protocol => has_dlpack(&object.get_type()).unwrap_or(false),
        Recognised::Refused(refusal) => refusal.is_sparse() || has_buffer(object),
        _ => false,
    }
}

/// Whether the references of the type's instances are data: their attributes, or the items of a container or an iterator of Python.
fn is_data(kind: &Bound<'_, PyType>) -> bool {
    static KNOWN: Cache<bool> = Cache::new();
    KNOWN.get(kind.py(), kind.as_ptr()).unwrap_or_else(|| {
        let is_data = classify(kind).unwrap_or(false);
        KNOWN.put(kind, is_data);
        is_data
    })
}

fn classify(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    let module = kind.getattr("__module__")?;
    Ok(match module.extract::<&str>()? {
        // A logger refers to all others, an index of text in pandas is an array of Arrow, and a figure has matrices of its own.
        module if matches!(module.split('.').next(), Some("logging" | "pandas" | "matplotlib")) => false,
        "builtins" | "collections" => kind.hasattr("__len__")? || kind.hasattr("__next__")?,
        // Functions are descriptors, those of Cython too.
        _ if kind.hasattr("__get__")? => false,
        _ if kind.is_subclass_of::<PyType>()? || kind.is_subclass_of::<PyModule>()? => false,
        _ => kind.hasattr("__slots__")? || kind.getattr("__dictoffset__")?.is_truthy()?,
    })
}

/// What to do with a leaf of a tree that is not a tensor.
pub(crate) fn leaf_hint(leaf: &Bound<'_, PyAny>) -> String {
    library_hint(leaf).unwrap_or_else(|| {
        let hint = if has_state_dict(leaf) {
            "pass x.state_dict(), which is a dict of its tensors"
        } else if contains_tensor(leaf) && leaf.get_type().module().is_ok_and(|module| module == "builtins") {
            "pass list(x)"
        } else if contains_tensor(leaf) {
            "call ferry.register_container for that type to convert the tensors in it"
        } else {
            "make a tensor of it first, such as numpy.asarray(x)"
        };
        hint.to_owned()
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
        "an object of type {} in a tree stays as it is, with the tensors in it\nhint: {}",
        type_name(object),
        leaf_hint(object)
    ))
    .map_err(PyErr::from)?;
    Ok(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?)
}
