//! The error type of this crate, and how exceptions of other code become ours.

use super::classes::{raise, types};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use tensorferry_core::error::{Error, ErrorKind};

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A fact that tensorferry states.
    Ferry(Error),
    /// A fact that tensorferry states about an exception of somebody else's code, which is kept as its cause.
    Because(Error, Box<PyErr>),
    /// An exception raised by Python code, passed on as it is.
    Python(Box<PyErr>),
}

/// What to do where memory has run out.
const NO_MEMORY_HINT: &str = "free something first, or carry fewer tensors at a time";

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
            // Python's own error says neither what there was no memory for nor what to do.
            Failure::Python(error) => Python::attach(|py| {
                if !error.get_type(py).is(py.get_type::<PyMemoryError>()) {
                    return *error;
                }
                let fact = "Python has no memory left for one of its objects";
                let raised = raise(py, &Error::new(ErrorKind::OutOfMemory, fact).with_advice(NO_MEMORY_HINT));
                raised.set_cause(py, Some(*error));
                raised
            }),
            Failure::Ferry(error) => Python::attach(|py| raise(py, &error)),
            Failure::Because(error, cause) => Python::attach(|py| {
                let raised = raise(py, &error);
                raised.set_cause(py, Some(*cause));
                raised
            }),
        }
    }
}

impl Failure {
    /// The same failure, with the place inside a tree in front of its fact.
    pub(crate) fn at(self, place: &str) -> Self {
        let moved = |error: Error| error.at(format_args!("at {place}"));
        match self {
            Self::Ferry(error) => Self::Ferry(moved(error)),
            Self::Because(error, cause) => Self::Because(moved(error), cause),
            Self::Python(error) => {
                Python::attach(|py| {
                    // What prevents this is less important than the error itself.
                    let _ = add_place(&error, place, py);
                });
                Self::Python(error)
            }
        }
    }
}

/// Puts the place inside a tree in front of the message, if it is an error of ours that Python code has raised.
fn add_place(error: &PyErr, place: &str, py: Python<'_>) -> PyResult<()> {
    let value = error.value(py);
    let is_ours = value.is_instance(types(py)?[0].bind(py))?;
    if let (true, Ok((message,))) = (is_ours, value.getattr("args")?.extract::<(String,)>()) {
        value.setattr("args", (format!("at {place}: {message}"),))?;
    }
    Ok(())
}

/// Short for an error with a fact and a hint.
pub(crate) fn fail(kind: ErrorKind, fact: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Ferry(Error::new(kind, fact.into()).with_advice(hint.into()))
}

/// Says that a framework refused a tensor that its documentation accepts, with its own first line.
pub(crate) fn refused(py: Python<'_>, framework: &str, failure: impl Into<Failure>) -> Failure {
    let hint = format!("check that the installed version of {framework} is one that tensorferry supports");
    foreign(py, failure, ErrorKind::FrameworkFailed, &format!("{framework} refused the tensor"), &hint)
}

/// Turns an exception of somebody else's code into one of ours: what it was about, and its first line. The
/// exception itself, with its traceback, is the cause.
///
/// Our own errors stay as they are, and so does what is no error but a request to stop (Ctrl-C).
pub(crate) fn foreign(
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
    // C++ has a name of its own for it; PyTorch has a class that is not a MemoryError, and a message.
    let no_memory = error.is_instance_of::<PyMemoryError>(py)
        || name.ends_with("OutOfMemoryError")
        || line.contains("bad_alloc")
        || line.starts_with("Failed to allocate a Tensor object");
    let (kind, hint) = match kind {
        ErrorKind::OutOfMemory => (kind, hint),
        _ if no_memory => (ErrorKind::OutOfMemory, NO_MEMORY_HINT),
        _ => (kind, hint),
    };
    let stated = Error::new(kind, format!("{about}: {name}: {line}")).with_advice(hint.to_owned());
    Failure::Because(stated, error)
}

/// Lets go of an exception that does not matter, also where PyO3 does not know that the interpreter is attached and
/// would put it off.
pub(crate) fn forget(py: Python<'_>, error: PyErr) {
    error.into_value(py).drop_ref(py);
}
