//! Traversal of trees: visits each tensor, and rebuilds the containers around the results.
//!
//! Containers are dicts, lists, tuples, named tuples, deques, `UserDict`, `UserList`, `ChainMap`, read-only views of mappings,
//! `SimpleNamespace`, dataclasses, attrs classes, their subclasses, and types
//! that are registered here, with JAX or with PyTorch. A registration takes precedence over the fields of an object and over its array
//! protocols: a parameter of Flax converts itself to an array, and would lose its class. Other objects stay unchanged. An object that
//! appears twice is visited once.

use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::object_kinds::{Container, Form, Recognised, RecognisedObject};
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, fail, library_hint, type_name, wrap_exception};
use crate::interpreter::objects::{self, TENSOR_OVERHEAD_BYTES};
use crate::interpreter::once::interned;
use crate::reports::trace;
use crate::trees::copies::{copy_attributes, copy_dict, copy_error, shallow_copy};
use crate::trees::passed_objects::{
    Passed, Reason, has_warned, is_or_contains_tensor, leaf_hint, notes, reason_to_report,
};
use crate::trees::path::{Path, PathStep, format_path};
use crate::trees::registered_nodes::flatten;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PyMappingProxy, PySet, PyTuple, PyType};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tensorferry_core::fallible::{try_collect, try_push};
use tensorferry_core::{Error, ErrorKind, emergency_pool};

/// The limit of nesting, which a tree that contains itself exceeds. The traversal recurses, also on small stacks.
pub(crate) const MAX_DEPTH: usize = 100;

/// What to do with attributes of a dataclass or an attrs object that are not converted.
const FIELDS_HINT: &str = "declare them as fields, or call ferry.register_container for the type";

/// The function that is called for each tensor.
pub(crate) type Visit<'py, 'a> =
    dyn FnMut(RecognisedObject<'_, 'py>, &Path<'py, '_>) -> Result<Bound<'py, PyAny>> + 'a;

/// A hasher of addresses. They are 16 bytes apart, and no attacker chooses them.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // The hash table uses the lowest and the highest bits; the multiplication and the rotation fill both.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One traversal of a tree.
pub(crate) struct Walk<'py, 'a> {
    path: Vec<PathStep<'py>>,
    /// Results by the address of their source, which is kept alive so that no other object gets its address.
    results: HashMap<usize, (Bound<'py, PyAny>, Bound<'py, PyAny>), BuildHasherDefault<AddressHasher>>,
    visit: &'a mut Visit<'py, 'a>,
    /// Whether an object that appears twice is visited twice.
    visits_each: bool,
    /// Whether containers are rebuilt around the results. A plan only visits.
    rebuild: bool,
    /// Whether NumPy scalars are visited too. A plan tells that they pass.
    visits_scalars: bool,
    /// Whether a tensor was found.
    has_tensor: bool,
    /// Whether tables or columns were read.
    has_tables: bool,
    /// The first leaf that is neither a tensor nor None.
    first_other: Option<Bound<'py, PyAny>>,
    /// Whether objects and attributes that pass with tensors in them are reported. A second traversal of a tree does not.
    reports_passed: bool,
    /// These objects and attributes.
    passed: Vec<Passed<'py>>,
}

/// Visits the tensors of a tree. Returns a tree of the same structure, or the tree itself without `rebuild`.
///
/// A tree with leaves but without a tensor is an error: its caller took numbers for tensors. An empty tree is valid.
pub(crate) fn walk<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    rebuild: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    Walk::new(visit, rebuild).root(object, container, true)
}

/// As [`walk`], for a job, which will visit the tree again: returns the tree itself, or one with the columns of its tables, which
/// are read once. With `visits_each`, an object that appears twice is visited twice.
pub(crate) fn walk_for_job<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    visits_each: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    let mut walk = Walk { visits_each, ..Walk::new(visit, true) };
    let rebuilt = walk.root(object, container, true)?;
    Ok(if walk.has_tables { rebuilt } else { object.clone() })
}

/// As [`walk`], for arguments and results of functions, which may hold no tensor.
pub(crate) fn walk_allowing_no_tensor<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    rebuild: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    Walk::new(visit, rebuild).root(object, container, false)
}

