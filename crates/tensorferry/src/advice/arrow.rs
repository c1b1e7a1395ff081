//! Advice for the hint keys of `tensorferry_arrow`.

use tensorferry_arrow::hints;
use tensorferry_core::error::{Advice, covers};

pub(super) const ADVICE: &[Advice] = &[
    (hints::PAD_LISTS, "pad the lists to one length with the library that made them"),
    (hints::SPLIT_LISTS, "import fewer rows at a time"),
    (hints::DROP_NULLS, "drop such rows, or fill them with a value, with the library that made the column"),
    (hints::EXPORT_ROWS, "export a tensor with at least one axis: reshape(&[1])"),
    (hints::EXPORT_ROW_SIZE, "export a tensor with shorter rows: reshape it to one axis"),
    (hints::EXPORT_UNIQUE_NAMES, "give each column its own name"),
    (hints::EXPORT_HOST_COPY, "export a copy in host memory: to_host(), with the feature `cuda`"),
    (hints::EXPORT_DENSE_COPY, "export a dense copy: pack()"),
];

// A key without advice, or with two, does not compile.
const _: () = assert!(covers(&[ADVICE], hints::ALL));
