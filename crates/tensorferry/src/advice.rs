//! Advice for Rust programs, by the hint keys of the crates below.

use std::borrow::Cow;
use tensorferry_core::error::Hint;

/// The advice of a hint, in terms of this crate.
pub(crate) fn of_hint(hint: &Hint) -> Option<Cow<'_, str>> {
    match hint {
        Hint::Text(text) => Some(Cow::Borrowed(text)),
        Hint::Key(..) => None,
    }
}
