//! Trees: containers keep their shape, tensors in them are carried, everything else passes through.
//!
//! Dicts, lists, tuples, named tuples, deques, `UserDict`, `UserList` and dataclasses (and subclasses of them) are
//! known by themselves.
//! Other nodes are those registered here, with JAX or with PyTorch. An object that appears twice gives one
//! result.

use crate::conversion::kinds::{Container, Form, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, fail, foreign, has_state_dict, type_name};
use crate::interpreter::once::ForkSafeOnce;
use crate::trees::registered_nodes::flatten;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hasher};
use tensorferry_core::fallible::{try_collect, try_push};
use tensorferry_core::{Error, ErrorKind, emergency_pool};

/// Deeper than this is a tree that contains itself, or might as well be. The walk recurses, also on small stacks.
pub(crate) const MAX_DEPTH: usize = 100;

/// One step from a node to a child.
pub(crate) enum Piece<'py> {
    Key(Bound<'py, PyAny>),
    Index(usize),
    Field(String),
}

/// Memory that the result, the plan and the framework's own objects are taken to need for one tensor, beside its values.
pub(crate) const TENSOR_OVERHEAD_BYTES: usize = 4096;

/// What is done at each tensor; the last argument tells its place in the tree.
pub(crate) type Visit<'py, 'a> =
    dyn FnMut(&Bound<'py, PyAny>, Recognised, &dyn Fn() -> String) -> Result<Bound<'py, PyAny>> + 'a;

/// Addresses as their own hashes: they are 16 bytes apart, and nobody chooses them to collide.
#[derive(Default)]
struct Address(u64);

impl Hasher for Address {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // The table looks at the lowest and at the highest bits; the multiplication fills both.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A walk over a tree.
pub(crate) struct Walk<'py, 'a> {
    path: Vec<Piece<'py>>,
    /// Results by the address of their source, which is kept alive so that the address stays its own.
    known: HashMap<usize, (Bound<'py, PyAny>, Bound<'py, PyAny>), BuildHasherDefault<Address>>,
    visit: &'a mut Visit<'py, 'a>,
    /// Whether containers are made anew around the results; a plan only looks.
    rebuild: bool,
    /// Whether a tensor was found.
    has_tensor: bool,
    /// The first leaf that is neither a tensor nor None.
    other: Option<Bound<'py, PyAny>>,
}

/// Walks a tree and gives one of the same shape, or the tree itself where nothing is to be rebuilt.
///
/// A tree that has leaves and no tensor among them is an error: its caller took numbers for tensors. An empty tree is not.
pub(crate) fn walk<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    rebuild: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    let mut walk = Walk::new(visit, rebuild);
    let result = walk.whole(object, container)?;
    match walk.other {
        Some(other) if !walk.has_tensor => Err(no_tensor(object, &other)),
        _ => Ok(result),
    }
}

/// As [`walk`], for arguments and results of functions, which may have no tensor.
pub(crate) fn walk_any<'py, 'a>(
    object: &Bound<'py, PyAny>,
    container: Container,
    rebuild: bool,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    Walk::new(visit, rebuild).whole(object, container)
}

fn no_tensor(tree: &Bound<'_, PyAny>, leaf: &Bound<'_, PyAny>) -> Failure {
    let fact = format!(
        "the {} holds no tensor: its first leaf is an object of type {}",
        type_name(tree),
        type_name(leaf)
    );
    let hint = if has_state_dict(leaf) {
        "pass the state_dict() of each module, which is a dict of its tensors"
    } else {
        "make a tensor of it first, such as numpy.asarray(x)"
    };
    fail(ErrorKind::NotATensor, fact, hint)
}

/// The way from the root, as one would write it.
pub(crate) fn place(path: &[Piece<'_>]) -> String {
    let mut text = String::new();
    for piece in path {
        let _ = match piece {
            Piece::Key(key) => write!(text, "[{}]", key.repr().map(|r| r.to_string()).unwrap_or_default()),
            Piece::Index(index) => write!(text, "[{index}]"),
            Piece::Field(name) => write!(text, ".{name}"),
        };
    }
    text
}

impl<'py, 'a> Walk<'py, 'a> {
    fn new(visit: &'a mut Visit<'py, 'a>, rebuild: bool) -> Self {
        Self { path: Vec::new(), known: HashMap::default(), visit, rebuild, has_tensor: false, other: None }
    }

    /// Walks from the root; an error says where it was found.
    fn whole(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<Bound<'py, PyAny>> {
        let result = self.node(object, container);
        result.map_err(|failure| if self.path.is_empty() { failure } else { failure.at(&place(&self.path)) })
    }

    /// Passes through what is not a tensor.
    fn pass(&mut self, object: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        if self.other.is_none() && !object.is_none() {
            self.other = Some(object.clone());
        }
        object.clone()
    }

    /// Goes one step down and comes back; on failure the path stays, to say where it was.
    fn child(&mut self, piece: Piece<'py>, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if self.path.len() > MAX_DEPTH {
            self.path.clear();
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("the tree is nested more than {MAX_DEPTH} deep"),
                "check that no container holds itself",
            ));
        }
        self.path.push(piece);
        let result = self.any(object)?;
        self.path.pop();
        Ok(result)
    }

    fn any(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let recognised = recognise(object)?;
        if matches!(recognised, Recognised::Leaf | Recognised::Bytes) || is_scalar(recognised) {
            return Ok(self.pass(object));
        }
        if let Some((_, known)) = self.known.get(&(object.as_ptr() as usize)) {
            return Ok(known.clone());
        }
        let result = match recognised {
            Recognised::Container(container) => self.node(object, container)?,
            Recognised::Unknown if !speaks(object)? => match self.foreign(object)? {
                Some(result) => result,
                None => return Ok(self.pass(object)),
            },
            _ => {
                self.has_tensor = true;
                emergency_pool::reserve_headroom(TENSOR_OVERHEAD_BYTES)?;
                let path = &self.path;
                (self.visit)(object, recognised, &|| place(path))?
            }
        };
        self.expect(1)?;
        self.known.insert(object.as_ptr() as usize, (object.clone(), result.clone()));
        Ok(result)
    }

    /// Makes room for results that will be known.
    fn expect(&mut self, more: usize) -> Result<()> {
        let entry_bytes = size_of::<(usize, Bound<'_, PyAny>, Bound<'_, PyAny>)>();
        let bytes = self.known.len().saturating_add(more).saturating_mul(entry_bytes);
        Ok(self.known.try_reserve(more).map_err(|_| Error::out_of_memory(bytes))?)
    }

    fn node(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<Bound<'py, PyAny>> {
        match container {
            Container::Dict => self.dict(object),
            Container::List => self.list(object),
            Container::Tuple | Container::NamedTuple => self.tuple(object, container),
            Container::Deque => self.deque(object),
            // Somebody may have said how to take these apart.
            Container::UserDict | Container::UserList => match self.foreign(object)? {
                Some(result) => Ok(result),
                None => self.wrapper(object),
            },
            Container::Dataclass => self.dataclass(object),
            Container::Registered => match self.foreign(object)? {
                Some(result) => Ok(result),
                None => Ok(object.clone()),
            },
        }
    }

    fn dict(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let items = try_collect(object.cast::<PyDict>().map_err(PyErr::from)?.iter().map(Ok::<_, Failure>))?;
        self.expect(items.len())?;
        let pairs = items.into_iter().map(|(key, value)| {
            let value = self.child(Piece::Key(key.clone()), &value)?;
            Ok::<_, Failure>((key, value))
        });
        let results = try_collect(pairs)?;
        if !self.rebuild {
            return Ok(object.clone());
        }
        let exact = object.is_exact_instance_of::<PyDict>();
        let result = if exact { PyDict::new(py).into_any() } else { shallow_copy(object)? };
        for (key, value) in results {
            result.set_item(key, value)?;
        }
        Ok(result)
    }

    fn children(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) -> Result<Vec<Bound<'py, PyAny>>> {
        try_collect(items.enumerate().map(|(index, item)| self.child(Piece::Index(index), &item)))
    }

    fn list(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let items = try_collect(object.cast::<PyList>().map_err(PyErr::from)?.iter().map(Ok::<_, Failure>))?;
        self.expect(items.len())?;
        let results = self.children(items.into_iter())?;
        if !self.rebuild {
            return Ok(object.clone());
        }
        let results = list(py, results)?;
        if object.is_exact_instance_of::<PyList>() {
            return Ok(results.into_any());
        }
        let copy = shallow_copy(object)?;
        copy.cast::<PyList>().map_err(PyErr::from)?.set_slice(0, results.len(), &results)?;
        Ok(copy)
    }

    fn deque(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let items = try_collect(object.try_iter()?.map(|item| item.map_err(Failure::from)))?;
        let results = list(object.py(), self.children(items.into_iter())?)?;
        if !self.rebuild {
            return Ok(object.clone());
        }
        let copy = shallow_copy(object)?;
        copy.call_method0("clear")?;
        copy.call_method1("extend", (results,))?;
        Ok(copy)
    }

    /// A `UserDict` or `UserList`, whose content is the dict or list in its attribute `data`.
    fn wrapper(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let name = intern!(object.py(), "data");
        let Some(data) = object.getattr_opt(name)? else { return Ok(object.clone()) };
        // Nothing but a dict or a list belongs there; one that held a wrapper again could hold itself.
        let Recognised::Container(container @ (Container::Dict | Container::List)) = recognise(&data)? else {
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
            try_collect(pairs.map(|(item, name)| self.child(Piece::Field(name), item)))?
        } else {
            self.children(items.iter().cloned())?
        };
        // A tuple in which nothing changed (torch.Size, say) is its own result.
        if !self.rebuild || items.iter().zip(&results).all(|(item, result)| item.is(result)) {
            return Ok(object.clone());
        }
        let results = tuple(py, results)?;
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

    fn dataclass(&mut self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        static SET: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
        let py = object.py();
        // `object.__setattr__` also fills frozen dataclasses, which is what their own constructor does.
        let set = SET.get_or_try_init(py, || -> PyResult<_> {
            Ok(py.import("builtins")?.getattr("object")?.getattr("__setattr__")?.unbind())
        })?;
        let mut results = Vec::new();
        for field in py.import("dataclasses")?.call_method1("fields", (object,))?.try_iter()? {
            let name: String = field?.getattr("name")?.extract()?;
            if let Some(value) = object.getattr_opt(name.as_str())? {
                let value = self.child(Piece::Field(name.clone()), &value)?;
                try_push(&mut results, (name, value))?;
            }
        }
        if !self.rebuild {
            return Ok(object.clone());
        }
        let copy = shallow_copy(object)?;
        for (name, value) in results {
            set.bind(py).call1((&copy, name, value))?;
        }
        Ok(copy)
    }

    /// A node that is registered here, with JAX or with PyTorch.
    fn foreign(&mut self, object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
        let Some((children, rebuild)) = flatten(object)? else { return Ok(None) };
        let results = self.children(children.into_iter())?;
        Ok(Some(if self.rebuild { rebuild(results)? } else { object.clone() }))
    }
}

