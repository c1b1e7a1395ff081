//! The register of frameworks: the only table of their names, modules, distributions and tensor types.
//!
//! Conversions, decorators, sparse tensors, the Array API, the command line and the reports all identify frameworks through
//! it. Python code reads the rows with `_native.register()`, and calls `_native.canonical(name)` and `_native.classify(x)`.
//!
//! Types are identified by module and name, so that recognising a tensor imports nothing.

use crate::conversion::object_kinds::{Builtin, Form, Recognised, Refusal};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// One row of the register.
pub(crate) struct Entry {
    /// The canonical name, as users write it.
    pub(crate) name: &'static str,
    /// The framework's own spelling of its name, for messages.
    pub(crate) title: &'static str,
    /// The module to import.
    pub(crate) module: &'static str,
    /// The distributions that provide the module; the first one is suggested in messages.
    pub(crate) distributions: &'static [&'static str],
    /// Other accepted names, including names of modules.
    pub(crate) aliases: &'static [&'static str],
    /// The reader and writer of its dense tensors; None if only sparse tensors are supported.
    pub(crate) dense: Option<Builtin>,
    /// Whether its sparse tensors are supported.
    pub(crate) has_sparse: bool,
    /// Whether its tensors can be in CUDA memory.
    pub(crate) has_cuda: bool,
    /// The module of its Array API namespace; None if it has none or its tensors return it themselves.
    pub(crate) namespace: Option<&'static str>,
    /// The types of its tensors; the first match wins.
    types: &'static [KnownType],
}

/// Types by module and name.
struct KnownType {
    module: ModulePattern,
    names: &'static [&'static str],
    kind: TypeKind,
}