/// Visits the tensors and the NumPy scalars of a tree for its plan. Returns the notes about what passes with tensors in it.
pub(crate) fn walk_for_plan<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    allow_no_tensor: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Vec<String>> {
    let mut walk = Walk::new(visit, false);
    walk.root(object, container, !allow_no_tensor)?;
    notes(&walk.passed)
}

/// As [`walk_allowing_no_tensor`], and visits the NumPy scalars too.
pub(crate) fn walk_with_scalars<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    rebuild: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    Walk { visits_scalars: true, ..Walk::new(visit, rebuild) }.root(object, container, false)
}

/// As [`walk_allowing_no_tensor`], for any object: a tensor, and any other leaf, is a tree of its own. With `visits_each`, an
/// object that appears twice is visited twice.
pub(crate) fn walk_any<'py, 'a>(
    object: &Bound<'py, PyAny>,
    visits_each: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    let mut walk = Walk { visits_each, reports_passed: false, ..Walk::new(visit, true) };
    let result = walk.object(object);
    result.map_err(|failure| walk.locate(failure))
}

fn no_tensor(tree: &Bound<'_, PyAny>, leaf: &Bound<'_, PyAny>) -> Failure {
    let fact = format!(
        "the {} holds no tensor: its first leaf is an object of type {}",
        type_name(tree),
        type_name(leaf)
    );
    fail(ErrorKind::NotATensor, fact, library_hint(tree).unwrap_or_else(|| leaf_hint(leaf)))
}

impl<'py, 'a> Walk<'py, 'a> {
    fn new(visit: &'a mut Visit<'py, 'a>, rebuild: bool) -> Self {
        Self {
            path: Vec::new(),
            results: HashMap::default(),
            visit,
            visits_each: false,
            rebuild,
            visits_scalars: !rebuild,
            has_tensor: false,
            has_tables: false,
            first_other: None,
            reports_passed: true,
            passed: Vec::new(),
        }
    }

    /// Visits the root. An error names the path at which it was raised. With `needs_tensor`, a tree with leaves but without a tensor
    /// is an error.
    fn root(
        &mut self,
        object: &Bound<'py, PyAny>,
        container: Container,
        needs_tensor: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let result = self.node(object, container).map_err(|failure| self.locate(failure))?;
        if let (Some(other), true, false) = (&self.first_other, needs_tensor, self.has_tensor) {
            return Err(no_tensor(object, other));
        }
        if self.rebuild && !self.passed.is_empty() {
            self.passed.iter().try_for_each(Passed::warn_once)?;
            if trace::is_tracing() {
                notes(&self.passed)?.iter().try_for_each(|note| trace::add_note(object.py(), note))?;
            }
        }
        Ok(result)
    }

    /// The failure with the path at which it was raised.
    fn locate(&self, failure: Failure) -> Failure {
        if self.path.is_empty() { failure } else { failure.at(&format_path(&self.path)) }
    }

    /// Keeps a leaf that is not a tensor.
    fn keep_leaf(&mut self, object: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        if self.first_other.is_none() && !object.is_none() {
            self.first_other = Some(object.clone());
        }
        object.clone()
    }

    /// Keeps an object that is neither a tensor nor a container.
    fn keep_object(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if self.is_reported(object)
            && let Some(reason) = reason_to_report(object)
        {
            let name = format!("{} ({})", format_path(&self.path), type_name(object));
            try_push(&mut self.passed, Passed { name, object: object.clone(), reason })?;
        }
        Ok(self.keep_leaf(object))
    }

    /// Whether what passes with the object is reported: by each plan and trace, and beside them once for its type.
    fn is_reported(&self, object: &Bound<'py, PyAny>) -> bool {
        self.reports_passed && (!self.rebuild || trace::is_tracing() || !has_warned(object))
    }

