//! [`ForkSafeOnce`]: a cell that is set once, and that a fork never leaves locked.
//!
//! `PyOnceLock` makes other threads wait while one initialises it. An initialiser that imports a module releases the GIL, and
//! another thread may fork meanwhile. No thread of the child finishes the initialisation, so its first call would wait for
//! ever. Here no thread waits. Concurrent threads all compute the value, and the first value stays. A value is stored under the
//! GIL, which a thread that forks through Python holds too.

use pyo3::prelude::*;
use pyo3::types::PyType;
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
