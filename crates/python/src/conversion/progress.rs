//! Progress reports of a transfer: a bar on the terminal, or calls of a function.

use crate::errors::{Result, describe_argument, fail};
use crate::text::format_bytes;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::fmt::Write;
use std::time::Instant;
use tensorferry_core::ErrorKind;

/// The receiver of progress reports.
pub(crate) enum Progress {
    /// A bar on standard error.
    Bar,
    /// A Python function of the bytes moved and their total.
    Call(Py<PyAny>),
}

/// Parses `progress=`: True, False or a function.
pub(crate) fn parse(given: &Bound<'_, PyAny>) -> Result<Option<Progress>> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(flag.is_true().then_some(Progress::Bar));
    }
    if given.is_callable() {
        return Ok(Some(Progress::Call(given.clone().unbind())));
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        format!("progress must be True, False or a function, not {}", describe_argument(given)),
        "pass True for a bar, or a function of the bytes moved and their total",
    ))
}

/// Characters between the brackets of the bar.
const BAR_CHARS: usize = 30;

impl Progress {
    /// Reports the bytes moved so far.
    pub(crate) fn show(&self, py: Python<'_>, moved: usize, total: usize, begin: Instant) -> PyResult<()> {
        match self {
            Self::Bar => write(py, &bar(moved, total, begin), false),
            Self::Call(function) => function.call1(py, (moved, total)).map(|_| ()),
        }
    }

    /// Reports the end: of all `total` bytes, or of a transfer that failed.
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
    let fraction = if total == 0 { 1.0 } else { moved as f64 / total as f64 };
    let filled = (fraction * BAR_CHARS as f64) as usize;
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let mut text = String::from("\r");
    let _ = write!(
        text,
        "[{}{}] {:3.0}%  {} of {}  {:.1} GB/s ",
        "#".repeat(filled),
        " ".repeat(BAR_CHARS - filled.min(BAR_CHARS)),
        100.0 * fraction,
        format_bytes(moved),
        format_bytes(total),
        moved as f64 / seconds / 1e9,
    );
    text
}

/// Writes to standard error if it is a terminal.
fn write(py: Python<'_>, text: &str, is_last: bool) -> PyResult<()> {
    let stderr = py.import("sys")?.getattr("stderr")?;
    if stderr.is_none() || !stderr.call_method0("isatty")?.is_truthy()? {
        return Ok(());
    }
    stderr.call_method1("write", (text,))?;
    if is_last {
        stderr.call_method1("write", ("\n",))?;
    }
    stderr.call_method0("flush").map(|_| ())
}
