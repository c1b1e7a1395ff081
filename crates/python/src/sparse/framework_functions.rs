//! The Python functions `read`, `write` and `scatter` that `tensorferry.sparse.frameworks` has for each framework.

use crate::errors::Result;
use crate::frameworks::builtin_frameworks::{self, Entry};
use crate::interpreter::once::ForkSafeOnce;
use pyo3::prelude::*;

/// The functions of one module of `tensorferry.sparse.frameworks`.
pub(super) struct Functions {
    /// Returns the components of a sparse tensor.
    pub(super) read: Py<PyAny>,
    /// Builds a sparse tensor from its components.
    pub(super) write: Py<PyAny>,
    /// Fills a dense tensor on a GPU; None where the framework has no GPU memory.
    pub(super) scatter: Option<Py<PyAny>>,
}

/// The functions for a framework.
pub(super) fn functions(py: Python<'_>, framework: &'static Entry) -> Result<&'static Functions> {
    static FUNCTIONS: [ForkSafeOnce<Functions>; builtin_frameworks::COUNT] =
        [const { ForkSafeOnce::new() }; builtin_frameworks::COUNT];
    FUNCTIONS[framework.index()].get_or_try_init(py, || {
        // A module named `sparse` would shadow the package `sparse`.
        let file = if framework.name == "sparse" { "pydata" } else { framework.name };
        let module = py.import(format!("tensorferry.sparse.frameworks.{file}"))?;
        Ok(Functions {
            read: module.getattr("read")?.unbind(),
            write: module.getattr("write")?.unbind(),
            scatter: module.getattr_opt("scatter")?.map(Bound::unbind),
        })
    })
}
