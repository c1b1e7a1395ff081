//! The kinds of object that there are.
//!
//! Readers, the register and the trees all speak of kinds; who decides what an object is, is `recognise`.

use crate::interpreter::type_cache::Cache;
use pyo3::prelude::*;

/// The frameworks that have a file here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    Numpy,
    Torch,
    Jax,
    TensorFlow,
    CuPy,
    Paddle,
    Mlx,
}

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
    CupySparse,
    PydataSparse,
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

/// What was concluded about each type.
pub(crate) static CONCLUSIONS: Cache<Recognised> = Cache::new();

/// Forgets what was concluded: a registration may change it.
pub(crate) fn forget(py: Python<'_>) {
    CONCLUSIONS.clear(py);
}

impl Refusal {
    /// Whether it is a sparse tensor, whose parts can be carried one by one.
    pub(crate) fn is_sparse(self) -> bool {
        matches!(
            self,
            Self::JaxSparse
                | Self::TensorFlowSparse
                | Self::ScipySparse
                | Self::CupySparse
                | Self::PydataSparse
        )
    }

    /// Whether it is a tensor that its own framework can work with, although it has no memory that others could read.
    pub(crate) fn is_usable_by_own_framework(self) -> bool {
        matches!(self.kind(), "traced" | "opaque")
    }

    /// What `classify` says of such an object.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            _ if self.is_sparse() => "sparse",
            Self::JaxTracer | Self::TensorFlowSymbol => "traced",
            Self::JaxKeys | Self::TorchUninitialized | Self::TorchDistributed | Self::TorchFake => "opaque",
            _ => "other",
        }
    }

    /// The fact and the hint.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Masked => (
                "a masked array cannot be carried without losing its mask",
                "pass x.filled(value), or x.data and x.mask separately",
            ),
            Self::JaxTracer => (
                "a JAX tracer has no memory: the function is being traced by jit, grad or vmap",
                "decorate the function that needs it with @ferry.via(framework, grad=True), or carry the tensor outside the \
                 traced function",
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
                "wrap the call in tf.py_function, or carry the tensor outside tf.function or after session.run",
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
            Self::CupySparse => {
                ("a CuPy sparse matrix has no dense memory", "pass x.toarray(), or its data and index arrays")
            }
            Self::PydataSparse => {
                ("a sparse.SparseArray has no dense memory", "pass x.todense(), or its data and coordinates")
            }
        }
    }
}
