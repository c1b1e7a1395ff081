//! A lock that excludes forks while a thread sets cells of other crates.
//!
//! Such a cell stays locked in the child of a fork if another thread is setting it. See `once` for cells of our own. The lock is a
//! `threading.RLock`, because a thread that waits for it releases the GIL. `os.fork` holds it through the callbacks of
//! `os.register_at_fork`.

use super::once::ForkSafeOnce;
use pyo3::prelude::*;

static LOCK: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();

fn lock(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let create = || Ok(py.import("threading")?.call_method0("RLock")?.unbind());
    LOCK.get_or_try_init(py, create).map(|lock| lock.bind(py))
}

/// Runs `initialise` while no thread can fork through Python.
pub(crate) fn without_fork<T>(py: Python<'_>, initialise: impl FnOnce() -> T) -> PyResult<T> {
    let _held = HeldLock::acquire(py)?;
    Ok(initialise())
}

/// The held lock, which is released on drop.
struct HeldLock<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> HeldLock<'a, 'py> {
    fn acquire(py: Python<'py>) -> PyResult<Self>
    where
        'py: 'a,
    {
        let lock = lock(py)?;
        lock.call_method0("acquire")?;
        Ok(Self(lock))
    }
}

impl Drop for HeldLock<'_, '_> {
    fn drop(&mut self) {
        // Fails only if this thread does not hold the lock.
        let _ = self.0.call_method0("release");
    }
}

/// Called before a fork.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) -> PyResult<()> {
    lock(py)?.call_method0("acquire").map(drop)
}

/// Called after a fork, in the parent and in the child. The thread that forked holds the lock in both.
#[pyfunction]
pub(crate) fn after_fork(py: Python<'_>) -> PyResult<()> {
    lock(py)?.call_method0("release").map(drop)
}
