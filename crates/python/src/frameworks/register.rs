//! The register of frameworks: the one table of their names, modules, distributions, types and capabilities.
//!
//! Everything that has to know a framework by name or by type asks here: `to` and its relatives, the decorators, sparse
//! tensors, the Array API, the command line and the reports. Python sees the rows through `_native.register()`, and asks
//! `_native.canonical(name)` and `_native.classify(x)`.
//!
//! Types are known by module and name, so that nothing is imported to recognise them.

use super::{Framework, cupy, jax, mlx, numpy, paddle, registered, tensorflow, torch};
use crate::errors::{Failure, Result, describe, fail};
use crate::kinds::{Builtin, Form, Recognised, Refusal};
use crate::recognise::{recognise, recognise_type};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyType};
use std::borrow::Cow;
use tensorferry_core::ErrorKind;

/// One framework.
pub(crate) struct Entry {
    /// The canonical name, as users write it.
    pub(crate) name: &'static str,
    /// The name in sentences, as its makers write it.
    pub(crate) title: &'static str,
    /// The module to import.
    pub(crate) module: &'static str,
    /// The distributions that bring it; the first is the one to install.
    pub(crate) distributions: &'static [&'static str],
    /// Other names that people write, and modules that people pass.
    pub(crate) aliases: &'static [&'static str],
    /// Its dense tensors; None where only its sparse tensors are carried.
    pub(crate) dense: Option<Builtin>,
    /// Whether its sparse tensors are carried.
    pub(crate) has_sparse: bool,
    /// Whether it can hold CUDA memory.
    pub(crate) has_cuda: bool,
    /// The module of its Array API namespace; None where its tensors name it themselves, or it has none.
    pub(crate) namespace: Option<&'static str>,
    /// The types of its tensors, first match wins.
    types: &'static [KnownType],
}

/// A type by module and name.
struct KnownType {
    module: Module,
    names: &'static [&'static str],
    meaning: Meaning,
}

