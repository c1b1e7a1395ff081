//! Constructors of this crate's errors.
//!
//! Text that comes from a file is escaped and truncated ([`quoted`], [`escaped`]), so that a hostile file cannot add lines to a message.
//! Facts do not name the file: [`crate::open()`] and the writer put the path in front.

use crate::hints;
use std::io;
use tensorferry_core::error::HintKey;
use tensorferry_core::{Error, ErrorKind, hints as core_hints};

/// Characters of a quoted text in a message.
const MAX_QUOTED_CHARS: usize = 80;

/// The file breaks the rules of its format.
pub(crate) fn invalid_file(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidFile, fact.into()).with_hint(hints::RECREATE_FILE)
}

/// The file is well formed, and its element type has no counterpart in tensorferry.
pub(crate) fn unsupported_dtype(fact: impl Into<String>, hint: HintKey) -> Error {
    Error::new(ErrorKind::UnsupportedDType, fact.into()).with_hint(hint)
}

/// An argument of the caller is invalid.
pub(crate) fn invalid_argument(fact: impl Into<String>, hint: HintKey) -> Error {
    Error::new(ErrorKind::InvalidArgument, fact.into()).with_hint(hint)
}

/// A system call failed. `context` is the path, or the operation.
pub(crate) fn io_error(context: &str, error: &io::Error) -> Error {
    let errno = error.raw_os_error();
    let is_invalid_path = error.kind() == io::ErrorKind::InvalidInput;
    // Rust appends the number in parentheses; the error keeps it separately.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let kind = if errno == Some(libc::ENOMEM) { ErrorKind::OutOfMemory } else { ErrorKind::Io };
    let error = Error::new(kind, format!("{context}: {text}")).with_errno(errno);
    match errno {
        Some(libc::ENOMEM) => error.with_hint(core_hints::FREE_MEMORY),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => {
            error.with_hint(hints::CHECK_PATH)
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => error.with_hint(hints::CHECK_PERMISSIONS),
        Some(libc::ENOSPC | libc::EDQUOT) => error.with_hint(hints::FREE_DISK_SPACE),
        Some(libc::EMFILE | libc::ENFILE) => error.with_hint(hints::CLOSE_FILES),
        Some(libc::EFBIG) => error.with_hint(hints::RAISE_FILE_SIZE_LIMIT),
        Some(libc::EISDIR) => error.with_hint(hints::PASS_REGULAR_FILE),
        // A path that the system was never asked for, because it contains a NUL byte.
        None if is_invalid_path => error.with_hint(hints::CHECK_PATH),
        _ => error.with_hint(hints::CHECK_FILE_SYSTEM),
    }
}

/// Restores an error of this crate that passed through a library as an [`io::Error`].
pub(crate) fn from_library_io(error: io::Error) -> Error {
    let kind = error.kind();
    if error.get_ref().is_some_and(|inner| inner.is::<Error>())
        && let Some(inner) = error.into_inner().and_then(|inner| inner.downcast::<Error>().ok())
    {
        return *inner;
    }
    match kind {
        io::ErrorKind::UnexpectedEof => invalid_file("the file ends before the data that it declares"),
        kind => io_error("cannot read the file", &io::Error::from(kind)),
    }
}

/// The core's error about a shape, as an error about the file that declares it.
pub(crate) fn invalid_shape_in_file(error: Error) -> Error {
    invalid_file(error.fact().to_owned())
}

/// The caller passed an entry of another file.
pub(crate) fn entry_of_another_file() -> Error {
    invalid_argument("the entry belongs to another file", hints::PASS_ENTRY_OF_FILE)
}

/// Text from a file, quoted and truncated for a message.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A library's message, which may contain text from a file, without quotes around it.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' | '\'' => letter.to_string(),
        other => other.escape_debug().to_string(),
    };
    let end = if text.chars().nth(MAX_QUOTED_CHARS).is_some() { "..." } else { "" };
    text.chars().take(MAX_QUOTED_CHARS).map(escape).chain([end.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_short_and_on_one_line() {
        assert_eq!(escaped("a \"b\"\n\u{202e}c"), "a \"b\"\\n\\u{202e}c");
        assert_eq!(escaped(&"a".repeat(81)), format!("{}...", "a".repeat(80)));
    }

    #[test]
    fn quoted_text_is_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        assert!(quoted(&"ä".repeat(1000)).chars().count() < 90);
    }

    #[test]
    fn io_errors_keep_errno() {
        let error = io_error("open x", &io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::ENOENT)));
        assert_eq!(error.fact(), "open x: No such file or directory");
        let error = io_error("cannot map the file", &io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!((error.kind(), error.errno()), (ErrorKind::OutOfMemory, Some(libc::ENOMEM)));
    }

    #[test]
    fn every_io_error_has_a_hint() {
        for errno in 1..133 {
            assert!(io_error("x", &io::Error::from_raw_os_error(errno)).hint().is_some(), "{errno}");
        }
        for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::Other, io::ErrorKind::UnexpectedEof] {
            assert!(io_error("x", &io::Error::from(kind)).hint().is_some(), "{kind}");
        }
    }
}
