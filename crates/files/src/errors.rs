//! How this crate says what is wrong with a file.
//!
//! Names and texts that come out of a file are quoted and cut short: a hostile file does not get to write lines of its
//! own into a message.

use std::io;
use tensorferry_core::{Error, ErrorKind};

/// The file breaks the rules of its format.
pub(crate) fn bad(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidFile, fact.into())
}

/// What the file holds is well formed, and nothing that tensorferry carries.
pub(crate) fn unsupported(fact: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::UnsupportedDType, fact.into()).with_advice(hint.into())
}

/// The caller asked for something that means nothing.
pub(crate) fn wrong(fact: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, fact.into()).with_advice(hint.into())
}

/// The system refused, in its own words.
pub(crate) fn failed(doing: &str, error: &io::Error) -> Error {
    let errno = error.raw_os_error();
    // Rust adds the number in brackets, which the error keeps by itself.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let made = Error::new(ErrorKind::Io, format!("{doing}: {text}")).with_errno(errno);
    match errno {
        Some(libc::ENOENT) => made.with_advice("check the path"),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            made.with_advice("check the permissions of the file and its folder")
        }
        Some(libc::ENOSPC | libc::EDQUOT) => {
            made.with_advice("free some space; what was there before is untouched")
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            made.with_advice("close some files, or raise the limit: ulimit -n")
        }
        _ => made,
    }
}

/// An error of the core about a shape from a file, as one about the file.
pub(crate) fn of_file(error: Error) -> Error {
    bad(error.fact().to_owned())
}

/// A text out of a file, as it may stand in a message.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_files_stay_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        assert!(quoted(&"ä".repeat(1000)).chars().count() < 90);
    }

    #[test]
    fn the_system_keeps_its_number() {
        let error = failed("open x", &io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::ENOENT)));
        assert_eq!(error.fact(), "open x: No such file or directory");
    }
}