    /// Reports the attributes of a container with tensors in them that are not among its parts.
    fn report_attributes(
        &mut self,
        object: &Bound<'py, PyAny>,
        is_part: impl Fn(&Bound<'py, PyAny>) -> bool,
        hint: &'static str,
    ) -> Result<()> {
        let Some(attributes) = objects::instance_dict(object).filter(|dict| !dict.is_empty()) else {
            return Ok(());
        };
        for (name, value) in try_collect(attributes.iter().map(Ok::<_, Failure>))? {
            if !is_part(&name) && self.is_reported(object) && is_or_contains_tensor(&value) {
                let name = format!("{}.{name} ({})", format_path(&self.path), type_name(&value));
                let reason = Reason::Attribute(hint);
                try_push(&mut self.passed, Passed { name, object: object.clone(), reason })?;
            }
        }
        Ok(())
    }

    /// As [`Self::report_attributes`], for a subclass of dict or list. Those of `collections` are not asked: PyTorch keeps versions of
    /// modules in an attribute of each state dict.
    fn report_attributes_beside_items(
        &mut self,
        object: &Bound<'py, PyAny>,
        is_item: impl Fn(&Bound<'py, PyAny>) -> bool,
    ) -> Result<()> {
        if object.get_type().module()? == "collections" {
            return Ok(());
        }
        self.report_attributes(object, is_item, "store them as items")
    }

    /// Visits a child. After an error the path keeps the step, for the message.
    fn child(&mut self, step: PathStep<'py>, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if self.path.len() > MAX_DEPTH {
            self.path.clear();
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("the tree is nested more than {MAX_DEPTH} levels deep"),
                "check that no container contains itself",
            ));
        }
        self.path.push(step);
        let result = self.object(object)?;
        self.path.pop();
        Ok(result)
    }

    /// Visits a tensor, a container or a leaf.
    fn object(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let recognised = recognise(object)?;
        let kind = recognised.kind();
        let is_scalar = is_scalar(kind);
        if matches!(kind, Recognised::Leaf | Recognised::Bytes) || (is_scalar && !self.visits_scalars) {
            return Ok(self.keep_leaf(object));
        }
        // A registered set is a container, so the registries are not asked again.
        if kind == Recognised::Unknown
            && (object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>())
        {
            return self.keep_object(object);
        }
        if !self.visits_each
            && let Some((_, result)) = self.results.get(&(object.as_ptr() as usize))
        {
            return Ok(result.clone());
        }
        // A registration takes precedence over the array protocols of an object.
        let node = match kind {
            Recognised::Unknown | Recognised::Protocol => self.registered(object)?,
            Recognised::Container(container) => Some(self.node(object, container)?),
            _ => None,
        };
        let result = match (node, kind) {
            (Some(node), _) => node,
            (None, Recognised::Arrow | Recognised::Pandas) => {
                self.has_tables = true;
                self.object(&arrow::read::columns(object, self.purpose())?)?
            }
            (None, Recognised::Unknown) if !has_tensor_protocol(object)? => return self.keep_object(object),
            _ => {
                if is_scalar {
                    self.keep_leaf(object);
                }
                self.has_tensor |= !is_scalar;
                emergency_pool::ensure_headroom(TENSOR_OVERHEAD_BYTES)?;
                (self.visit)(recognised, &Path(&self.path))?
            }
        };
        if !self.visits_each {
            self.try_reserve_results(1)?;
            self.results.insert(object.as_ptr() as usize, (object.clone(), result.clone()));
        }
        Ok(result)
    }

    /// What tables are read for.
    fn purpose(&self) -> Purpose {
        if self.rebuild { Purpose::Conversion } else { Purpose::Plan }
    }

    /// Reserves memory for more results.
    fn try_reserve_results(&mut self, more: usize) -> Result<()> {
        let entry_bytes = size_of::<(usize, Bound<'_, PyAny>, Bound<'_, PyAny>)>();
        let bytes = self.results.len().saturating_add(more).saturating_mul(entry_bytes);
        Ok(self.results.try_reserve(more).map_err(|_| Error::out_of_memory(bytes))?)
    }

    fn node(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<Bound<'py, PyAny>> {
        match container {
            Container::Dict => self.dict(object),
            Container::List => self.list(object),
            Container::Tuple | Container::NamedTuple => self.tuple(object, container),
            Container::Deque => self.deque(object),
            // A registration takes precedence for the others.
            _ => match (self.registered(object)?, container) {
                (Some(result), _) => Ok(result),
                (None, Container::UserDict | Container::UserList) => self.wrapper(object),
                (None, Container::MappingProxy) => self.mapping_proxy(object),
                (None, Container::Registered) => Ok(object.clone()),
                (None, _) => self.fields(object, container),
            },
        }
    }

    fn dict(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let items = try_collect(object.cast::<PyDict>().map_err(PyErr::from)?.iter().map(Ok::<_, Failure>))?;
        self.try_reserve_results(items.len())?;
        let pairs = items.into_iter().map(|(key, value)| {
            let value = self.child(PathStep::Key(key.clone()), &value)?;
            Ok::<_, Failure>((key, value))
        });
        let results = try_collect(pairs)?;
        let exact = object.is_exact_instance_of::<PyDict>();
        if !exact {
            let dict = object.cast::<PyDict>().map_err(PyErr::from)?;
            self.report_attributes_beside_items(object, |name| dict.contains(name).unwrap_or(true))?;
        }
        if !self.rebuild {
            return Ok(object.clone());
        }
        let result = if exact { PyDict::new(py).into_any() } else { shallow_copy(object)? };
        for (key, value) in results {
            result.set_item(key, value).map_err(|error| copy_error(object, error))?;
        }
        Ok(result)
    }

    fn children(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) -> Result<Vec<Bound<'py, PyAny>>> {
        try_collect(items.enumerate().map(|(index, item)| self.child(PathStep::Index(index), &item)))
    }

    fn list(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let items = try_collect(object.cast::<PyList>().map_err(PyErr::from)?.iter().map(Ok::<_, Failure>))?;
        self.try_reserve_results(items.len())?;
        let results = self.children(items.into_iter())?;
        let exact = object.is_exact_instance_of::<PyList>();
        if !exact {
            self.report_attributes_beside_items(object, |_| false)?;
        }
        if !self.rebuild {
            return Ok(object.clone());
        }
        let results = objects::list(py, results)?;
        if exact {
            return Ok(results.into_any());
        }
        let copy = shallow_copy(object)?;
        copy.cast::<PyList>().map_err(PyErr::from)?.set_slice(0, results.len(), &results)?;
        Ok(copy)
    }

    fn deque(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let items = try_collect(object.try_iter()?.map(|item| item.map_err(Failure::from)))?;
        let results = objects::list(object.py(), self.children(items.into_iter())?)?;
        if !self.rebuild {
            return Ok(object.clone());
        }
        let copy = shallow_copy(object)?;
        copy.call_method0("clear")?;
        copy.call_method1("extend", (results,))?;
        Ok(copy)
    }

    /// A `UserDict` or `UserList`, which stores its items in the attribute `data`.
    fn wrapper(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let name = interned!(object.py(), "data");
        let Some(data) = object.getattr_opt(name)? else { return Ok(object.clone()) };
        // Only a dict or a list is valid there. A wrapper could contain itself.
        let Recognised::Container(container @ (Container::Dict | Container::List)) = recognise(&data)?.kind()
        else {
            return Ok(object.clone());
        };
        let result = self.node(&data, container)?;
        if !self.rebuild {
            return Ok(object.clone());
        }
        let copy = shallow_copy(object)?;
        copy.setattr(name, result)?;
        Ok(copy)
    }

    fn tuple(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let items = try_collect(object.cast::<PyTuple>().map_err(PyErr::from)?.iter().map(Ok::<_, Failure>))?;
        let results = if container == Container::NamedTuple {
            let names: Vec<String> = object.getattr("_fields")?.extract()?;
            let pairs = items.iter().zip(names);
            try_collect(pairs.map(|(item, name)| self.child(PathStep::Field(name), item)))?
        } else {
            self.children(items.iter().cloned())?
        };
        // A tuple without changes, such as torch.Size, is its own result.
        if !self.rebuild || items.iter().zip(&results).all(|(item, result)| item.is(result)) {
            return Ok(object.clone());
        }
        let results = objects::tuple(py, results)?;
        if object.is_exact_instance_of::<PyTuple>() {
            return Ok(results.into_any());
        }
        let kind = object.get_type();
        Ok(if container == Container::NamedTuple {
            kind.call_method1("_make", (results,))
        } else {
            kind.call1((results,))
        }?)
    }

    /// A read-only view of a mapping, which may be a view too.
    fn mapping_proxy(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let mut mapping = object.clone();
        while mapping.is_instance_of::<PyMappingProxy>()
            && let Some(viewed) = objects::referents(&mapping, 1).pop()
        {
            mapping = viewed;
        }
        let result = self.object(&mapping)?;
        let is_same = !self.rebuild || result.is(&mapping);
        Ok(if is_same { object.clone() } else { object.get_type().call1((result,))? })
    }

    /// An object that stores its parts in attributes.
    fn fields(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        // `object.__setattr__` also works for frozen dataclasses, whose own constructor uses it.
        let set = py.get_type::<PyAny>().getattr("__setattr__")?;
        let fields = match container {
            Container::Dataclass => py.import("dataclasses")?.call_method1("fields", (object,))?,
            Container::Attrs => object.get_type().getattr("__attrs_attrs__")?,
            Container::Namespace => object.getattr("__dict__")?.call_method0("copy")?,
            _ => PyList::new(py, ["maps"])?.into_any(),
        };
        let mut results = Vec::new();
        for field in fields.try_iter()? {
            let field = field?;
            let name: String = field.getattr_opt("name")?.unwrap_or(field).extract()?;
            if let Some(value) = object.getattr_opt(name.as_str())? {
                let value = self.child(PathStep::Field(name.clone()), &value)?;
                try_push(&mut results, (name, value))?;
            }
        }
        if matches!(container, Container::Dataclass | Container::Attrs) {
            let is_field = |name: &Bound<'py, PyAny>| {
                name.extract::<&str>().is_ok_and(|name| results.iter().any(|(field, _)| field == name))
            };
            self.report_attributes(object, is_field, FIELDS_HINT)?;
        }
        if !self.rebuild {
            return Ok(object.clone());
        }
        let copy = match container {
            Container::Dataclass | Container::Attrs => copy_attributes(object, container),
            _ => shallow_copy(object),
        }?;
        if container == Container::ChainMap {
            // The copy is a call of the constructor with the maps alone.
            copy_dict(object, &copy)?;
        }
        for (name, value) in results {
            set.call1((&copy, name, value))?;
        }
        Ok(copy)
    }

    /// A node that is registered here, with JAX or with PyTorch.
    fn registered(&mut self, object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
        let Some((children, rebuild)) = flatten(object)? else { return Ok(None) };
        let results = try_collect(children.into_iter().map(|(step, child)| self.child(step, &child)))?;
        Ok(Some(if self.rebuild { rebuild(results)? } else { object.clone() }))
    }
}

