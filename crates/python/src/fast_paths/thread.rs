//! A thread on which no mode, context or trace of a framework is on.

use pyo3::prelude::*;
use std::thread::{self, Builder};

/// Runs `work` on a thread of its own, and waits for it without the GIL.
///
/// PyTorch's modes, JAX's traces and settings, and TensorFlow's graphs belong to the thread that entered them. A new thread
/// has none, which the public functions of the frameworks give no other way to ask for. Where the system has no thread left,
/// the work is done on the caller's.
pub(crate) fn on_fresh_thread<T, F>(py: Python<'_>, work: F) -> T
where
    T: Send,
    F: FnOnce(Python<'_>) -> T + Send,
{
    let mut waiting = Some(work);
    let done = py.detach(|| {
        let waiting = &mut waiting;
        thread::scope(|scope| {
            // Empties the place before it runs, so that work which did not start is still there.
            let body = move || waiting.take().map(|work| Python::attach(work));
            let started =
                Builder::new().name("tensorferry-probe".to_owned()).spawn_scoped(scope, body).ok()?;
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    match (done, waiting) {
        (Some(done), _) => done,
        (None, Some(work)) => work(py),
        (None, None) => unreachable!("work that was taken has a result"),
    }
}
