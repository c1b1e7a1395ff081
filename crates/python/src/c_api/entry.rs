//! The entry of each function of the table: errors, panics, pending exceptions, and the fast path before the slow one.

use crate::errors::{Failure, Result};
use crate::interpreter::guard;
use crate::interpreter::owner::drop_deferred;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
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
            Step::Slow(_) if !guard::is_main_interpreter(py) => refuse_subinterpreter(),
            Step::Slow(state) => Python::attach(|_| slow(py, state)).map_or_else(raise, Some),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        raise(PyRuntimeError::new_err("internal error in tensorferry; please report this").into())
    })
}

/// Sets the exception of a call in a subinterpreter, to which PyO3 cannot attach.
#[cold]
fn refuse_subinterpreter<T>() -> Option<T> {
    // SAFETY: `PyErr_SetString` requires an attached thread, as the contract of `enter` says, and a C string.
    unsafe {
        let text = c"tensorferry works in the main interpreter only\nhint: use threads or processes instead of subinterpreters";
        ffi::PyErr_SetString(ffi::PyExc_RuntimeError, text.as_ptr());
    }
    None
}

/// Sets the exception of a failure.
#[cold]
fn raise<T>(failure: Failure) -> Option<T> {
    Python::attach(|py| PyErr::from(failure).restore(py));
    None
}

/// An exception that was set when a function began, and is set again when it ends, instead of its own. Code that cleans up after an
/// error calls `release` and deleters.
pub(super) struct PendingException {
    class: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    traceback: *mut ffi::PyObject,
}

impl PendingException {
    /// # Safety
    /// The thread has the GIL until the result is dropped.
    #[inline(always)]
    pub(super) unsafe fn save() -> Option<Self> {
        let mut saved = Self { class: ptr::null_mut(), value: ptr::null_mut(), traceback: ptr::null_mut() };
        // SAFETY: both functions require the GIL, as the contract of this function says, and pointers to locals.
        unsafe {
            if ffi::PyErr_Occurred().is_null() {
                return None;
            }
            ffi::PyErr_Fetch(&raw mut saved.class, &raw mut saved.value, &raw mut saved.traceback);
        }
        Some(saved)
    }
}

impl Drop for PendingException {
    fn drop(&mut self) {
        // SAFETY: `PyErr_Restore` takes the references that `PyErr_Fetch` gave, once. The thread has the GIL by the contract of `save`.
        unsafe { ffi::PyErr_Restore(self.class, self.value, self.traceback) }
    }
}