/// Whether it is a NumPy scalar, which stays unchanged in a tree, like other numbers.
pub(crate) fn is_scalar(recognised: Recognised) -> bool {
    matches!(recognised, Recognised::Tensor(_, Form::Scalar))
}

/// Whether the object itself has the buffer protocol or an array protocol, which its type alone may not show.
pub(crate) fn has_tensor_protocol(object: &Bound<'_, PyAny>) -> Result<bool> {
    if object.is_instance_of::<PyType>() {
        return Ok(false);
    }
    if objects::has_buffer(object) {
        return Ok(true);
    }
    for name in
        ["__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array_struct__", "__array__"]
    {
        let has = object.hasattr(name).map_err(|error| {
            let about = format!("the attribute {name} of {} cannot be read", type_name(object));
            let hint = "leave the object out of the tree, or fix its __getattr__";
            wrap_exception(object.py(), error, ErrorKind::FrameworkFailed, &about, hint)
        })?;
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The kind of container that an object is, if any. Includes types that are registered with JAX or PyTorch only.
pub(crate) fn container_of(recognised: RecognisedObject<'_, '_>) -> Result<Option<Container>> {
    let object = recognised.object();
    match recognised.kind() {
        Recognised::Container(container) => Ok(Some(container)),
        // An object is asked for its protocols where no registration names its type.
        Recognised::Unknown | Recognised::Protocol => {
            Ok(flatten(object)?.is_some().then_some(Container::Registered))
        }
        _ => Ok(None),
    }
}

/// The tensor in a node that is a tensor for DLPack, such as a parameter of Flax, for callers that accept no tree; `None` for other objects.
pub(crate) fn tensor_of_node<'py>(
    recognised: RecognisedObject<'_, 'py>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let object = recognised.object();
    if !matches!(recognised.kind(), Recognised::Unknown | Recognised::Protocol)
        || !object.hasattr(interned!(object.py(), "__dlpack__")).unwrap_or(false)
    {
        return Ok(None);
    }
    let Some((children, _)) = flatten(object)? else { return Ok(None) };
    Ok(<[_; 1]>::try_from(children).ok().map(|[(_, child)]| child))
}