/// Where a type is defined.
#[derive(Clone, Copy)]
enum Module {
    /// In this module.
    Is(&'static str),
    /// In this module, or in one whose name begins with it.
    Begins(&'static str),
}

/// What objects of a type, or of a class derived from it, are.
#[derive(Clone, Copy)]
enum Meaning {
    /// Tensors; those of derived classes may have a behaviour of their own.
    Dense,
    /// Tensors; derived classes are not recognised by this type.
    DenseItself,
    /// Tensors of this form, also those of derived classes.
    DenseAs(Form),
    /// Tensors that have no dense memory, for this reason.
    Refused(Refusal),
}

const fn known(module: Module, names: &'static [&'static str], meaning: Meaning) -> KnownType {
    KnownType { module, names, meaning }
}

/// The number of frameworks.
pub(crate) const COUNT: usize = 9;

/// The register. The first rows are in the order of [`Builtin`].
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
            known(Module::Is("numpy"), &["ndarray"], Meaning::Dense),
            known(Module::Is("numpy"), &["generic"], Meaning::DenseAs(Form::Scalar)),
            known(Module::Is("numpy.ma"), &["MaskedArray"], Meaning::Refused(Refusal::Masked)),
            known(Module::Is("numpy.ma.core"), &["MaskedArray"], Meaning::Refused(Refusal::Masked)),
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
            known(Module::Is("torch"), &["Tensor"], Meaning::Dense),
            known(Module::Is("torch.nn.parameter"), &["Parameter", "Buffer"], Meaning::DenseItself),
            known(
                Module::Is("torch.nn.parameter"),
                &["UninitializedTensorMixin"],
                Meaning::Refused(Refusal::TorchUninitialized),
            ),
            known(
                Module::Is("torch.distributed.tensor"),
                &["DTensor"],
                Meaning::Refused(Refusal::TorchDistributed),
            ),
            known(
                Module::Is("torch._subclasses.fake_tensor"),
                &["FakeTensor"],
                Meaning::Refused(Refusal::TorchFake),
            ),
            known(
                Module::Is("torch.utils.dlpack"),
                &["ReadOnlyTensorWrapper"],
                Meaning::DenseAs(Form::ReadOnly),
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
            known(Module::Begins("jax"), &["ArrayImpl"], Meaning::DenseAs(Form::Plain)),
            known(Module::Is("jax._src.core"), &["Tracer"], Meaning::Refused(Refusal::JaxTracer)),
            known(
                Module::Is("jax.experimental.sparse._base"),
                &["JAXSparse"],
                Meaning::Refused(Refusal::JaxSparse),
            ),
            known(Module::Begins("jax"), &["PRNGKeyArray"], Meaning::Refused(Refusal::JaxKeys)),
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
                Module::Is("tensorflow.python.framework.ops"),
                &["EagerTensor"],
                Meaning::DenseAs(Form::Plain),
            ),
            known(
                Module::Is("tensorflow.python.framework.tensor"),
                &["Tensor"],
                Meaning::Refused(Refusal::TensorFlowSymbol),
            ),
            known(
                Module::Is("tensorflow.python.ops.variables"),
                &["Variable"],
                Meaning::DenseAs(Form::Variable),
            ),
            known(
                Module::Is("tensorflow.python.ops.ragged.ragged_tensor"),
                &["RaggedTensor"],
                Meaning::Refused(Refusal::TensorFlowRagged),
            ),
            known(
                Module::Is("tensorflow.python.framework.sparse_tensor"),
                &["SparseTensor"],
                Meaning::Refused(Refusal::TensorFlowSparse),
            ),
            known(
                Module::Is("tensorflow.python.framework.indexed_slices"),
                &["IndexedSlices"],
                Meaning::Refused(Refusal::TensorFlowSlices),
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
            known(Module::Is("cupy"), &["ndarray"], Meaning::Dense),
            known(Module::Begins("cupy."), &["ndarray"], Meaning::Dense),
            known(
                Module::Begins("cupyx.scipy.sparse"),
                &["spmatrix", "_spbase"],
                Meaning::Refused(Refusal::CupySparse),
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
        types: &[known(Module::Is("paddle"), &["Tensor"], Meaning::Dense)],
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
        types: &[known(Module::Is("mlx.core"), &["array"], Meaning::Dense)],
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
                Module::Is("scipy.sparse._base"),
                &["_spbase", "sparray"],
                Meaning::Refused(Refusal::ScipySparse),
            ),
            known(Module::Is("scipy.sparse._matrix"), &["spmatrix"], Meaning::Refused(Refusal::ScipySparse)),
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
            known(Module::Is("sparse"), &["SparseArray"], Meaning::Refused(Refusal::PydataSparse)),
            known(Module::Begins("sparse."), &["SparseArray"], Meaning::Refused(Refusal::PydataSparse)),
        ],
    },
];

/// The order in which one process can import all of them; see `IMPORT_ORDERS`.
const IMPORT_ORDER: [&str; 9] =
    ["numpy", "torch", "paddle", "cupy", "jax", "mlx", "tensorflow", "scipy", "sparse"];

impl Builtin {
    pub(crate) fn entry(self) -> &'static Entry {
        &REGISTER[self as usize]
    }

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
    /// Whether it is called so.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Its number in the register.
    pub(crate) fn index(&'static self) -> usize {
        REGISTER.iter().position(|entry| std::ptr::eq(entry, self)).unwrap_or(0)
    }

    fn is_refused_as(&self, refusal: Refusal) -> bool {
        self.types.iter().any(|known| matches!(known.meaning, Meaning::Refused(this) if this == refusal))
    }
}

impl KnownType {
    fn matches(&self, module: &str, name: &str) -> bool {
        self.names.contains(&name)
            && match self.module {
                Module::Is(whole) => module == whole,
                Module::Begins(start) => module.starts_with(start),
            }
    }
}

