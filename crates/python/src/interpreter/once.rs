//! [`ForkSafeOnce`]: a cell that is set once, and that a fork never leaves locked.
//!
//! `PyOnceLock` makes other threads wait while one initialises it, and releases the GIL before it calls the initialiser.
//! Another thread may fork meanwhile. No thread of the child finishes the initialisation, so its first call would wait for
//! ever. Here no thread waits. Concurrent threads all compute the value, and the first value stays. A value is stored under the
//! GIL, which a thread that forks through Python holds too.
//!
//! PyO3 has such cells inside `intern!` and inside a few methods. [`interned!`](interned) replaces the first, `clippy.toml`
//! disallows the original, and [`initialise_pyo3_cells`] sets the cells inside PyO3's methods when the module is imported.
//! Cells that cannot be set that early are set by [`fork_lock::without_fork`](super::fork_lock::without_fork).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::sync::OnceLock;

pub(crate) struct ForkSafeOnce<T>(OnceLock<T>);

impl<T> ForkSafeOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value, if it is set.
    #[inline]
    pub(crate) fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// Sets the value, unless it is set.
    pub(crate) fn set(&self, _py: Python<'_>, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    /// The value, which `make` computes if it is not set.
    #[inline]
    pub(crate) fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.get(py) {
            Some(value) => value,
            None => self.set_or_get(make()),
        }
    }

    /// As [`Self::get_or_init`], with a function that may fail.
    #[inline]
    pub(crate) fn get_or_try_init<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.get(py) {
            Some(value) => Ok(value),
            None => Ok(self.set_or_get(make()?)),
        }
    }

    /// The value that was set first: this one, or that of another thread.
    fn set_or_get(&self, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

impl ForkSafeOnce<Py<PyType>> {
    /// The type of this name, imported on first use.
    pub(crate) fn import<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<&Bound<'py, PyType>> {
        let import = || PyResult::Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind());
        self.get_or_try_init(py, import).map(|kind| kind.bind(py))
    }
}

impl ForkSafeOnce<Py<PyString>> {
    /// The interned string of this text.
    #[inline]
    pub(crate) fn intern<'py>(&self, py: Python<'py>, text: &str) -> &Bound<'py, PyString> {
        self.get_or_init(py, || PyString::intern(py, text).unbind()).bind(py)
    }
}

/// The interned Python string of a literal, created on first use.
macro_rules! interned {
    ($py:expr, $text:literal) => {{
        static TEXT: $crate::interpreter::once::ForkSafeOnce<pyo3::Py<pyo3::types::PyString>> =
            $crate::interpreter::once::ForkSafeOnce::new();
        TEXT.intern($py, $text)
    }};
}
pub(crate) use interned;

/// Sets the cells inside the methods of PyO3 that our calls use. Runs while the module is imported, before other
/// threads can call it.
pub(crate) fn initialise_pyo3_cells(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = py.get_type::<PyType>();
    class.name()?;
    class.module()?;
    class.fully_qualified_name()?;
    class.mro();
    module.name()?;
    py.eval(c"None", Some(&PyDict::new(py)), None)?;
    PyTuple::empty(py).try_iter()?.size_hint();
    // The extraction of a `bool` calls a method of objects whose class is called `numpy.bool`.
    let numpy_bool = c"type('bool', (), {'__module__': 'numpy', '__bool__': lambda self: True})()";
    py.eval(numpy_bool, Some(&PyDict::new(py)), None)?.extract::<bool>()?;
    Ok(())
}
