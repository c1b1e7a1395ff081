//! Names of frameworks, as callers write them, and the rows of the register for Python.

use super::builtin_frameworks::{REGISTER, find};
use super::user_frameworks;
use crate::errors::{Failure, Result, describe_argument, fail, keys};
use crate::text::closest_name;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};
use tensorferry_core::{Error, ErrorKind};

/// Devices that callers name instead of a framework.
const DEVICES: [&str; 3] = ["cpu", "cuda", "gpu"];

/// Libraries that callers name instead of a framework, and what to do instead.
const LIBRARIES: [(&[&str], &str); 5] = [
    (
        &["polars", "pandas", "arrow", "pyarrow"],
        "use ferry.arrow.export(x), which pyarrow, polars and pandas read as an Arrow column or table",
    ),
    (&["keras"], "pass keras.backend.backend(), the framework that Keras uses"),
    (&["numba"], "pass \"numpy\", whose arrays Numba uses"),
    (&["h5py", "zarr"], "use file.create_dataset(name, data=ferry.to(x, \"numpy\"))"),
    (&["cudf"], "pass \"cupy\", whose arrays cudf.Series takes"),
];

/// The name in the argument `framework`, which is a string or a module.
pub(crate) fn requested_name(framework: &Bound<'_, PyAny>) -> Result<String> {
    if let Ok(text) = framework.cast::<PyString>() {
        return Ok(text.to_string());
    }
    if let Ok(module) = framework.cast::<PyModule>() {
        // Not `name`, which fails for the lazy `tf.keras`.
        return Ok(module.getattr("__name__")?.extract()?);
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        format!("framework must be a name or a module, not {}", describe_argument(framework)),
        "pass a name such as \"torch\"",
    ))
}

/// The error for an unknown framework name, with the most similar known name as a hint.
pub(crate) fn unknown_framework(py: Python<'_>, name: &str) -> Failure {
    let mut names: Vec<String> = REGISTER.iter().map(|entry| entry.name.to_owned()).collect();
    names.extend(user_frameworks::names(py));
    let aliases = REGISTER.iter().flat_map(|entry| entry.aliases).map(|&alias| alias.to_owned());
    let lower = name.to_lowercase();
    let installed = REGISTER.iter().find(|entry| entry.distributions.contains(&lower.as_str()));
    let likely = match installed {
        Some(entry) => Some(entry.name.to_owned()),
        None => closest_name(name, names.iter().cloned().chain(aliases)),
    };
    let fact = format!("unknown framework \"{name}\"");
    if DEVICES.iter().any(|device| lower.split(':').next() == Some(device)) {
        let device = lower.replace("gpu", "cuda");
        return fail(
            ErrorKind::InvalidArgument,
            fact,
            format!("name a framework, and pass device=\"{device}\""),
        );
    }
    let library = lower.split('.').next().unwrap_or_default();
    if let Some((_, hint)) = LIBRARIES.iter().find(|(names, _)| names.contains(&library)) {
        return fail(ErrorKind::InvalidArgument, fact, *hint);
    }
    match likely {
        Some(known) => fail(ErrorKind::InvalidArgument, fact, format!("did you mean \"{known}\"?")),
        None => Error::new(ErrorKind::InvalidArgument, fact)
            .with_hint_value(keys::NAME_FRAMEWORK, names.join(", "))
            .into(),
    }
}

/// An order in which one process can import all of them; see `IMPORT_ORDERS`.
const IMPORT_ORDER: [&str; 9] =
    ["numpy", "torch", "paddle", "cupy", "jax", "mlx", "tensorflow", "scipy", "sparse"];

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
    let (py, name) = (framework.py(), requested_name(framework)?);
    if let Some(entry) = find(&name) {
        return Ok(entry.name.to_owned());
    }
    match user_frameworks::find(py, &name)? {
        Some(_) => Ok(name),
        None => Err(unknown_framework(py, &name)),
    }
}
