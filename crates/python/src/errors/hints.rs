//! Advice for Python users, by the hint keys of the crates below.

use std::borrow::Cow;
use tensorferry_core::error::{Error, Hint};

mod core;
mod files;
mod row;

use row::Advice;

/// The advice of an error, in terms of Python's arguments and functions.
pub(crate) fn advice(error: &Error) -> Option<Cow<'_, str>> {
    match error.hint()? {
        Hint::Text(text) => Some(Cow::Borrowed(text)),
        Hint::Key(key, value) => {
            let (_, text) = tables().find(|(known, _)| known == key)?;
            Some(match value {
                None => Cow::Borrowed(text),
                Some(value) => Cow::Owned(text.replace("{}", value)),
            })
        }
    }
}

fn tables() -> impl Iterator<Item = &'static Advice> {
    core::ADVICE.iter().chain(files::ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_advice() {
        let keys = tensorferry_core::hints::ALL.iter().chain(tensorferry_files::hints::ALL);
        for key in keys {
            assert_eq!(tables().filter(|(known, _)| known == key).count(), 1, "{}", key.name());
        }
    }
}
