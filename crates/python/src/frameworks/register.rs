//! The register of frameworks: the only table of their names, modules, distributions and tensor types.
//!
//! Conversions, decorators, sparse tensors, the Array API, the command line and the reports all identify frameworks through
//! it. Python code reads the rows with `_native.register()`, and calls `_native.canonical(name)` and `_native.classify(x)`.
//!
//! Types are identified by module and name, so that recognising a tensor imports nothing.

use super::{Framework, cupy, jax, mlx, numpy, paddle, registered, tensorflow, torch};
use crate::conversion::kinds::{Builtin, Form, Recognised, Refusal};
use crate::conversion::recognise::{recognise, recognise_type};
use crate::errors::{Failure, Result, describe, fail};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyType};
use std::borrow::Cow;
use tensorferry_core::ErrorKind;

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
        namespace: Some("tensorferry.tensorflow_arrays"),
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

/// An order in which one process can import all of them; see `IMPORT_ORDERS`.
const IMPORT_ORDER: [&str; 9] =
    ["numpy", "torch", "paddle", "cupy", "jax", "mlx", "tensorflow", "scipy", "sparse"];

impl Builtin {
    /// The row of the framework.
    pub(crate) fn entry(self) -> &'static Entry {
        &REGISTER[self as usize]
    }

    /// The reader and writer of the framework.
    pub(crate) fn framework(self) -> &'static dyn Framework {
        match self {
            Self::Numpy => &numpy::NumPy,
            Self::Torch => &torch::Torch,
            Self::Jax => &jax::Jax,
            Self::TensorFlow => &tensorflow::TensorFlow,
            Self::CuPy => &cupy::CuPy,
            Self::Paddle => &paddle::Paddle,
            Self::Mlx => &mlx::Mlx,
        }
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
        self.names.contains(&name)
            && match self.module {
                ModulePattern::Is(name) => module == name,
                ModulePattern::StartsWith(prefix) => module.starts_with(prefix),
            }
    }
}

/// Classifies an object by a class of this module and name. `is_exact` tells the object's own type from a base class.
pub(crate) fn by_type(module: &str, name: &str, is_exact: bool) -> Option<Recognised> {
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

/// The framework that has the type which is unsupported for this reason.
pub(crate) fn of_refusal(refusal: Refusal) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.has_unsupported_type(refusal))
}

/// The row with this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.has_name(name))
}

/// The name in the argument `framework`, which is a string or a module.
pub(crate) fn written(framework: &Bound<'_, PyAny>) -> Result<String> {
    if let Ok(text) = framework.cast::<PyString>() {
        return Ok(text.to_string());
    }
    if let Ok(module) = framework.cast::<PyModule>() {
        return Ok(module.name()?.to_string());
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        format!("framework must be a name or a module, not {}", describe(framework)),
        "pass a name such as \"torch\"",
    ))
}

/// The error for an unknown framework name, with the most similar known name as a hint.
pub(crate) fn unknown(py: Python<'_>, name: &str) -> Failure {
    let mut names: Vec<String> = REGISTER.iter().map(|entry| entry.name.to_owned()).collect();
    names.extend(registered::names(py));
    let aliases = REGISTER.iter().flat_map(|entry| entry.aliases).map(|&alias| alias.to_owned());
    let lower = name.to_lowercase();
    let installed = REGISTER.iter().find(|entry| entry.distributions.contains(&lower.as_str()));
    let likely = match installed {
        Some(entry) => Some(entry.name.to_owned()),
        None => near(name, names.iter().cloned().chain(aliases)),
    };
    let hint = match likely {
        Some(known) => format!("did you mean \"{known}\"?"),
        None => format!("pass one of {}, or register it with ferry.register_framework", names.join(", ")),
    };
    fail(ErrorKind::InvalidArgument, format!("unknown framework \"{name}\""), hint)
}

