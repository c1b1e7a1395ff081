//! Whose object is this? Answered from the type alone, once for each type, importing nothing.
//!
//! A framework's types are known by module and name along the method resolution order, so that an object
//! of a framework that is not loaded cannot exist and one that is loaded need not be imported again.

use crate::cache::Cache;
use crate::errors::Result;
use crate::frameworks::{self, Builtin};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple, PyType};

/// What an object is, as far as its type tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognised {
    /// A tensor of a framework that has its own reader.
    Tensor(Builtin, Form),
    /// A tensor of a framework that somebody registered; the number is its place in the register.
    Registered(usize),
    /// Something that looks like a tensor and cannot be carried.
    Refused(Refusal),
    /// Something whose parts may be tensors.
    Container(Container),
    /// A number, a string, None: passes through in a tree, and is no tensor.
    Leaf,
    /// `bytes`: a tensor when it is passed alone, a leaf in a tree.
    Bytes,
    /// A type with the buffer protocol and no DLPack: memoryview, bytearray, array.array, mmap.
    Buffer,
    /// A type that speaks a protocol.
    Protocol,
    /// Anything else: the object itself may still speak a protocol, or be a node of a tree.
    Unknown,
}

/// Which of a framework's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The framework's own tensor type, or a plain relative.
    Plain,
    /// A subclass that may do things of its own.
    Subclass,
    /// A type that marks its memory as read-only.
    ReadOnly,
    /// A variable, whose value is taken.
    Variable,
    /// A scalar object.
    Scalar,
}

/// What cannot be carried, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Masked,
    JaxTracer,
    JaxKeys,
    JaxSparse,
    TensorFlowSymbol,
    TensorFlowRagged,
    TensorFlowSparse,
    TensorFlowSlices,
    TorchUninitialized,
    TorchDistributed,
    TorchFake,
    ScipySparse,
}

/// Containers that keep their shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    List,
    Tuple,
    NamedTuple,
    Dict,
    Deque,
    UserDict,
    UserList,
    Dataclass,
    Registered,
}

static TYPES: Cache<Recognised> = Cache::new();

/// What `object` is.
pub(crate) fn recognise(object: &Bound<'_, PyAny>) -> Result<Recognised> {
    let py = object.py();
    // SAFETY: the object is alive, and so is its type.
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    if let Some(known) = TYPES.get(py, kind.cast()) {
        return Ok(known);
    }
    let kind = object.get_type();
    let recognised = classify(&kind)?;
    TYPES.put(&kind, recognised);
    Ok(recognised)
}

