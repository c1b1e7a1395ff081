//! How far a transfer is, for people and for programs.

use crate::errors::{Result, describe, fail};
use crate::text::format_bytes;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::fmt::Write;
use std::time::Instant;
use tensorferry_core::ErrorKind;

/// Who wants to see it.
pub(crate) enum Progress {
    /// People, by a bar on standard error.
    Bar,
    /// A program, by a call with the bytes that have moved and those that will.
    Call(Py<PyAny>),
}

/// Reads the keyword: True, False, None or a function.
pub(crate) fn parse(given: &Bound<'_, PyAny>) -> Result<Option<Progress>> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(flag.is_true().then_some(Progress::Bar));
    }
    if given.is_callable() {
        return Ok(Some(Progress::Call(given.clone().unbind())));
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        format!("progress must be True, False or a function, not {}", describe(given)),
        "pass True for a bar, or a function of the bytes moved and their total",
    ))
}

const WIDTH: usize = 30;

impl Progress {
    /// Shows where it is.
    pub(crate) fn show(&self, py: Python<'_>, moved: usize, total: usize, begin: Instant) -> PyResult<()> {
        match self {
            Self::Bar => write(py, &bar(moved, total, begin), false),
            Self::Call(function) => function.call1(py, (moved, total)).map(|_| ()),
        }
    }

    /// Shows that it is over: with all of its bytes, or without.
    pub(crate) fn end(&self, py: Python<'_>, total: Option<usize>, begin: Instant) -> PyResult<()> {
        match (self, total) {
            (Self::Bar, Some(total)) => write(py, &bar(total, total, begin), true),
            (Self::Bar, None) => write(py, "", true),
            (Self::Call(function), Some(total)) => function.call1(py, (total, total)).map(|_| ()),
            (Self::Call(_), None) => Ok(()),
        }
    }
}

fn bar(moved: usize, total: usize, begin: Instant) -> String {
    let share = if total == 0 { 1.0 } else { moved as f64 / total as f64 };
    let full = (share * WIDTH as f64) as usize;
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let mut text = String::from("\r");
    let _ = write!(
        text,
        "[{}{}] {:3.0}%  {} of {}  {:.1} GB/s ",
        "#".repeat(full),
        " ".repeat(WIDTH - full.min(WIDTH)),
        100.0 * share,
        format_bytes(moved),
        format_bytes(total),
        moved as f64 / seconds / 1e9,
    );
    text
}

/// Writes to standard error, if that is a terminal.
fn write(py: Python<'_>, text: &str, ends: bool) -> PyResult<()> {
    let error = py.import("sys")?.getattr("stderr")?;
    if error.is_none() || !error.call_method0("isatty")?.is_truthy()? {
        return Ok(());
    }
    error.call_method1("write", (text,))?;
    if ends {
        error.call_method1("write", ("\n",))?;
    }
    error.call_method0("flush").map(|_| ())
}