/// The known name with the smallest edit distance, if it is at most [`MAX_EDIT_DISTANCE`].
pub(crate) fn near<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&lower, known.as_ref()), known))
        .filter(|(distance, known)| {
            let shorter = known.as_ref().chars().count().min(lower.chars().count());
            *distance <= MAX_EDIT_DISTANCE && *distance < shorter
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The largest edit distance, in characters, at which a name is suggested.
const MAX_EDIT_DISTANCE: usize = 2;

/// A row of the register as a Python object.
#[pyclass(frozen, get_all, module = "tensorferry._native", name = "_Framework")]
pub(crate) struct Row {
    name: &'static str,
    title: &'static str,
    module: &'static str,
    distributions: Vec<&'static str>,
    aliases: Vec<&'static str>,
    has_dense: bool,
    has_sparse: bool,
    has_cuda: bool,
    namespace: Option<&'static str>,
}

/// The built-in frameworks, in an order in which one process can import them.
#[pyfunction]
pub(crate) fn register() -> Vec<Row> {
    let rows = IMPORT_ORDER.iter().filter_map(|&name| find(name));
    rows.map(|entry| Row {
        name: entry.name,
        title: entry.title,
        module: entry.module,
        distributions: entry.distributions.to_vec(),
        aliases: entry.aliases.to_vec(),
        has_dense: entry.dense.is_some(),
        has_sparse: entry.has_sparse,
        has_cuda: entry.has_cuda,
        namespace: entry.namespace,
    })
    .collect()
}

/// The canonical name of a framework, for any of its names or its module. Imports nothing.
///
/// Raises InvalidArgumentError for an unknown name.
#[pyfunction]
pub(crate) fn canonical(framework: &Bound<'_, PyAny>) -> Result<String> {
    let (py, name) = (framework.py(), written(framework)?);
    if let Some(entry) = find(&name) {
        return Ok(entry.name.to_owned());
    }
    match registered::find(py, &name)? {
        Some(_) => Ok(name),
        None => Err(unknown(py, &name)),
    }
}

/// The framework and the kind of an object: "dense", "sparse", "traced" (a value without memory, in a function that is
/// being traced), "opaque" (another tensor without readable memory) or "other" (an object of a framework that is not a
/// tensor in the sense of the Array API). None for objects that belong to no framework. Imports nothing.
#[pyfunction]
pub(crate) fn classify<'py>(x: &Bound<'py, PyAny>) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = x.py();
    let recognised = recognise(x)?;
    let (name, kind) = match name_and_kind(py, recognised) {
        Some((name, "dense")) if is_sparse_torch(x, recognised)? => (name, "sparse"),
        Some(found) => found,
        None => return Ok(None),
    };
    Ok(Some((PyString::new(py, &name), kind)))
}

/// [`classify`] for a type. Types of PyTorch do not distinguish sparse tensors.
#[pyfunction]
pub(crate) fn classify_type<'py>(
    kind: &Bound<'py, PyType>,
) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = kind.py();
    Ok(name_and_kind(py, recognise_type(kind)?).map(|(name, kind)| (PyString::new(py, &name), kind)))
}

fn name_and_kind(py: Python<'_>, recognised: Recognised) -> Option<(Cow<'static, str>, &'static str)> {
    match recognised {
        Recognised::Tensor(framework, _) => Some((framework.entry().name.into(), "dense")),
        Recognised::Registered(index) => Some((registered::name_at(py, index)?.into(), "dense")),
        Recognised::Refused(refusal) => Some((of_refusal(refusal)?.name.into(), refusal.kind())),
        _ => None,
    }
}

/// Whether `x` is a sparse tensor of PyTorch. Its type does not tell; its layout does.
pub(crate) fn is_sparse_torch(x: &Bound<'_, PyAny>, recognised: Recognised) -> Result<bool> {
    if !matches!(recognised, Recognised::Tensor(Builtin::Torch, _)) {
        return Ok(false);
    }
    let layout = x.getattr(intern!(x.py(), "layout"))?.str()?;
    Ok(layout.to_str()?.starts_with("torch.sparse_"))
}