/// Forgets what was concluded: a registration may change it.
pub(crate) fn forget(py: Python<'_>) {
    TYPES.clear(py);
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
        if let Some(place) = frameworks::registered::place_of(py, &module, &name) {
            return Ok(Some(Recognised::Registered(place)));
        }
        match by_name(&module, &name, position == 0) {
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

/// What a class of this module and name is; `own` when it is the type itself and not a base.
fn by_name(module: &str, name: &str, own: bool) -> Option<Recognised> {
    use Recognised::{Refused, Tensor};
    let form = if own { Form::Plain } else { Form::Subclass };
    Some(match (module, name) {
        ("numpy", "ndarray") => Tensor(Builtin::Numpy, form),
        ("numpy", "generic") => Tensor(Builtin::Numpy, Form::Scalar),
        ("numpy.ma" | "numpy.ma.core", "MaskedArray") => Refused(Refusal::Masked),
        ("torch", "Tensor") => Tensor(Builtin::Torch, form),
        ("torch.nn.parameter", "Parameter" | "Buffer") if own => Tensor(Builtin::Torch, Form::Plain),
        ("torch.nn.parameter", "UninitializedTensorMixin") => Refused(Refusal::TorchUninitialized),
        ("torch.distributed.tensor", "DTensor") => Refused(Refusal::TorchDistributed),
        ("torch._subclasses.fake_tensor", "FakeTensor") => Refused(Refusal::TorchFake),
        ("torch.utils.dlpack", "ReadOnlyTensorWrapper") => Tensor(Builtin::Torch, Form::ReadOnly),
        (_, "ArrayImpl") if module.starts_with("jax") => Tensor(Builtin::Jax, Form::Plain),
        ("jax._src.core", "Tracer") => Refused(Refusal::JaxTracer),
        ("jax.experimental.sparse._base", "JAXSparse") => Refused(Refusal::JaxSparse),
        (_, "PRNGKeyArray") if module.starts_with("jax") => Refused(Refusal::JaxKeys),
        ("tensorflow.python.framework.ops", "EagerTensor") => Tensor(Builtin::TensorFlow, Form::Plain),
        ("tensorflow.python.framework.tensor", "Tensor") => Refused(Refusal::TensorFlowSymbol),
        ("tensorflow.python.ops.variables", "Variable") => Tensor(Builtin::TensorFlow, Form::Variable),
        ("tensorflow.python.ops.ragged.ragged_tensor", "RaggedTensor") => Refused(Refusal::TensorFlowRagged),
        ("tensorflow.python.framework.sparse_tensor", "SparseTensor") => Refused(Refusal::TensorFlowSparse),
        ("tensorflow.python.framework.indexed_slices", "IndexedSlices") => Refused(Refusal::TensorFlowSlices),
        ("paddle", "Tensor") => Tensor(Builtin::Paddle, form),
        ("mlx.core", "array") => Tensor(Builtin::Mlx, form),
        ("scipy.sparse._base", "_spbase" | "sparray") | ("scipy.sparse._matrix", "spmatrix") => {
            Refused(Refusal::ScipySparse)
        }
        _ => return None,
    })
}

/// Whether objects of the type of this module and name have a reader, a shape or a meaning of their own here.
pub(crate) fn is_known(module: &str, name: &str) -> bool {
    module == "builtins" || by_name(module, name, true).is_some()
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
    if crate::protocols::speaks_dlpack(kind)? {
        return Ok(Recognised::Protocol);
    }
    // SAFETY: the type is alive; the slot is asked for, not called.
    if !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null() {
        return Ok(Recognised::Buffer);
    }
    if crate::protocols::speaks_array(kind)? {
        return Ok(Recognised::Protocol);
    }
    if crate::tree::is_registered(kind)? {
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

impl Refusal {
    /// The fact and the hint.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Masked => (
                "a masked array cannot be carried without losing its mask",
                "pass x.filled(value), or x.data and x.mask separately",
            ),
            Self::JaxTracer => (
                "a JAX tracer has no memory: the function is being traced by jit, grad or vmap",
                "carry the tensor outside the traced function",
            ),
            Self::JaxKeys => (
                "an array of JAX random keys has no plain element type",
                "pass jax.random.key_data(x) instead",
            ),
            Self::JaxSparse => {
                ("a sparse JAX array has no dense memory", "pass x.todense(), or its data and indices")
            }
            Self::TensorFlowSymbol => (
                "a symbolic TensorFlow tensor has no memory: it stands for a value in a graph",
                "carry the tensor outside tf.function, or after session.run",
            ),
            Self::TensorFlowRagged => (
                "a ragged tensor has rows of different lengths",
                "pass x.to_tensor(), or x.flat_values and its splits",
            ),
            Self::TensorFlowSparse => (
                "a sparse TensorFlow tensor has no dense memory",
                "pass tf.sparse.to_dense(x), or its indices and values",
            ),
            Self::TensorFlowSlices => {
                ("IndexedSlices are a sparse update and have no dense memory", "pass tf.convert_to_tensor(x)")
            }
            Self::TorchUninitialized => (
                "an uninitialised torch parameter has no shape yet",
                "run the module once, or call x.materialize(shape)",
            ),
            Self::TorchDistributed => (
                "a torch DTensor is spread over several processes",
                "pass x.to_local() for the local part, or x.full_tensor() for the whole",
            ),
            Self::TorchFake => (
                "a torch fake tensor has a shape but holds no values",
                "carry a real tensor outside FakeTensorMode",
            ),
            Self::ScipySparse => {
                ("a SciPy sparse array has no dense memory", "pass x.toarray(), or its data and index arrays")
            }
        }
    }
}
