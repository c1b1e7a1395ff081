//! What goes wrong, said in two lines: the fact, and what to do about it.
//!
//! An [`Error`] has a kind (which exception it becomes), a fact that stands on one line, and a
//! hint that starts with a verb. Internals stay out of both.

use std::borrow::Cow;
use std::fmt;

/// The result of a fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of thing went wrong; each becomes one exception class in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object is no tensor, or a kind of tensor that has no plain memory.
    NotATensor,
    /// The element type has no counterpart at the target.
    UnsupportedDType,
    /// The target framework cannot hold memory on that device.
    UnsupportedDevice,
    /// The layout cannot be expressed at the target, even by copying.
    UnsupportedLayout,
    /// Sharing was demanded and a fact forbids it.
    CopyRequired,
    /// The trip needs more memory than there is, or than the caller allowed.
    OutOfMemory,
    /// The framework is not installed, or not known.
    FrameworkMissing,
    /// Memory given to us from outside breaks its own contract.
    InvalidTensor,
    /// An argument has a value that means nothing here.
    InvalidArgument,
    /// A framework refused what its own documentation accepts.
    FrameworkRefused,
    /// A device failed, or its driver did.
    DeviceFailed,
    /// The caller called it off.
    Cancelled,
    /// It takes longer than the caller would wait.
    TimedOut,
    /// A file breaks the rules of its format.
    BadFile,
    /// The system refused a file, or failed over one; [`Error::errno`] says how.
    FileFailed,
    /// A ticket for another process's tensor is stale, used up or unknown there.
    TicketRefused,
}

/// One fact and, where there is something to do, one hint. Small, because every result has room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Said>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    kind: ErrorKind,
    fact: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    errno: Option<i32>,
}

impl Error {
    /// An error that states `fact`.
    pub fn new(kind: ErrorKind, fact: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Said { kind, fact: fact.into(), hint: None, errno: None }))
    }

    /// An error about memory from outside that breaks its own contract.
    pub(crate) fn invalid_tensor(fact: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidTensor, fact)
            .with_hint("pass a plain copy of the tensor, and report this to whoever made it")
    }

    /// An error that says that the host has no memory for an allocation.
    #[cold]
    pub fn out_of_memory(bytes: usize) -> Self {
        Self::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes on the host"))
            .with_hint("free something first, or convert a slice at a time")
    }

    /// The same error with a line that says what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same error with the number by which the system calls it.
    #[must_use]
    pub fn with_errno(mut self, errno: Option<i32>) -> Self {
        self.0.errno = errno;
        self
    }

    /// The same error, with where it was found in front of its fact.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.fact = format!("{place}: {}", self.0.fact).into();
        self
    }

    /// Which sort of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What is the case, in one line.
    pub fn fact(&self) -> &str {
        &self.0.fact
    }

    /// What to do, in one line.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The number by which the system calls what went wrong, where the system said so.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fact())?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_stands_on_its_own_line() {
        let error = Error::new(ErrorKind::CopyRequired, "the source is strided").with_hint("pass copy=None");
        assert_eq!(error.to_string(), "the source is strided\nhint: pass copy=None");
    }

    #[test]
    fn a_place_goes_in_front_and_the_rest_stays() {
        let error =
            Error::new(ErrorKind::FileFailed, "it is not there").with_hint("look").with_errno(Some(2));
        let error = error.at("x.npy");
        assert_eq!(
            (error.fact(), error.hint(), error.errno()),
            ("x.npy: it is not there", Some("look"), Some(2))
        );
    }

    #[test]
    fn no_hint_no_second_line() {
        assert_eq!(
            Error::new(ErrorKind::InvalidTensor, "shape dimension 2 is negative: -5").to_string(),
            "shape dimension 2 is negative: -5"
        );
    }
}
