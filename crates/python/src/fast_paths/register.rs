//! The register of fast paths: every private entry point of a framework, with its switch, its probe and its state.
//!
//! A fast path is a function, an attribute or a struct layout that a framework does not document. Each has one row in
//! [`table`], and public functions that do the same when it is not used. A framework's file asks [`probe`] for a fast path
//! when it is first needed: the probe uses it on a sample and compares the answer with what the public functions say. What
//! the probe returns is kept by the caller, so that later calls do not come here; the register only keeps the outcome, for
//! `tensorferry doctor`. A probe that fails turns the fast path off for the rest of the process.
//!
//! Frameworks keep modes, contexts and traces by thread, and a sample made in the middle of one of them would not be an
//! ordinary tensor. Probes that make samples run on a thread of their own ([`on_fresh_thread`]).

use super::table::FastPath;
use crate::errors::{Failure, forget};
use crate::settings;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What has become of a fast path in this process. The order is that of precedence: a later one replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Nothing has needed it yet.
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
    /// It gave another answer than the public functions, or raised an exception.
    Failed(String),
}

/// The result of looking for a fast path and trying it.
pub(crate) type Probed<T> = Result<T, Unusable>;

impl Unusable {
    /// It gave another answer than the public functions.
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
        Self::Failed(in_one_line(error))
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

/// The attribute, import or symbol, which a version of the framework may not have.
pub(crate) fn present<T>(found: PyResult<T>) -> Probed<T> {
    found.map_err(|error| Unusable::Missing(in_one_line(error)))
}

/// Fails the probe unless what the fast path says holds.
pub(crate) fn check(holds: bool, reason: impl FnOnce() -> String) -> Probed<()> {
    if holds { Ok(()) } else { Err(Unusable::Failed(reason())) }
}

fn in_one_line(error: PyErr) -> String {
    Python::attach(|py| {
        let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let text = error.value(py).to_string();
        let line = format!("{name}: {}", text.lines().next().unwrap_or_default().trim());
        forget(py, error);
        line
    })
}

/// The states by [`FastPath`]. The lock is held by threads that have the GIL and run no Python code meanwhile, so a fork
/// never copies it locked.
static STATES: Mutex<[State; FastPath::COUNT]> = Mutex::new([const { State::Unused }; FastPath::COUNT]);

/// Whether `TENSORFERRY_DISABLE` leaves a fast path on.
pub(crate) fn enabled(path: FastPath) -> bool {
    !settings::disabled_fast_paths().contains(path)
}

/// A fast path that is used for the first time: what `find` finds and has tried, unless it is switched off. Where `find`
/// fails, the reason is recorded and the caller uses the public functions.
pub(crate) fn probe<T>(py: Python<'_>, path: FastPath, find: impl FnOnce() -> Probed<T>) -> Option<T> {
    if !enabled(path) {
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

/// Notes an outcome. One of several failures stays, also where the fast path works for other types.
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
