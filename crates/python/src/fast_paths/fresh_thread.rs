//! Running a probe on a new thread, outside of every mode, context and trace of a framework.

use pyo3::prelude::*;
use std::thread::{self, Builder};

/// Runs `work` on a new thread, and releases the GIL while waiting for it.
///
/// PyTorch's modes, JAX's traces and settings, and TensorFlow's graphs belong to the thread that entered them. The public
/// APIs offer no other way to leave all of them. If the system cannot start a thread, the work runs on the calling thread.
pub(crate) fn on_fresh_thread<T, F>(py: Python<'_>, work: F) -> T
where
    T: Send,
    F: FnOnce(Python<'_>) -> T + Send,
{
    let mut pending = Some(work);
    let done = py.detach(|| {
        let pending = &mut pending;
        thread::scope(|scope| {
            // The closure takes the work when it starts: if the thread cannot be created, the work is still available.
            let body = move || pending.take().map(|work| Python::attach(work));
            let started =
                Builder::new().name("tensorferry-probe".to_owned()).spawn_scoped(scope, body).ok()?;
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    match (done, pending) {
        (Some(done), _) => done,
        (None, Some(work)) => work(py),
        (None, None) => unreachable!("a thread that took the work returned a result"),
    }
}