/// The modules that may define a type.
#[derive(Clone, Copy)]
enum ModulePattern {
    /// The module with this name.
    Is(&'static str),
    /// The modules with this prefix.
    StartsWith(&'static str),
}

/// What the instances of a type and of its subclasses are.
#[derive(Clone, Copy)]
enum TypeKind {
    /// Dense tensors; subclasses may override behaviour ([`Form::Subclass`]).
    Dense,
    /// Dense tensors, excluding subclasses.
    DenseExact,
    /// Dense tensors of this form, including subclasses.
    DenseAs(Form),
    /// Tensors without dense memory, for this reason.
    Unsupported(Refusal),
}

const fn known(module: ModulePattern, names: &'static [&'static str], kind: TypeKind) -> KnownType {
    KnownType { module, names, kind }
}

/// The number of frameworks.
pub(crate) const COUNT: usize = 9;

/// The register. The first rows have the order of [`Builtin`].
pub(crate) static REGISTER: [Entry; COUNT] = [
    Entry {
        name: "numpy",
        title: "NumPy",
        module: "numpy",
        distributions: &["numpy"],
        aliases: &["np"],
        dense: Some(Builtin::Numpy),
        has_sparse: false,
        has_cuda: false,
        namespace: Some("array_api_compat.numpy"),
        types: &[
            known(ModulePattern::Is("numpy"), &["ndarray"], TypeKind::Dense),
            known(ModulePattern::Is("numpy"), &["generic"], TypeKind::DenseAs(Form::Scalar)),
            known(ModulePattern::Is("numpy.ma"), &["MaskedArray"], TypeKind::Unsupported(Refusal::Masked)),
            known(
                ModulePattern::Is("numpy.ma.core"),
                &["MaskedArray"],
                TypeKind::Unsupported(Refusal::Masked),
            ),
        ],
    },
    Entry {
        name: "torch",
        title: "PyTorch",
        module: "torch",
        distributions: &["torch"],
        aliases: &["pytorch", "torch.sparse"],
        dense: Some(Builtin::Torch),
        has_sparse: true,
        has_cuda: true,
        namespace: Some("array_api_compat.torch"),
        types: &[
            known(ModulePattern::Is("torch"), &["Tensor"], TypeKind::Dense),
            known(ModulePattern::Is("torch.nn.parameter"), &["Parameter", "Buffer"], TypeKind::DenseExact),
            known(
                ModulePattern::Is("torch.nn.parameter"),
                &["UninitializedTensorMixin"],
                TypeKind::Unsupported(Refusal::TorchUninitialized),
            ),
            known(
                ModulePattern::Is("torch.distributed.tensor"),
                &["DTensor"],
                TypeKind::Unsupported(Refusal::TorchDistributed),
            ),
            known(
                ModulePattern::Is("torch._subclasses.fake_tensor"),
                &["FakeTensor"],
                TypeKind::Unsupported(Refusal::TorchFake),
            ),
            known(
                ModulePattern::Is("torch.masked.maskedtensor.core"),
                &["MaskedTensor"],
                TypeKind::Unsupported(Refusal::TorchMasked),
            ),
            known(
                ModulePattern::Is("torch.utils.dlpack"),
                &["ReadOnlyTensorWrapper"],
                TypeKind::DenseAs(Form::ReadOnly),
            ),
        ],
    },
    Entry {
        name: "jax",
        title: "JAX",
        module: "jax",
        distributions: &["jax"],
        aliases: &["jnp", "jax.numpy", "jax.experimental.sparse"],
        dense: Some(Builtin::Jax),
        has_sparse: true,
        has_cuda: true,
        namespace: Some("jax.numpy"),
        types: &[
            known(ModulePattern::StartsWith("jax"), &["ArrayImpl"], TypeKind::DenseAs(Form::Plain)),
            known(ModulePattern::Is("jax._src.core"), &["Tracer"], TypeKind::Unsupported(Refusal::JaxTracer)),
            known(
                ModulePattern::Is("jax.experimental.sparse._base"),
                &["JAXSparse"],
                TypeKind::Unsupported(Refusal::JaxSparse),
            ),
            known(
                ModulePattern::StartsWith("jax"),
                &["PRNGKeyArray"],
                TypeKind::Unsupported(Refusal::JaxKeys),
            ),
            known(
                ModulePattern::Is("flax.nnx.rnglib"),
                &["RngKey", "RngStream"],
                TypeKind::Unsupported(Refusal::FlaxKeys),
            ),
        ],
    },
    Entry {
        name: "tensorflow",
        title: "TensorFlow",
        module: "tensorflow",
        distributions: &["tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"],
        aliases: &["tf", "tensorflow.sparse", "tf.sparse", "tensorflow._api.v2.sparse"],
        dense: Some(Builtin::TensorFlow),
        has_sparse: true,
        has_cuda: true,
        namespace: Some("tensorferry.array_api.tensorflow"),
        types: &[
            known(
                ModulePattern::Is("tensorflow.python.framework.ops"),
                &["EagerTensor"],
                TypeKind::DenseAs(Form::Plain),
            ),
            known(
                ModulePattern::Is("tensorflow.python.framework.tensor"),
                &["Tensor"],
                TypeKind::Unsupported(Refusal::TensorFlowSymbol),
            ),
            known(
                ModulePattern::Is("tensorflow.python.ops.variables"),
                &["Variable"],
                TypeKind::DenseAs(Form::Variable),
            ),
            known(
                ModulePattern::Is("tensorflow.python.ops.ragged.ragged_tensor"),
                &["RaggedTensor"],
                TypeKind::Unsupported(Refusal::TensorFlowRagged),
            ),
            known(
                ModulePattern::Is("tensorflow.python.framework.sparse_tensor"),
                &["SparseTensor"],
                TypeKind::Unsupported(Refusal::TensorFlowSparse),
            ),
            known(
                ModulePattern::Is("tensorflow.python.framework.indexed_slices"),
                &["IndexedSlices"],
                TypeKind::Unsupported(Refusal::TensorFlowSlices),
            ),
        ],
    },
    Entry {
        name: "cupy",
        title: "CuPy",
        module: "cupy",
        distributions: &["cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy"],
        aliases: &["cp", "cupyx", "cupyx.scipy.sparse"],
        dense: Some(Builtin::CuPy),
        has_sparse: true,
        has_cuda: true,
        namespace: Some("array_api_compat.cupy"),
        types: &[
            known(ModulePattern::Is("cupy"), &["ndarray"], TypeKind::Dense),
            known(ModulePattern::StartsWith("cupy."), &["ndarray"], TypeKind::Dense),
            known(
                ModulePattern::StartsWith("cupyx.scipy.sparse"),
                &["spmatrix", "_spbase"],
                TypeKind::Unsupported(Refusal::CupySparse),
            ),
        ],
    },
    Entry {
        name: "paddle",
        title: "Paddle",
        module: "paddle",
        distributions: &["paddlepaddle", "paddlepaddle-gpu"],
        aliases: &[],
        dense: Some(Builtin::Paddle),
        has_sparse: false,
        has_cuda: false,
        namespace: None,
        types: &[known(ModulePattern::Is("paddle"), &["Tensor"], TypeKind::Dense)],
    },
    Entry {
        name: "mlx",
        title: "MLX",
        module: "mlx.core",
        distributions: &["mlx", "mlx-cpu", "mlx-cuda"],
        aliases: &["mlx.core"],
        dense: Some(Builtin::Mlx),
        has_sparse: false,
        has_cuda: false,
        namespace: None,
        types: &[known(ModulePattern::Is("mlx.core"), &["array"], TypeKind::Dense)],
    },
    Entry {
        name: "scipy",
        title: "SciPy",
        module: "scipy.sparse",
        distributions: &["scipy"],
        aliases: &["scipy.sparse"],
        dense: None,
        has_sparse: true,
        has_cuda: false,
        namespace: None,
        types: &[
            known(
                ModulePattern::Is("scipy.sparse._base"),
                &["_spbase", "sparray"],
                TypeKind::Unsupported(Refusal::ScipySparse),
            ),
            known(
                ModulePattern::Is("scipy.sparse._matrix"),
                &["spmatrix"],
                TypeKind::Unsupported(Refusal::ScipySparse),
            ),
        ],
    },
    Entry {
        name: "sparse",
        title: "sparse",
        module: "sparse",
        distributions: &["sparse"],
        aliases: &["pydata"],
        dense: None,
        has_sparse: true,
        has_cuda: false,
        namespace: None,
        types: &[
            known(
                ModulePattern::Is("sparse"),
                &["SparseArray"],
                TypeKind::Unsupported(Refusal::PydataSparse),
            ),
            known(
                ModulePattern::StartsWith("sparse."),
                &["SparseArray"],
                TypeKind::Unsupported(Refusal::PydataSparse),
            ),
        ],
    },
];

impl Builtin {
    /// The row of the framework.
    pub(crate) fn entry(self) -> &'static Entry {
        &REGISTER[self as usize]
    }
}

