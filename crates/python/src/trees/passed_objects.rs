//! Objects that pass through a tree with tensors in them, which nobody converts.
//!
//! An object of a type that is not a container stays as it is, and so do attributes of a container that are not its parts. If they hold
//! tensors, their user most likely expects them to be converted. A conversion warns once for each type; plans and traces list them.
//!
//! The search follows the references that the garbage collector sees, so no property runs and no iterator advances. It stays
//! inside data: modules, functions and loggers refer to objects that have nothing to do with the tree.

use crate::conversion::object_kinds::{Builtin, Form, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Result, is_loader, known_hint, library_hint, type_name};
use crate::frameworks::numpy;
use crate::interpreter::objects::{has_buffer, referents};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::type_cache::Cache;
use crate::protocols::reader::has_dlpack;
use crate::reports::join_names;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PySet, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::collections::BTreeMap;
use std::ffi::CString;
use tensorferry_core::fallible::try_push;

/// How many references below the object a tensor may be. Dicts do not count, because some objects have one for their attributes.
const MAX_LEVELS: usize = 6;
/// How many objects are searched.
const MAX_OBJECTS: usize = 256;
/// How many references of each are followed.
const MAX_REFERENTS: usize = 1024;

/// Why what passes is reported.
pub(crate) enum Reason {
    /// An object with tensors in it.
    Tensors,
    /// An object of a type that [`library_hint`] knows, with its hint.
    Library(String),
    /// An attribute with tensors in it, with a hint.
    Attribute(&'static str),
}

/// What passes and is reported.
pub(crate) struct Passed<'py> {
    /// Its path and type in words.
    pub(crate) name: String,
    /// The object, or the container with the attribute.
    pub(crate) object: Bound<'py, PyAny>,
    pub(crate) reason: Reason,
}

/// Why an object that passes is reported; `None` if it is not.
pub(crate) fn reason_to_report(object: &Bound<'_, PyAny>) -> Option<Reason> {
    static IS_KNOWN: Cache<bool> = Cache::new();
    let kind = object.get_type();
    let is_known = IS_KNOWN.get(kind.py(), kind.as_ptr()).unwrap_or_else(|| {
        let is_known = library_hint(object).is_some();
        IS_KNOWN.put(&kind, is_known);
        is_known
    });
    let hint = if is_known { library_hint(object) } else { None };
    hint.map(Reason::Library).or_else(|| contains_tensor(object).then_some(Reason::Tensors))
}

/// Whether the object is a tensor, or a tensor is in it.
pub(crate) fn is_or_contains_tensor(object: &Bound<'_, PyAny>) -> bool {
    recognise(object).is_ok_and(|recognised| is_tensor(object, recognised.kind())) || contains_tensor(object)
}

/// Whether a tensor is in the object.
fn contains_tensor(object: &Bound<'_, PyAny>) -> bool {
    let mut found = vec![(object.clone(), 0)];
    let mut next = 0;
    while let Some((owner, level)) = found.get(next).cloned() {
        next += 1;
        if !is_data(&owner.get_type()) {
            continue;
        }
        for part in referents(&owner, MAX_REFERENTS) {
            // A weak container holds its items by references. A reference that is an attribute does not count.
            let part = match part.cast::<PyWeakrefReference>() {
                Ok(weak)
                    if owner.is_instance_of::<PySet>() || part.get_type().hasattr("key").unwrap_or(false) =>
                {
                    weak.upgrade().unwrap_or_else(|| part.clone())
                }
                _ => part,
            };
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
        "builtins" | "collections" | "itertools" | "weakref" => {
            kind.hasattr("__len__")? || kind.hasattr("__next__")?
        }
        // Functions are descriptors, those of Cython too.
        _ if kind.hasattr("__get__")? => false,
        _ if kind.is_subclass_of::<PyType>()? || kind.is_subclass_of::<PyModule>()? => false,
        _ => kind.hasattr("__slots__")? || kind.getattr("__dictoffset__")?.is_truthy()?,
    })
}

/// What to do with a leaf of a tree that is not a tensor.
pub(crate) fn leaf_hint(leaf: &Bound<'_, PyAny>) -> String {
    known_hint(leaf).unwrap_or_else(|| {
        let is_builtin = leaf.get_type().module().is_ok_and(|module| module == "builtins");
        let hint = if !is_builtin && is_loader(leaf) {
            "use ferry.feed(x, framework), if it yields batches of tensors, or call ferry.register_container for that type"
        } else if !contains_tensor(leaf) {
            "make a tensor of it first, such as numpy.asarray(x)"
        } else if is_builtin {
            "pass list(x)"
        } else {
            "call ferry.register_container for that type to convert the tensors in it"
        };
        hint.to_owned()
    })
}

/// The notes about what passes.
pub(crate) fn notes(passed: &[Passed<'_>]) -> Result<Vec<String>> {
    let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for part in passed {
        let fact = match &part.reason {
            Reason::Tensors => "objects stay as they are, with the tensors in them, unless ferry.register_container opens their type"
                .to_owned(),
            Reason::Library(hint) => format!("objects stay as they are; {hint}"),
            Reason::Attribute(hint) => {
                format!("attributes stay as they are, with the tensors in them; {hint}")
            }
        };
        try_push(names.entry(fact).or_default(), part.name.as_str())?;
    }
    Ok(names.into_iter().map(|(fact, names)| format!("{fact}: {}", join_names(names.into_iter()))).collect())
}

/// The types about which a conversion has warned.
fn warned_types(py: Python<'_>) -> Result<&Bound<'_, PySet>> {
    static WARNED: ForkSafeOnce<Py<PySet>> = ForkSafeOnce::new();
    Ok(WARNED.get_or_try_init(py, || PySet::empty(py).map(Bound::unbind))?.bind(py))
}

/// Whether a conversion has warned about the object's type.
pub(crate) fn has_warned(object: &Bound<'_, PyAny>) -> bool {
    warned_types(object.py()).is_ok_and(|warned| warned.contains(object.get_type()).unwrap_or(false))
}

impl Passed<'_> {
    /// Warns that the object or its attributes pass, once for its type.
    pub(crate) fn warn_once(&self) -> Result<()> {
        let (object, py) = (&self.object, self.object.py());
        if has_warned(object) {
            return Ok(());
        }
        warned_types(py)?.add(object.get_type())?;
        let (fact, hint) = match &self.reason {
            Reason::Tensors => ("stays as it is, with the tensors in it", leaf_hint(object)),
            Reason::Library(hint) => ("stays as it is", hint.clone()),
            Reason::Attribute(hint) => {
                ("keeps attributes as they are, with the tensors in them", (*hint).to_owned())
            }
        };
        let message = format!("an object of type {} in a tree {fact}\nhint: {hint}", type_name(object));
        let message = CString::new(message).map_err(PyErr::from)?;
        Ok(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?)
    }
}
