//! The kinds of object that `recognise` tells apart: tensors, containers, leaves, and objects that are refused.

use crate::errors::{Failure, LibraryTypes, fail};
use crate::interpreter::type_cache::Cache;
use pyo3::prelude::*;
use tensorferry_core::ErrorKind;

/// The frameworks with a reader in this crate.
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

/// The kind of an object, as far as its type tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognised {
    /// A tensor of a framework with a reader in this crate.
    Tensor(Builtin, Form),
    /// A tensor of a framework that was registered from Python, by its index.
    Registered(usize),
    /// A tensor or an array that cannot be converted.
    Refused(Refusal),
    /// A container, which may hold tensors.
    Container(Container),
    /// A number, a string or None: not a tensor, and unchanged in a tree.
    Leaf,
    /// `bytes`: a tensor as an argument, a leaf in a tree.
    Bytes,
    /// A type with the buffer protocol and without DLPack: memoryview, bytearray, array.array, mmap.
    Buffer,
    /// A type with DLPack or an array protocol.
    Protocol,
    /// A type with the Arrow C data interface: a column or a table.
    Arrow,
    /// A column or a table of pandas.
    Pandas,
    /// An image of Pillow.
    Image,
    /// A variable of Keras, whose value is a tensor of its backend.
    KerasVariable,
    /// A value of ONNX Runtime.
    OrtValue,
    /// A column that was read through the Arrow C data interface.
    ArrowColumn,
    /// Any other type. The object itself may still have a protocol, or be a node of a tree.
    Unknown,
}

/// An object with the kind of its type, which `recognise` found. Readers access the C structs of tensors, so that an object with
/// the kind of another would be undefined behaviour.
#[derive(Clone, Copy)]
pub(crate) struct RecognisedObject<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    kind: Recognised,
}

impl<'a, 'py> RecognisedObject<'a, 'py> {
    /// The object with its kind.
    ///
    /// # Safety
    /// `kind` is the kind of the object's type. If it is `Recognised::Tensor`, a class that the framework itself defines for this
    /// form is among the bases of the type.
    #[inline(always)]
    pub(super) unsafe fn new(object: &'a Bound<'py, PyAny>, kind: Recognised) -> Self {
        Self { object, kind }
    }

    /// The object.
    #[inline(always)]
    pub(crate) fn object(self) -> &'a Bound<'py, PyAny> {
        self.object
    }

    /// Its kind.
    #[inline(always)]
    pub(crate) fn kind(self) -> Recognised {
        self.kind
    }

    /// The object as a tensor of a framework with a reader in this crate, if it is one.
    #[inline(always)]
    pub(crate) fn tensor(self) -> Option<RecognisedTensor<'a, 'py>> {
        match self.kind {
            Recognised::Tensor(framework, form) => {
                Some(RecognisedTensor { object: self.object, framework, form })
            }
            _ => None,
        }
    }
}

/// An object whose type has a class of the framework, for this form, among its bases.
#[derive(Clone, Copy)]
pub(crate) struct RecognisedTensor<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    framework: Builtin,
    form: Form,
}

impl<'a, 'py> RecognisedTensor<'a, 'py> {
    /// The object.
    #[inline(always)]
    pub(crate) fn object(self) -> &'a Bound<'py, PyAny> {
        self.object
    }

    /// Its framework.
    #[inline(always)]
    pub(crate) fn framework(self) -> Builtin {
        self.framework
    }

    /// The kind of its type within the framework.
    #[inline(always)]
    pub(crate) fn form(self) -> Form {
        self.form
    }
}

/// The kind of tensor type within a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The framework's own tensor type, or a subclass without behaviour of its own.
    Plain,
    /// A subclass that may override behaviour.
    Subclass,
    /// A type whose memory is read-only.
    ReadOnly,
    /// A variable, whose value is read.
    Variable,
    /// A scalar object.
    Scalar,
}

/// Why a tensor or an array cannot be converted.
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
    TorchMasked,
    FlaxKeys,
    Library(&'static LibraryTypes),
}

/// Why a masked array is refused.
pub(crate) const MASKED_FACT: &str = "a masked array cannot be converted without losing its mask";

/// The containers that a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    List,
    Tuple,
    NamedTuple,
    Dict,
    Deque,
    UserDict,
    UserList,
    ChainMap,
    MappingProxy,
    Namespace,
    Dataclass,
    Attrs,
    Registered,
}

/// The kind of each type that was recognised.
pub(crate) static RECOGNISED_TYPES: Cache<Recognised> = Cache::new();

/// Clears the cache of recognised types, which a registration may change.
pub(crate) fn clear_cache(py: Python<'_>) {
    RECOGNISED_TYPES.clear(py);
}

impl Refusal {
    /// Whether it is a sparse tensor.
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

    /// Whether its own framework can use it, although it has no memory that others could read.
    pub(crate) fn is_usable_by_own_framework(self) -> bool {
        matches!(self.kind(), "traced" | "opaque")
    }

    /// The name of the kind that `classify` returns.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            _ if self.is_sparse() => "sparse",
            Self::JaxTracer | Self::TensorFlowSymbol => "traced",
            Self::JaxKeys
            | Self::FlaxKeys
            | Self::TorchUninitialized
            | Self::TorchDistributed
            | Self::TorchFake
            | Self::TorchMasked => "opaque",
            _ => "other",
        }
    }

    /// The error for an object that cannot be converted for this reason.
    pub(crate) fn error(self, object: &Bound<'_, PyAny>) -> Failure {
        let (fact, hint) = match self {
            Self::Library(types) => return types.error(object),
            Self::Masked => (MASKED_FACT, "pass x.filled(value), or numpy.asarray(x) and x.mask separately"),
            Self::JaxTracer => (
                "a JAX tracer has no memory: the function is being traced by jit, grad or vmap",
                "decorate the function that needs it with @ferry.via(framework, grad=True), or convert the tensor outside the \
                 traced function",
            ),
            Self::JaxKeys => (
                "an array of JAX random keys has no numeric element type",
                "pass jax.random.key_data(x) instead",
            ),
            Self::FlaxKeys => (
                "a variable or a stream of flax holds JAX random keys, which have no numeric element type",
                match object.hasattr("key") {
                    Ok(true) => "pass jax.random.key_data(x.key.get_value()) instead",
                    _ => "pass jax.random.key_data(x.get_value()) instead",
                },
            ),
            Self::JaxSparse => {
                ("a sparse JAX array has no dense memory", "pass x.todense(), or its data and indices")
            }
            Self::TensorFlowSymbol => (
                "a symbolic TensorFlow tensor has no memory: it stands for a value in a graph",
                "wrap the call in tf.py_function, or convert the tensor outside tf.function or after session.run",
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
                "a torch DTensor is distributed over several processes",
                "pass x.to_local() for the local shard, or x.full_tensor() for the whole tensor",
            ),
            Self::TorchFake => (
                "a torch fake tensor has a shape but holds no values",
                "convert a real tensor outside FakeTensorMode",
            ),
            Self::TorchMasked => (
                "a torch MaskedTensor cannot be converted without losing its mask",
                "pass x.get_data(), or x.get_mask() for the mask",
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
        };
        fail(ErrorKind::NotATensor, fact, hint)
    }
}
