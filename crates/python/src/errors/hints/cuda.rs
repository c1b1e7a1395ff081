//! Advice for the hint keys of `tensorferry_cuda`.

use super::Advice;
use tensorferry_cuda::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::REDUCE_BUFFERS, "free something first, or set TENSORFERRY_THREADS to fewer threads"),
    (
        hints::SHARE_OUTSIDE_CAPTURE,
        "share with JAX or TensorFlow before the capture begins, or after it ends",
    ),
    (hints::SPAWN_CHILD, "start the child with multiprocessing's \"spawn\" method"),
];
