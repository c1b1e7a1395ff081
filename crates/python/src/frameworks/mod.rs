//! The frameworks: one file each, the same functions in each, one line each in the table below.

pub(crate) mod exchange;
pub(crate) mod info;
pub(crate) mod jax;
pub(crate) mod mlx;
pub(crate) mod numpy;
pub(crate) mod paddle;
pub(crate) mod registered;
pub(crate) mod tensorflow;
pub(crate) mod torch;

use crate::cache::Cache;
use crate::errors::{Result, describe, fail, foreign};
use crate::kinds::{Builtin, Form};
use crate::owner::Owner;
use crate::source::Source;
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};
use tensorferry_core::plan::{Pending, TargetFacts};
use tensorferry_core::{ErrorKind, Tensor};

/// What every framework's file provides.
pub(crate) trait Framework: Sync {
    /// What it accepts, right now. Imports the framework if the caller asked for it by name.
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetFacts>;

    /// Reads one of its tensors.
    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>>;

    /// Does the work that a reader found put off, and gives memory that nobody else uses.
    fn materialise(&self, object: &Bound<'_, PyAny>, pending: Pending) -> Result<Tensor<Owner>>;

    /// Wraps a tensor that meets its facts as the framework's own type.
    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>>;
}

/// One line of the table.
pub(crate) struct Entry {
    /// As users write it.
    pub(crate) name: &'static str,
    /// As it writes itself.
    pub(crate) title: &'static str,
    /// The module to import.
    pub(crate) module: &'static str,
    /// The distributions that bring it; the first is the one to install.
    pub(crate) packages: &'static [&'static str],
    /// Other names that people write, and modules that people pass.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) framework: &'static dyn Framework,
}

/// The table, in the order of [`Builtin`].
pub(crate) static TABLE: [Entry; 6] = [
    Entry {
        name: "numpy",
        title: "NumPy",
        module: "numpy",
        packages: &["numpy"],
        aliases: &["np"],
        framework: &numpy::NumPy,
    },
    Entry {
        name: "torch",
        title: "PyTorch",
        module: "torch",
        packages: &["torch"],
        aliases: &["pytorch"],
        framework: &torch::Torch,
    },
    Entry {
        name: "jax",
        title: "JAX",
        module: "jax",
        packages: &["jax"],
        aliases: &["jax.numpy", "jnp"],
        framework: &jax::Jax,
    },
    Entry {
        name: "tensorflow",
        title: "TensorFlow",
        module: "tensorflow",
        packages: &["tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"],
        aliases: &["tf"],
        framework: &tensorflow::TensorFlow,
    },
    Entry {
        name: "paddle",
        title: "Paddle",
        module: "paddle",
        packages: &["paddlepaddle", "paddlepaddle-gpu"],
        aliases: &[],
        framework: &paddle::Paddle,
    },
    Entry {
        name: "mlx",
        title: "MLX",
        module: "mlx.core",
        packages: &["mlx", "mlx-cpu", "mlx-cuda"],
        aliases: &["mlx.core"],
        framework: &mlx::Mlx,
    },
];

impl Builtin {
    pub(crate) fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    pub(crate) fn framework(self) -> &'static dyn Framework {
        self.entry().framework
    }
}

/// Where a tensor is to go.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A line of the table.
    Builtin(&'static dyn Framework),
    /// A place in the register.
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
    let text = if let Ok(text) = name.cast::<PyString>() {
        text.to_string()
    } else if let Ok(module) = name.cast::<PyModule>() {
        module.name()?.to_string()
    } else {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("framework must be a name or a module, not {}", describe(name)),
            "write ferry.to(x, \"torch\")",
        ));
    };
    let target = find(py, &text)?;
    TARGETS.put(name, target);
    Ok(target)
}

fn find(py: Python<'_>, text: &str) -> Result<Target> {
    if let Some(entry) = TABLE.iter().find(|entry| entry.name == text || entry.aliases.contains(&text)) {
        return Ok(Target::Builtin(entry.framework));
    }
    if let Some(place) = registered::find(py, text)? {
        return Ok(Target::Registered(place));
    }
    let mut known: Vec<String> = TABLE.iter().map(|entry| entry.name.to_owned()).collect();
    known.extend(registered::names(py));
    Err(fail(
        ErrorKind::FrameworkMissing,
        format!("no framework is called \"{text}\""),
        format!("write one of {}, or register it with tensorferry.register", known.join(", ")),
    ))
}

/// Imports a framework's module, or says that it is not there.
pub(crate) fn import<'py>(py: Python<'py>, framework: Builtin) -> Result<Bound<'py, PyModule>> {
    let entry = framework.entry();
    py.import(entry.module).map_err(|error| {
        let top = entry.module.split('.').next().unwrap_or(entry.module);
        let name =
            error.value(py).getattr("name").and_then(|name| name.extract::<String>()).unwrap_or_default();
        let missing =
            error.is_instance_of::<PyModuleNotFoundError>(py) && name.split('.').next() == Some(top);
        if missing {
            fail(
                ErrorKind::FrameworkMissing,
                format!("{} is not installed", entry.title),
                format!("pip install {}", entry.packages[0]),
            )
        } else {
            let about = format!("{} is installed and cannot be imported", entry.title);
            foreign(py, error, ErrorKind::FrameworkMissing, &about, "mend its installation")
        }
    })
}
