//! Errors of this crate.

use crate::hints;
use tensorferry_core::{Error, ErrorKind};

/// A struct violates the interface.
#[cold]
pub(crate) fn invalid_struct(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact.into()).with_hint(hints::REPORT_INVALID_STRUCT)
}
