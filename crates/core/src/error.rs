//! Errors: a kind, a fact in one line, and a hint.
//!
//! The kind selects the exception class in Python. The fact names the argument or file and its numbers. The crates below the
//! front ends know neither Python's arguments nor the options of the command line, so they attach a [`HintKey`]. Advice that
//! depends on neither is part of the key; each front end has a table with the rest in its own terms.

pub use crate::hint_key::{Advice, HintKey, covers};
use crate::hints;
use std::borrow::Cow;
use std::fmt;

/// The result of a fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error. Each kind becomes one exception class in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object is not a tensor, or its values are not in memory that can be addressed.
    NotATensor,
    /// The target framework does not have the element type.
    UnsupportedDType,
    /// The target framework does not support memory on that device.
    UnsupportedDevice,
    /// The target framework cannot represent the layout, even after a copy.
    UnsupportedLayout,
    /// Sharing was requested, and the conversion needs a copy.
    CopyRequired,
    /// The conversion needs more memory than is available or than the caller allowed.
    OutOfMemory,
    /// The framework is not installed or not supported.
    FrameworkMissing,
    /// A tensor of another library violates its own contract.
    InvalidTensor,
    /// An argument has an invalid value.
    InvalidArgument,
    /// Another extension module reads or writes the same memory.
    BorrowConflict,
    /// A framework rejected a call that its documentation allows.
    FrameworkFailed,
    /// A device or its driver failed.
    DeviceFailed,
    /// The caller cancelled the operation.
    Cancelled,
    /// The operation did not finish within the caller's timeout.
    TimedOut,
    /// A file violates its format.
    InvalidFile,
    /// A system call on a file failed; [`Error::errno`] has its number.
    Io,
    /// A ticket for another process's tensor is expired, used up or unknown to the producer.
    TicketRejected,
}

impl ErrorKind {
    /// All kinds, for tables that must have a row for each.
    #[doc(hidden)]
    pub const ALL: &[Self] = &[
        Self::NotATensor,
        Self::UnsupportedDType,
        Self::UnsupportedDevice,
        Self::UnsupportedLayout,
        Self::CopyRequired,
        Self::OutOfMemory,
        Self::FrameworkMissing,
        Self::InvalidTensor,
        Self::InvalidArgument,
        Self::BorrowConflict,
        Self::FrameworkFailed,
        Self::DeviceFailed,
        Self::Cancelled,
        Self::TimedOut,
        Self::InvalidFile,
        Self::Io,
        Self::TicketRejected,
    ];
}

/// A fact and an optional hint. One pointer wide, because every `Result` has room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<ErrorDetails>);

/// What the caller can do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A key, with the value that the advice contains, if any.
    Key(HintKey, Option<String>),
    /// Advice in the words of a front end.
    Text(Cow<'static, str>),
}

impl Hint {
    /// The advice, with the words of a front end for keys that do not have their own; `None` if it has none for the key.
    pub fn advice<'a>(&'a self, tables: &[&'static [Advice]]) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Key(key, value) => {
                let worded = || tables.iter().copied().flatten().find(|(known, _)| known == key);
                let text = key.advice().or_else(|| worded().map(|(_, text)| *text))?;
                Some(match value {
                    None => Cow::Borrowed(text),
                    Some(value) => Cow::Owned(text.replace("{}", value)),
                })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorDetails {
    kind: ErrorKind,
    fact: Cow<'static, str>,
    hint: Option<Hint>,
    errno: Option<i32>,
}

impl Error {
    /// An error that states `fact`.
    pub fn new(kind: ErrorKind, fact: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ErrorDetails { kind, fact: fact.into(), hint: None, errno: None }))
    }