/// A list of results. PyO3's own constructor panics where there is no memory.
pub(crate) fn list<'py>(py: Python<'py>, items: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: the list is new and as long as the items; each place takes one reference.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(items.len() as ffi::Py_ssize_t))?;
        for (place, item) in items.into_iter().enumerate() {
            ffi::PyList_SetItem(list.as_ptr(), place as ffi::Py_ssize_t, item.into_ptr());
        }
        Ok(list.cast_into_unchecked())
    }
}

/// The same as a tuple.
pub(crate) fn tuple<'py>(py: Python<'py>, items: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: as in `list`.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(items.len() as ffi::Py_ssize_t))?;
        for (place, item) in items.into_iter().enumerate() {
            ffi::PyTuple_SetItem(tuple.as_ptr(), place as ffi::Py_ssize_t, item.into_ptr());
        }
        Ok(tuple.cast_into_unchecked())
    }
}

/// NumPy scalars are numbers; in a tree they stay what they are.
pub(crate) fn is_scalar(recognised: Recognised) -> bool {
    matches!(recognised, Recognised::Tensor(_, Form::Scalar))
}

/// Whether the object itself speaks a protocol; the type alone may not tell.
pub(crate) fn speaks(object: &Bound<'_, PyAny>) -> Result<bool> {
    if object.is_instance_of::<PyType>() {
        return Ok(false);
    }
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
        return Ok(true);
    }
    for name in ["__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array__"] {
        let has = object.hasattr(name).map_err(|error| {
            let about = format!("the attributes of {} cannot be asked for", type_name(object));
            let hint = "leave the object out of the tree, or mend its __getattr__";
            foreign(object.py(), error, ErrorKind::FrameworkFailed, &about, hint)
        })?;
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

fn shallow_copy<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    py.import("copy")?.call_method1("copy", (object,)).map_err(|error| {
        let about = format!("a copy of {} could not be made", type_name(object));
        let hint = "mend its __copy__, or pass a plain dict or list";
        foreign(py, error, ErrorKind::FrameworkFailed, &about, hint)
    })
}

/// Which container an object is, if it is one: also those that only JAX or PyTorch know.
pub(crate) fn container_of(object: &Bound<'_, PyAny>, recognised: Recognised) -> Result<Option<Container>> {
    match recognised {
        Recognised::Container(container) => Ok(Some(container)),
        Recognised::Unknown if !speaks(object)? => {
            Ok(flatten(object)?.is_some().then_some(Container::Registered))
        }
        _ => Ok(None),
    }
}