impl Entry {
    /// Whether `name` is its name or an alias.
    fn has_name(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Its index in the register.
    pub(crate) fn index(&'static self) -> usize {
        REGISTER.iter().position(|entry| std::ptr::eq(entry, self)).unwrap_or(0)
    }

    fn has_unsupported_type(&self, reason: Refusal) -> bool {
        self.types.iter().any(|known| matches!(known.kind, TypeKind::Unsupported(this) if this == reason))
    }
}

impl KnownType {
    fn matches(&self, module: &str, name: &str) -> bool {
        self.names.contains(&name) && self.module.matches(module)
    }
}

impl ModulePattern {
    fn matches(self, module: &str) -> bool {
        match self {
            Self::Is(name) => module == name,
            Self::StartsWith(prefix) => module.starts_with(prefix),
        }
    }
}

/// Classifies an object by a class of this module and name. `is_exact` tells the object's own type from a base class.
pub(crate) fn classify_by_type(module: &str, name: &str, is_exact: bool) -> Option<Recognised> {
    REGISTER.iter().find_map(|entry| {
        let kind = entry.types.iter().find(|known| known.matches(module, name))?.kind;
        match (kind, entry.dense) {
            (TypeKind::Unsupported(reason), _) => Some(Recognised::Refused(reason)),
            (_, None) => None,
            (TypeKind::Dense, Some(dense)) => {
                Some(Recognised::Tensor(dense, if is_exact { Form::Plain } else { Form::Subclass }))
            }
            (TypeKind::DenseExact, Some(dense)) => is_exact.then_some(Recognised::Tensor(dense, Form::Plain)),
            (TypeKind::DenseAs(form), Some(dense)) => Some(Recognised::Tensor(dense, form)),
        }
    })
}

/// The types of dense tensors that the loaded modules define, subclasses excluded. Imports nothing.
pub(crate) fn loaded_tensor_types(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyType>>> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let mut found: Vec<Bound<'_, PyType>> = Vec::new();
    for (name, module) in modules.copy()? {
        let (Ok(name), Ok(module)) = (name.extract::<String>(), module.cast_into::<PyModule>()) else {
            continue;
        };
        let dense = REGISTER
            .iter()
            .flat_map(|entry| entry.types)
            .filter(|known| !matches!(known.kind, TypeKind::Unsupported(_)) && known.module.matches(&name));
        for class in dense.flat_map(|known| known.names) {
            // Not `getattr`, which may import.
            if let Some(class) = module.dict().get_item(class)?
                && let Ok(class) = class.cast_into::<PyType>()
                && !found.iter().any(|known| known.is(&class))
            {
                found.push(class);
            }
        }
    }
    Ok(found)
}

/// The framework that has the type which is unsupported for this reason.
pub(crate) fn entry_of_refusal(refusal: Refusal) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.has_unsupported_type(refusal))
}

/// The row with this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.has_name(name))
}

/// Whether a type of this module and name has a reader, a shape or a meaning of its own here.
pub(crate) fn is_known(module: &str, name: &str) -> bool {
    module == "builtins" || classify_by_type(module, name, true).is_some()
}
