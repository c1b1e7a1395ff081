//! Errors: a kind, a fact in one line, and a hint.
//!
//! The kind selects the exception class in Python. The fact names the argument or file and its numbers. The crates below the
//! front ends know neither Python's arguments nor the options of the command line, so they attach a [`HintKey`], and each
//! front end turns the key into advice in its own terms.

use crate::hints;
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
    FrameworkFailed,
    /// A device failed, or its driver did.
    DeviceFailed,
    /// The caller called it off.
    Cancelled,
    /// It takes longer than the caller would wait.
    TimedOut,
    /// A file breaks the rules of its format.
    InvalidFile,
    /// The system refused a file, or failed over one; [`Error::errno`] says how.
    Io,
    /// A ticket for another process's tensor is stale, used up or unknown there.
    TicketRejected,
}

/// One fact and, where there is something to do, one hint. Small, because every result has room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<ErrorDetails>);

/// Identifies one piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HintKey(&'static str);

impl HintKey {
    /// A key with this name. Use [`hint_keys!`](crate::hint_keys), which also lists the keys for the front ends' tests.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name by which front ends look up their advice.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// What the caller can do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A key, with the value that the advice contains, if any.
    Key(HintKey, Option<String>),
    /// Advice in the words of a front end.
    Text(Cow<'static, str>),
}

/// Defines the hint keys of a crate, and `ALL`, which lists them.
#[macro_export]
macro_rules! hint_keys {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: $crate::error::HintKey = $crate::error::HintKey::new($text);)*

        /// Every key above.
        pub const ALL: &[$crate::error::HintKey] = &[$($name),*];
    };
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

    /// An error about memory from outside that breaks its own contract.
    pub(crate) fn invalid_tensor(fact: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidTensor, fact).with_hint(hints::REPORT_INVALID_TENSOR)
    }

    /// An error that says that the host has no memory for an allocation.
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

    /// What the caller can do about it.
    pub fn hint(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
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
    fn the_hint_stands_on_its_own_line() {
        let error =
            Error::new(ErrorKind::CopyRequired, "the source is strided").with_advice("pass copy=None");
        assert_eq!(error.to_string(), "the source is strided\nhint: pass copy=None");
    }

    #[test]
    fn a_place_goes_in_front_and_the_rest_stays() {
        let error = Error::new(ErrorKind::Io, "it is not there").with_advice("look").with_errno(Some(2));
        let error = error.at("x.npy");
        assert_eq!(
            (error.fact(), error.hint(), error.errno()),
            ("x.npy: it is not there", Some(&Hint::Text("look".into())), Some(2))
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
