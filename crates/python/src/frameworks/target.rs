//! The framework of a result, found by the name or module that the caller passed.

use super::framework::{Framework, host_only};
use super::register::{self, Entry};
use super::{cupy, jax, mlx, names, numpy, paddle, registered, tensorflow, torch};
use crate::conversion::kinds::Builtin;
use crate::errors::{Failure, Result, fail};
use crate::interpreter::owner::Owner;
use crate::interpreter::type_cache::Cache;
use pyo3::prelude::*;
use tensorferry_core::plan::TargetCapabilities;
use tensorferry_core::{ErrorKind, Tensor};

/// Where a tensor is to go.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A framework of the register.
    Builtin(&'static dyn Framework),
    /// A framework that was registered from Python, by its index.
    Registered(usize),
}

static TARGETS: Cache<Target> = Cache::new();

/// Forgets which names led where: a registration may change it.
pub(crate) fn forget(py: Python<'_>) {
    TARGETS.clear(py);
}

/// The framework that the caller named, by a string or by its module.
pub(crate) fn target(name: &Bound<'_, PyAny>) -> Result<Target> {
    let py = name.py();
    if let Some(target) = TARGETS.get(py, name.as_ptr()) {
        return Ok(target);
    }
    let target = find(py, &names::written(name)?)?;
    TARGETS.put(name, target);
    Ok(target)
}

fn find(py: Python<'_>, name: &str) -> Result<Target> {
    if let Some(entry) = register::find(name) {
        let dense = entry.dense.ok_or_else(|| sparse_only(entry))?;
        return Ok(Target::Builtin(dense.framework()));
    }
    match registered::find(py, name)? {
        Some(place) => Ok(Target::Registered(place)),
        None => Err(names::unknown(py, name)),
    }
}

/// Dense tensors cannot go to a framework that holds none.
pub(crate) fn sparse_only(entry: &Entry) -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("{} holds sparse tensors only", entry.title),
        "name a framework that holds dense tensors, such as \"numpy\"",
    )
}

impl Builtin {
    /// The implementation of a framework.
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

impl Target {
    /// What the target accepts.
    pub(crate) fn facts(self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        match self {
            Self::Builtin(framework) => framework.facts(py),
            Self::Registered(place) => registered::facts(place),
        }
    }

    /// Makes one of the target's tensors.
    pub(crate) fn write<'py>(self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Builtin(framework) => framework.write(py, tensor),
            Self::Registered(place) => registered::write(py, tensor, place),
        }
    }

    /// The framework behind it, if it has a file here: only those hold GPU memory.
    pub(crate) fn builtin(self) -> Result<&'static dyn Framework> {
        match self {
            Self::Builtin(framework) => Ok(framework),
            Self::Registered(_) => Err(host_only()),
        }
    }
}
