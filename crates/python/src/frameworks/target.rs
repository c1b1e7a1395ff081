//! The framework of a result, found by the name or module that the caller passed.

use super::builtin_frameworks::{self, Entry};
use super::framework::{Framework, host_only};
use super::{cupy, jax, mlx, names, numpy, paddle, tensorflow, torch, user_frameworks};
use crate::conversion::object_kinds::Builtin;
use crate::errors::{Failure, Result, fail};
use crate::interpreter::owner::Owner;
use crate::interpreter::type_cache::Cache;
use pyo3::prelude::*;
use tensorferry_core::plan::TargetCapabilities;
use tensorferry_core::{ErrorKind, Tensor};

/// The framework that a tensor is converted to.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A framework of the register.
    Builtin(&'static dyn Framework),
    /// A framework registered at run time, by its index.
    Registered(usize),
}

static TARGETS: Cache<Target> = Cache::new();

/// Clears the cache of names. A registration may change the result.
pub(crate) fn clear_target_cache(py: Python<'_>) {
    TARGETS.clear(py);
}

/// The framework that the caller named, by a string or by its module.
pub(crate) fn target(name: &Bound<'_, PyAny>) -> Result<Target> {
    let py = name.py();
    if let Some(target) = TARGETS.get(py, name.as_ptr()) {
        return Ok(target);
    }
    let target = target_named(py, &names::requested_name(name)?)?;
    TARGETS.put(name, target);
    Ok(target)
}

/// The framework with this name.
pub(crate) fn target_named(py: Python<'_>, name: &str) -> Result<Target> {
    if let Some(entry) = builtin_frameworks::find(name) {
        let dense = entry.dense.ok_or_else(|| sparse_only(entry))?;
        return Ok(Target::Builtin(dense.framework()));
    }
    match user_frameworks::find(py, name)? {
        Some(index) => Ok(Target::Registered(index)),
        None => Err(names::unknown_framework(py, name)),
    }
}

/// The error for a dense tensor and a target that holds sparse tensors only.
pub(crate) fn sparse_only(entry: &Entry) -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("{} holds sparse tensors only", entry.title),
        "pass a framework with dense tensors, such as \"numpy\"",
    )
}

impl Builtin {
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

impl Target {
    /// What the target accepts.
    pub(crate) fn capabilities(self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        match self {
            Self::Builtin(framework) => framework.capabilities(py),
            Self::Registered(index) => user_frameworks::capabilities(index),
        }
    }

    /// Creates one of the target's tensors.
    pub(crate) fn write<'py>(self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Builtin(framework) => framework.write(py, tensor),
            Self::Registered(index) => user_frameworks::write(py, tensor, index),
        }
    }

    /// The built-in framework. Registered frameworks hold host memory only.
    pub(crate) fn builtin(self) -> Result<&'static dyn Framework> {
        match self {
            Self::Builtin(framework) => Ok(framework),
            Self::Registered(_) => Err(host_only()),
        }
    }
}
