//! The package's functions for the sparse tensors of each framework: `read`, `write` and `scatter`.

use crate::errors::Result;
use crate::frameworks::register::{self, Entry};
use crate::interpreter::once::ForkSafeOnce;
use pyo3::prelude::*;

/// The functions of one module of `tensorferry.sparse.frameworks`.
pub(super) struct Functions {
    /// Takes a tensor apart.
    pub(super) read: Py<PyAny>,
    /// Puts a tensor together.
    pub(super) write: Py<PyAny>,
    /// Fills a dense tensor on a GPU; None where the framework holds no GPU memory.
    pub(super) scatter: Option<Py<PyAny>>,
}

/// The functions for a framework.
pub(super) fn functions(py: Python<'_>, framework: &'static Entry) -> Result<&'static Functions> {
    static FUNCTIONS: [ForkSafeOnce<Functions>; register::COUNT] =
        [const { ForkSafeOnce::new() }; register::COUNT];
    FUNCTIONS[framework.index()].get_or_try_init(py, || {
        // A file `sparse.py` would shadow the package.
        let file = if framework.name == "sparse" { "pydata" } else { framework.name };
        let module = py.import(format!("tensorferry.sparse.frameworks.{file}"))?;
        Ok(Functions {
            read: module.getattr("read")?.unbind(),
            write: module.getattr("write")?.unbind(),
            scatter: module.getattr_opt("scatter")?.map(Bound::unbind),
        })
    })
}
