//! The register of fast paths: each private API of a framework that is used, with its switch, its probe and its state.
//!
//! A fast path is a function, an attribute or a struct layout that a framework does not document. Each one has a row in
//! the module `table` and a fallback that uses public APIs only. A framework's module calls [`probe`] when it first needs a fast path:
//! the probe runs it on a sample and compares the result with that of the public API. The caller stores what the probe
//! returns, so later calls do not come here; the register stores only the outcome, for `tensorferry doctor`. A failed
//! probe disables the fast path for the rest of the process.
//!
//! Modes, contexts and traces of a framework belong to a thread, and a sample that is created inside one of them is not an
//! ordinary tensor. Probes that create samples therefore run on a new thread ([`on_fresh_thread`](super::on_fresh_thread)).

use super::table::FastPath;
use crate::errors::{Failure, discard_exception};
use crate::settings;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The state of a fast path in this process. A variant further down takes precedence over one above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// It was not needed yet.
    #[default]
    Unused,
    /// Its probe passed.
    Active,
    /// This version of the framework does not have it.
    Missing(String),
    /// Its probe failed.
    Failed(String),
}

/// Why a fast path cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// This version of the framework does not have it.
    Missing(String),
    /// Its result differs from that of the public API, or it raised an exception.
    Failed(String),
}

/// The result of a probe.
pub(crate) type Probed<T> = Result<T, Unusable>;

impl Unusable {
    /// The result differs from that of the public API.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }

    /// This version of the framework does not have it.
    pub(crate) fn missing(reason: impl Into<String>) -> Self {
        Self::Missing(reason.into())
    }
}

impl From<PyErr> for Unusable {
    fn from(error: PyErr) -> Self {
        Self::Failed(one_line(error))
    }
}

impl From<Failure> for Unusable {
    fn from(failure: Failure) -> Self {
        PyErr::from(failure).into()
    }
}

impl From<tensorferry_core::Error> for Unusable {
    fn from(error: tensorferry_core::Error) -> Self {
        Failure::from(error).into()
    }
}

/// Turns the exception of a failed import or attribute access into [`Unusable::Missing`].
pub(crate) fn present<T>(found: PyResult<T>) -> Probed<T> {
    found.map_err(|error| Unusable::Missing(one_line(error)))
}

/// Fails the probe with `reason` unless the comparison passed.
pub(crate) fn check(is_correct: bool, reason: impl FnOnce() -> String) -> Probed<()> {
    if is_correct { Ok(()) } else { Err(Unusable::Failed(reason())) }
}

/// The class and the first line of an exception.
fn one_line(error: PyErr) -> String {
    Python::attach(|py| {
        let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let text = error.value(py).to_string();
        let line = format!("{name}: {}", text.lines().next().unwrap_or_default().trim());
        discard_exception(py, error);
        line
    })
}

/// The states, indexed by [`FastPath`]. Threads take the lock only while they hold the GIL, and run no Python code under it,
/// so `fork()` never copies it locked.
static STATES: Mutex<[State; FastPath::COUNT]> = Mutex::new([const { State::Unused }; FastPath::COUNT]);

/// Whether `TENSORFERRY_DISABLE` does not name the fast path.
pub(crate) fn is_enabled(path: FastPath) -> bool {
    !settings::disabled_fast_paths().contains(path)
}

/// Runs the probe `find` of a fast path and records the outcome. `None` means that the fast path is disabled or that the
/// probe failed: the caller then uses the public API.
pub(crate) fn probe<T>(py: Python<'_>, path: FastPath, find: impl FnOnce() -> Probed<T>) -> Option<T> {
    if !is_enabled(path) {
        return None;
    }
    let (found, state) = match find() {
        Ok(found) => (Some(found), State::Active),
        Err(Unusable::Missing(reason)) => (None, State::Missing(reason)),
        Err(Unusable::Failed(reason)) => (None, State::Failed(reason)),
    };
    record(py, path, state);
    found
}

/// Records an outcome. A failure is not overwritten by a success with another type.
pub(super) fn record(_py: Python<'_>, path: FastPath, state: State) {
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = &mut states[path as usize];
    if state > *known {
        *known = state;
    }
}

pub(super) fn state_of(_py: Python<'_>, path: FastPath) -> State {
    STATES.lock().unwrap_or_else(PoisonError::into_inner)[path as usize].clone()
}
