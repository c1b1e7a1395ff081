//! Advice for Python users, by the hint keys of the crates below.

mod arrow;
mod core;
mod cuda;
mod files;
pub(crate) mod keys;
mod python;
mod share;

use std::borrow::Cow;
use tensorferry_core::error::{Advice, Error, Hint, covers};

// A key without advice, or with two, does not compile.
const _: () = assert!(covers(&[core::ADVICE, core::COPY_ADVICE], tensorferry_core::hints::ALL));
const _: () = assert!(covers(&[arrow::ADVICE], tensorferry_arrow::hints::ALL));
const _: () = assert!(covers(&[cuda::ADVICE], tensorferry_cuda::hints::ALL));
const _: () = assert!(covers(&[files::ADVICE], tensorferry_files::hints::ALL));
const _: () = assert!(covers(&[share::ADVICE], tensorferry_share::hints::ALL));
const _: () = assert!(covers(&[python::ADVICE], keys::ALL));

/// The message of an error: the fact, and a line with the hint.
pub(crate) fn full_text(error: &Error) -> String {
    match advice(error) {
        Some(advice) => format!("{}\nhint: {advice}", error.fact()),
        None => error.fact().to_owned(),
    }
}

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
    hint.advice(&[
        core::ADVICE,
        core::COPY_ADVICE,
        arrow::ADVICE,
        cuda::ADVICE,
        files::ADVICE,
        share::ADVICE,
        python::ADVICE,
    ])
}
