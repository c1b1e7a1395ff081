//! Advice for the hint keys of `tensorferry_cuda`.

use tensorferry_core::error::{Advice, covers};
use tensorferry_cuda::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::REDUCE_BUFFERS, "free something first"),
    (hints::SHARE_OUTSIDE_CAPTURE, "share the tensor before the capture begins, or after it ends"),
    (hints::SPAWN_CHILD, "start the child with std::process::Command, which executes a new program"),
];

// A key without advice, or with two, does not compile.
const _: () = assert!(covers(&[ADVICE], hints::ALL));
