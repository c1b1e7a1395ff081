//! Advice for the hint keys of `tensorferry_arrow`.

use super::Advice;
use tensorferry_arrow::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::REPORT_INVALID_STRUCT, "report this to the library that made the object"),
    (hints::CHECK_PRODUCER, "see the message of the library that produces the stream"),
    (hints::CONVERT_COLUMN, "{}"),
];
