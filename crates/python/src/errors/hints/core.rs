//! Advice for the hint keys of `tensorferry_core`.

use super::Advice;
use tensorferry_core::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::FREE_MEMORY, "free something first, or convert a slice at a time"),
    (
        hints::REPORT_INVALID_TENSOR,
        "pass a plain copy of the tensor, and report this to the library that made it",
    ),
];
