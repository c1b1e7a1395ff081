//! How this crate says what is wrong.

use std::io;
use tensorferry_core::{Error, ErrorKind};

/// The system refused, in its own words.
pub(crate) fn failed(doing: &str, error: &io::Error) -> Error {
    let errno = error.raw_os_error();
    // Rust adds the number in brackets, which the error keeps by itself.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let kind = if errno == Some(libc::ENOMEM) { ErrorKind::OutOfMemory } else { ErrorKind::Io };
    let made = Error::new(kind, format!("{doing}: {text}")).with_errno(errno);
    match errno {
        Some(libc::EMFILE | libc::ENFILE) => {
            made.with_advice("let go of some shared tensors, or raise the limit: ulimit -n")
        }
        Some(libc::ENOMEM) => made.with_advice("free some memory, or share less at a time"),
        _ => made,
    }
}

/// The last call failed, in the system's words.
pub(crate) fn last(doing: &str) -> Error {
    failed(doing, &io::Error::last_os_error())
}

/// The ticket is of no use.
pub(crate) fn refused(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::TicketRejected, fact.into()).with_advice("ask the producer for a new ticket")
}

/// The ticket is for somebody else.
pub(crate) fn foreign(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::TicketRejected, fact.into())
        .with_advice("run both processes as the same user: others are never let in")
}

/// What the other process sent breaks the rules.
pub(crate) fn broken(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact.into())
        .with_advice("let both processes use the same version of tensorferry")
}

/// The caller asked for something that means nothing.
pub(crate) fn wrong(fact: impl Into<String>, hint: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, fact.into()).with_advice(hint)
}

/// It took longer than the caller would wait.
pub(crate) fn late() -> Error {
    Error::new(ErrorKind::TimedOut, "the producer did not answer in time")
        .with_advice("see whether the producer is stopped, or pass a longer timeout")
}
