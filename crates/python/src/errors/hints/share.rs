//! Advice for the hint keys of `tensorferry_share`.

use super::Advice;
use tensorferry_share::hints;

pub(super) const ADVICE: &[Advice] = &[
    (
        hints::KEEP_PUBLICATION,
        "keep the Ticket that publish() returned for as long as consumers may attach, or ask for a new one",
    ),
    (hints::PUBLISH_READ_ONLY, "publish it with writable=False, or publish a copy with copy=True"),
    (hints::PUBLISH_COPY, "publish a copy with copy=True, or publish it as writable"),
];
