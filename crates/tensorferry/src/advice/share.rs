//! Advice for the hint keys of `tensorferry_share`.

use tensorferry_core::error::{Advice, covers};
use tensorferry_share::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::KEEP_PUBLICATION, "keep the publication alive in the producer until consumers have attached it"),
    (hints::PUBLISH_READ_ONLY, "publish it for reading with publish, or publish a copy: pack()"),
    (hints::PUBLISH_COPY, "publish a copy in host memory: to_host(), with the feature `cuda`"),
];

// A key without advice, or with two, does not compile.
const _: () = assert!(covers(&[ADVICE], hints::ALL));
