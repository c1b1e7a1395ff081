//! The error for a producer that sends what it did not announce.

use crate::hints;
use tensorferry_core::{Error, ErrorKind};

/// Another process sent data that contradicts its announcement.
pub(crate) fn protocol_error(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact.into()).with_hint(hints::USE_SAME_VERSION)
}
