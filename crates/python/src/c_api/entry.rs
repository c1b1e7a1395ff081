//! The entry of each function of the table: errors, panics, and the fast path before the slow one.

use crate::errors::{Failure, Result};
use crate::interpreter::owner::drop_deferred;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tensorferry_core::emergency_pool;

/// The outcome of the fast path of a function.
pub(super) enum Step<T, S> {
    /// The call is complete.
    Done(T),
    /// The slow path completes the call from here.
    Slow(S),
}

/// Runs a function of the table: the fast path, and the slow one if that does not complete the call.
///
/// PyO3 counts the nesting of its functions on each thread, to know whether a reference may be released at once. `fast` does
/// without that count, as `to` does.
///
/// # Safety
/// The thread has the GIL.
#[inline(always)]
pub(super) unsafe fn enter<'py, T, S>(
    fast: impl FnOnce(Python<'py>) -> Step<T, S>,
    slow: impl FnOnce(Python<'py>, S) -> Result<T>,
) -> Option<T> {
    let run = || {
        // SAFETY: `assume_attached` requires an attached thread, as the contract of `enter` says.
        let py = unsafe { Python::<'py>::assume_attached() };
        drop_deferred(py);
        if let Err(error) = emergency_pool::check_headroom() {
            return raise(error.into());
        }
        match fast(py) {
            Step::Done(result) => Some(result),
            Step::Slow(state) => Python::attach(|_| slow(py, state)).map_or_else(raise, Some),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        raise(PyRuntimeError::new_err("internal error in tensorferry; please report this").into())
    })
}

/// Sets the exception of a failure.
#[cold]
fn raise<T>(failure: Failure) -> Option<T> {
    Python::attach(|py| PyErr::from(failure).restore(py));
    None
}
