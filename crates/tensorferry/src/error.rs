//! The error of this crate.

use crate::advice;
use std::borrow::Cow;
use std::fmt;
pub use tensorferry_core::ErrorKind;

/// The result of a fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, and what to do about it.
///
/// [`fact`](Self::fact) is one line with the numbers, and [`hint`](Self::hint) one line of advice. `Display` writes both.
///
/// ```
/// use tensorferry::{ErrorKind, Tensor};
///
/// let error = Tensor::from_vec(vec![1.0f32; 5], &[2, 3]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// assert_eq!(error.fact(), "5 values cannot have shape [2, 3], which has 6 elements");
/// assert_eq!(error.to_string(), format!("{}\nhint: {}", error.fact(), error.hint().unwrap()));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(tensorferry_core::Error);

impl Error {
    /// An error with a fact and advice, for crates that build on this one.
    pub fn new(
        kind: ErrorKind,
        fact: impl Into<Cow<'static, str>>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(tensorferry_core::Error::new(kind, fact).with_advice(advice))
    }

    /// An error of the crates below. A public `From` would make their errors part of this crate's interface.
    pub(crate) fn from_core(error: tensorferry_core::Error) -> Self {
        Self(error)
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// The fact, in one line.
    pub fn fact(&self) -> &str {
        self.0.fact()
    }

    /// What the caller can do about it, in one line.
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        self.0.hint().and_then(advice::of_hint)
    }

    /// The `errno` of the failed system call, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno()
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

/// As `Display`, so that `unwrap` and a `main` that returns the error print the hint.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
