//! Advice for the hint keys of `tensorferry_arrow`.

use super::Advice;
use tensorferry_arrow::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::PAD_LISTS, "pass pad= to ferry.arrow.to to pad them, or ragged=\"offsets\""),
    (hints::SPLIT_LISTS, "convert fewer rows at a time, or enable 64-bit types in JAX"),
    (
        hints::DROP_NULLS,
        "drop such rows first, as table.drop_null() of pyarrow and drop_nulls() of polars do",
    ),
    (hints::EXPORT_ROWS, "pass a tensor with at least one axis, such as x.reshape(1)"),
    (hints::EXPORT_ROW_SIZE, "export a tensor with shorter rows, such as x.reshape(-1)"),
    (hints::EXPORT_UNIQUE_NAMES, "give each column its own name; keys of other types are named by str(key)"),
    (
        hints::EXPORT_HOST_COPY,
        "export ferry.to(x, \"numpy\"), or pass it to a consumer of __arrow_c_device_array__",
    ),
    (hints::EXPORT_DENSE_COPY, "export a dense copy: ferry.to(x, framework, copy=True)"),
];
