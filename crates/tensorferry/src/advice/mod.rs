//! Advice for Rust programs, for the hint keys whose advice depends on the front end.
//!
//! The keys of sparse tensors and of target frameworks are left out: this crate has neither.

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(any(feature = "cuda", feature = "share"))]
mod cuda;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "share")]
mod share;

use std::borrow::Cow;
use tensorferry_core::error::{Advice, Hint};
use tensorferry_core::hints;

/// The tables of the features that are on.
const TABLES: &[&[Advice]] = &[
    &[(hints::TAKE_REAL_PART, "cast it with Tensor::cast, which keeps the real part")],
    #[cfg(feature = "arrow")]
    arrow::ADVICE,
    #[cfg(any(feature = "cuda", feature = "share"))]
    cuda::ADVICE,
    #[cfg(feature = "files")]
    files::ADVICE,
    #[cfg(feature = "share")]
    share::ADVICE,
];

/// The advice of a hint, in terms of this crate.
pub(crate) fn of_hint(hint: &Hint) -> Option<Cow<'_, str>> {
    hint.advice(TABLES)
}
