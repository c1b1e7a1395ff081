//! Constructors for the errors of this crate.

use crate::hints;
use std::io;
use std::time::Duration;
use tensorferry_core::error::HintKey;
use tensorferry_core::{Error, ErrorKind};

/// A system call failed. The fact ends with the system's own description.
pub(crate) fn system_error(action: &str, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let errno = error.raw_os_error();
    // The error keeps the number in a field of its own.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let kind = if errno == Some(libc::ENOMEM) { ErrorKind::OutOfMemory } else { ErrorKind::Io };
    let made = Error::new(kind, format!("{action}: {text}")).with_errno(errno);
    match errno {
        Some(libc::EMFILE | libc::ENFILE) => made.with_hint(hints::RELEASE_DESCRIPTORS),
        Some(libc::EFBIG) => made.with_hint(hints::RAISE_FILE_SIZE_LIMIT),
        Some(libc::ENOMEM) => made.with_hint(hints::SHARE_LESS),
        _ => made,
    }
}

/// The ticket cannot be used any more.
pub(crate) fn ticket_rejected(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::TicketRejected, fact.into()).with_hint(hints::REQUEST_NEW_TICKET)
}

/// The producer runs as another user.
pub(crate) fn other_user(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::TicketRejected, fact.into()).with_hint(hints::RUN_AS_SAME_USER)
}

/// The peer sent something that breaks the protocol.
pub(crate) fn protocol_error(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact.into()).with_hint(hints::MATCH_VERSIONS)
}

/// An argument of the caller is invalid.
pub(crate) fn invalid_argument(fact: impl Into<String>, hint: HintKey) -> Error {
    Error::new(ErrorKind::InvalidArgument, fact.into()).with_hint(hint)
}

/// The producer took longer than the caller's timeout.
pub(crate) fn producer_timed_out(timeout: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, format!("the producer did not reply within {timeout:?}"))
        .with_hint(hints::CHECK_PRODUCER)
}