/// What a class of this module and name is; `own` if it is the type itself and not a base.
pub(crate) fn by_type(module: &str, name: &str, own: bool) -> Option<Recognised> {
    REGISTER.iter().find_map(|entry| {
        let meaning = entry.types.iter().find(|known| known.matches(module, name))?.meaning;
        match (meaning, entry.dense) {
            (Meaning::Refused(refusal), _) => Some(Recognised::Refused(refusal)),
            (_, None) => None,
            (Meaning::Dense, Some(dense)) => {
                Some(Recognised::Tensor(dense, if own { Form::Plain } else { Form::Subclass }))
            }
            (Meaning::DenseItself, Some(dense)) => own.then_some(Recognised::Tensor(dense, Form::Plain)),
            (Meaning::DenseAs(form), Some(dense)) => Some(Recognised::Tensor(dense, form)),
        }
    })
}

/// The framework whose objects are refused for this reason.
pub(crate) fn of_refusal(refusal: Refusal) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.is_refused_as(refusal))
}

/// The row that is called so.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    REGISTER.iter().find(|entry| entry.is_called(name))
}

/// The name that a caller wrote: a string, or a module, which is called by its own name.
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
        "write a name such as \"torch\"",
    ))
}

/// No framework is called so.
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
        None => format!("write one of {}, or register it with ferry.register_framework", names.join(", ")),
    };
    fail(ErrorKind::InvalidArgument, format!("no framework is called \"{name}\""), hint)
}

/// The known name that a caller most likely meant.
pub(crate) fn near<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&lower, known.as_ref()), known))
        .filter(|(distance, known)| {
            let shorter = known.as_ref().chars().count().min(lower.chars().count());
            *distance <= MAX_TYPING_ERRORS && *distance < shorter
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The largest edit distance at which another name is suggested.
const MAX_TYPING_ERRORS: usize = 2;

/// A row of the register, for Python.
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

/// The frameworks that tensorferry itself knows, in an order in which one process can import them.
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
/// Raises InvalidArgumentError if no framework is called so.
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

/// The framework of an object and what kind of object it is: "dense", "sparse", "traced" (a value without memory, in a
/// function that is being traced), "opaque" (another tensor without plain memory) or "other" (an object of a framework that
/// is not a tensor in the sense of the Array API). None for objects of no framework. Imports nothing.
#[pyfunction]
pub(crate) fn classify<'py>(x: &Bound<'py, PyAny>) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = x.py();
    let recognised = recognise(x)?;
    let (name, kind) = match described(py, recognised) {
        Some((name, "dense")) if is_sparse_torch(x, recognised)? => (name, "sparse"),
        Some(found) => found,
        None => return Ok(None),
    };
    Ok(Some((PyString::new(py, &name), kind)))
}

/// As [`classify`], for a type. PyTorch's types do not tell whether a tensor is sparse.
#[pyfunction]
pub(crate) fn classify_type<'py>(
    kind: &Bound<'py, PyType>,
) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = kind.py();
    Ok(described(py, recognise_type(kind)?).map(|(name, kind)| (PyString::new(py, &name), kind)))
}

fn described(py: Python<'_>, recognised: Recognised) -> Option<(Cow<'static, str>, &'static str)> {
    match recognised {
        Recognised::Tensor(framework, _) => Some((framework.entry().name.into(), "dense")),
        Recognised::Registered(place) => Some((registered::name_at(py, place)?.into(), "dense")),
        Recognised::Refused(refusal) => Some((of_refusal(refusal)?.name.into(), refusal.kind())),
        _ => None,
    }
}

/// Whether it is a sparse tensor of PyTorch, which its type does not tell.
pub(crate) fn is_sparse_torch(x: &Bound<'_, PyAny>, recognised: Recognised) -> Result<bool> {
    if !matches!(recognised, Recognised::Tensor(Builtin::Torch, _)) {
        return Ok(false);
    }
    let layout = x.getattr(intern!(x.py(), "layout"))?.str()?;
    Ok(layout.to_str()?.starts_with("torch.sparse_"))
}
