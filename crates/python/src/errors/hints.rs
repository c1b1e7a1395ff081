//! Advice for Python users, by the hint keys of the crates below.

use std::borrow::Cow;
use tensorferry_core::error::{Error, Hint};

mod core;
mod row;

use row::Advice;

/// The advice of an error, in terms of Python's arguments and functions.
pub(crate) fn advice(error: &Error) -> Option<Cow<'_, str>> {
    let hint = error.hint()?;
    let advice = advice_of_hint(hint)?;
    let avoids_copy =
        matches!(hint, Hint::Key(key, _) if core::COPY_ADVICE.iter().any(|(known, _)| known == key));
    Some(if avoids_copy { format!("{}, or {advice}", core::ALLOW_COPY).into() } else { advice })
}

/// The advice of a hint on its own, as plans show it.
pub(crate) fn advice_of_hint(hint: &Hint) -> Option<Cow<'_, str>> {
    match hint {
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
    core::ADVICE.iter().chain(core::COPY_ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_advice() {
        let keys = tensorferry_core::hints::ALL.iter();
        for key in keys {
            assert_eq!(tables().filter(|(known, _)| known == key).count(), 1, "{}", key.name());
        }
    }
}