    /// An error about another library's tensor that violates its own contract.
    pub(crate) fn invalid_tensor(fact: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidTensor, fact).with_hint(hints::REPORT_INVALID_TENSOR)
    }

    /// An error about a failed allocation of host memory.
    #[cold]
    pub fn out_of_memory(bytes: usize) -> Self {
        Self::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes on the host"))
            .with_hint(hints::FREE_MEMORY)
    }

    /// Attaches a hint, which the front end words.
    #[must_use]
    pub fn with_hint(mut self, key: HintKey) -> Self {
        self.0.hint = Some(Hint::Key(key, None));
        self
    }

    /// Attaches a hint whose advice contains a value, such as the name that the caller probably meant.
    #[must_use]
    pub fn with_hint_value(mut self, key: HintKey, value: impl Into<String>) -> Self {
        self.0.hint = Some(Hint::Key(key, Some(value.into())));
        self
    }

    /// Attaches advice in the words of a front end. Only front ends call this.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(Hint::Text(advice.into()));
        self
    }

    /// Attaches the `errno` of a failed system call.
    #[must_use]
    pub fn with_errno(mut self, errno: Option<i32>) -> Self {
        self.0.errno = errno;
        self
    }

    /// Prefixes the fact with a context, such as the file or the tensor that the error is about.
    #[must_use]
    pub fn at(mut self, context: impl fmt::Display) -> Self {
        self.0.fact = format!("{context}: {}", self.0.fact).into();
        self
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The fact, in one line.
    pub fn fact(&self) -> &str {
        &self.0.fact
    }

    /// What the caller can do about it.
    pub fn hint(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
    }

    /// The `errno` of the failed system call, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fact())?;
        match self.hint() {
            Some(Hint::Text(advice)) => write!(f, "\nhint: {advice}"),
            Some(Hint::Key(..)) | None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_listed() {
        // A new kind does not compile here. It belongs in the list too.
        let index = |kind: &ErrorKind| match kind {
            ErrorKind::NotATensor => 0,
            ErrorKind::UnsupportedDType => 1,
            ErrorKind::UnsupportedDevice => 2,
            ErrorKind::UnsupportedLayout => 3,
            ErrorKind::CopyRequired => 4,
            ErrorKind::OutOfMemory => 5,
            ErrorKind::FrameworkMissing => 6,
            ErrorKind::InvalidTensor => 7,
            ErrorKind::InvalidArgument => 8,
            ErrorKind::BorrowConflict => 9,
            ErrorKind::FrameworkFailed => 10,
            ErrorKind::DeviceFailed => 11,
            ErrorKind::Cancelled => 12,
            ErrorKind::TimedOut => 13,
            ErrorKind::InvalidFile => 14,
            ErrorKind::Io => 15,
            ErrorKind::TicketRejected => 16,
        };
        assert!(ErrorKind::ALL.iter().map(index).eq(0..17));
    }

    #[test]
    fn advice_is_on_its_own_line() {
        let error =
            Error::new(ErrorKind::CopyRequired, "the source is strided").with_advice("pass copy=None");
        assert_eq!(error.to_string(), "the source is strided\nhint: pass copy=None");
    }

    #[test]
    fn advice_of_keys() {
        let table: &'static [Advice] = &[(hints::CHOOSE_SPARSE_FORMAT, "pass one of {}")];
        let advice = |key, value: Option<&str>| {
            Hint::Key(key, value.map(str::to_owned)).advice(&[table]).map(Cow::into_owned)
        };
        assert_eq!(advice(hints::CHOOSE_SPARSE_FORMAT, Some("csr")).unwrap(), "pass one of csr");
        assert_eq!(advice(hints::CONVERT_SLICES, None).as_deref(), hints::CONVERT_SLICES.advice());
        assert_eq!(advice(hints::OMIT_COPY, None), None);
    }

    #[test]
    fn context_precedes_the_fact_and_keeps_the_rest() {
        let error =
            Error::new(ErrorKind::Io, "file not found").with_advice("check the path").with_errno(Some(2));
        let error = error.at("x.npy");
        assert_eq!(
            (error.fact(), error.hint(), error.errno()),
            ("x.npy: file not found", Some(&Hint::Text("check the path".into())), Some(2))
        );
    }

    #[test]
    fn an_error_without_a_hint_is_one_line() {
        assert_eq!(
            Error::new(ErrorKind::InvalidTensor, "shape dimension 2 is negative: -5").to_string(),
            "shape dimension 2 is negative: -5"
        );
    }
}
