//! Advice for the hint keys of `tensorferry_arrow`.

use super::Advice;
use tensorferry_arrow::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::REPORT_INVALID_STRUCT, "report this to the library that made the object"),
    (hints::CHECK_PRODUCER, "see the message of the library that produces the stream"),
    (hints::CONVERT_COLUMN, "{}"),
    (hints::PAD_LISTS, "pass pad= to ferry.arrow.to to pad them, or ragged=\"offsets\""),
    (hints::SPLIT_LISTS, "convert fewer rows at a time, or enable 64-bit types in JAX"),
    (
        hints::DROP_NULLS,
        "drop such rows first, as table.drop_null() of pyarrow and drop_nulls() of polars do",
    ),
    (hints::MOVE_TO_HOST, "copy it to host memory with the library that made it"),
    (
        hints::COPY_TO_HOST,
        "copy it to host memory first, with the library that made it: on a GPU only columns of numbers without nulls are read",
    ),
    (hints::EXPORT_ROWS, "pass a tensor with at least one axis, such as x.reshape(1)"),
    (hints::EXPORT_ROW_SIZE, "export a tensor with shorter rows, such as x.reshape(-1)"),
    (hints::EXPORT_NAME_BYTES, "remove the zero byte from the name"),
    (hints::EXPORT_UNIQUE_NAMES, "give each column its own name; keys of other types are named by str(key)"),
    (hints::EXPORT_TYPE, "cast it first, or export its real and imaginary parts"),
    (hints::EXPORT_EQUAL_ROWS, "export tensors whose first axes have the same length"),
    (
        hints::EXPORT_HOST_COPY,
        "export ferry.to(x, \"numpy\"), or pass it to a consumer of __arrow_c_device_array__",
    ),
    (hints::EXPORT_DENSE_COPY, "export a dense copy: ferry.to(x, framework, copy=True)"),
    (hints::EXPORT_ONE_DEVICE, "move the columns to one device first"),
];
