//! [`Failure`]: the error type of this crate, and conversions from and to Python exceptions.

use super::classes::{raise, types};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use tensorferry_core::error::{Error, ErrorKind};

/// An error of this crate.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of tensorferry.
    Ferry(Error),
    /// An error of tensorferry about an exception of other code, which is its cause.
    WithCause(Error, Box<PyErr>),
    /// An exception of Python code, which is raised unchanged.
    Python(Box<PyErr>),
}

/// The hint of errors after memory has run out.
const NO_MEMORY_HINT: &str = "free memory first, or convert fewer tensors at a time";

/// The result of a fallible function in this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ferry(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(Box::new(error))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            // Python's own error has neither a fact nor a hint.
            Failure::Python(error) => Python::attach(|py| {
                if !error.get_type(py).is(py.get_type::<PyMemoryError>()) {
                    return *error;
                }
                let fact = "Python ran out of memory for one of its objects";
                let raised = raise(py, &Error::new(ErrorKind::OutOfMemory, fact).with_advice(NO_MEMORY_HINT));
                raised.set_cause(py, Some(*error));
                raised
            }),
            Failure::Ferry(error) => Python::attach(|py| raise(py, &error)),
            Failure::WithCause(error, cause) => Python::attach(|py| {
                let raised = raise(py, &error);
                raised.set_cause(py, Some(*cause));
                raised
            }),
        }
    }
}

impl Failure {
    /// The same failure, with the path within a tree in front of its fact.
    pub(crate) fn at(self, path: &str) -> Self {
        self.within(&format!("at {path}"))
    }

    /// The same failure, with text that says where it happened in front of its fact.
    pub(crate) fn within(self, context: &str) -> Self {
        match self {
            Self::Ferry(error) => Self::Ferry(error.at(context)),
            Self::WithCause(error, cause) => Self::WithCause(error.at(context), cause),
            Self::Python(error) => {
                Python::attach(|py| {
                    // An error here matters less than the error itself.
                    let _ = add_context(&error, context, py);
                });
                Self::Python(error)
            }
        }
    }
}

/// Adds the context to the message, if it is a `FerryError` that Python code has raised.
fn add_context(error: &PyErr, context: &str, py: Python<'_>) -> PyResult<()> {
    let value = error.value(py);
    let is_ours = value.is_instance(types(py)?[0].bind(py))?;
    if let (true, Ok((message,))) = (is_ours, value.getattr("args")?.extract::<(String,)>()) {
        value.setattr("args", (format!("{context}: {message}"),))?;
    }
    Ok(())
}

/// An error with a fact and a hint.
pub(crate) fn fail(kind: ErrorKind, fact: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Ferry(Error::new(kind, fact.into()).with_advice(hint.into()))
}

/// The error of a framework that refused a tensor although its documentation accepts it.
pub(crate) fn framework_error(py: Python<'_>, framework: &str, failure: impl Into<Failure>) -> Failure {
    let hint = format!("check that the installed version of {framework} is one that tensorferry supports");
    wrap_exception(py, failure, ErrorKind::FrameworkFailed, &format!("{framework} refused the tensor"), &hint)
}

/// Wraps an exception of other code as an error of tensorferry. Its fact is `about` and the first line of the exception, which
/// becomes the cause.
///
/// Errors of tensorferry and requests to stop (Ctrl-C) stay unchanged.
pub(crate) fn wrap_exception(
    py: Python<'_>,
    failure: impl Into<Failure>,
    kind: ErrorKind,
    about: &str,
    hint: &str,
) -> Failure {
    let error = match failure.into() {
        Failure::Python(error) if error.is_instance_of::<PyException>(py) => error,
        other => return other,
    };
    let text = error.value(py).to_string();
    let line = text.lines().next().unwrap_or_default().trim();
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    // Errors that are not a MemoryError: `std::bad_alloc` of C++, and a class and a message of PyTorch.
    let is_out_of_memory = error.is_instance_of::<PyMemoryError>(py)
        || name.ends_with("OutOfMemoryError")
        || line.contains("bad_alloc")
        || line.starts_with("Failed to allocate a Tensor object");
    let (kind, hint) = match kind {
        ErrorKind::OutOfMemory => (kind, hint),
        _ if is_out_of_memory => (ErrorKind::OutOfMemory, NO_MEMORY_HINT),
        _ => (kind, hint),
    };
    let wrapped = Error::new(kind, format!("{about}: {name}: {line}")).with_advice(hint.to_owned());
    Failure::WithCause(wrapped, error)
}

/// Drops an exception that does not matter at once, also where PyO3 does not know that the thread is attached and would defer
/// the drop.
pub(crate) fn discard_exception(py: Python<'_>, error: PyErr) {
    error.into_value(py).drop_ref(py);
}
