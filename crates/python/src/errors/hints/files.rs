//! Advice for the hint keys of `tensorferry_files`.

use super::Advice;
use tensorferry_files::hints;

pub(super) const ADVICE: &[Advice] = &[
    (
        hints::RAISE_DECOMPRESSION_LIMIT,
        "if you trust the file, pass max_decompressed_bytes= with the number of bytes that it may expand to",
    ),
    (
        hints::RAISE_FILE_SIZE_LIMIT,
        "raise the limit (ulimit -f), or save to several files: a path that ends in .index.json",
    ),
    (hints::NAME_FORMAT, "pass format=; load raw bytes with load_raw, dtype= and shape="),
    (hints::NAME_FORMAT_OR_RENAME, "pass format=\"{}\", or rename the file"),
    (hints::NAME_DTYPE, "name the type, for example dtype=\"float8_e4m3fn\""),
    (hints::NAME_DIALECT, "pass dialect=\"onnx\" or dialect=\"tensorflow\""),
    (hints::DESCRIBE_RAW_BYTES, "pass dtype= and shape="),
    (hints::MATCH_RAW_DTYPE, "pass the dtype= that the file was written with"),
    (hints::MATCH_RAW_SHAPE, "pass the shape= and dtype= that the file was written with"),
    (hints::LIST_TENSORS, "list the tensors with inspect"),
    (hints::READ_INSTEAD_OF_MAPPING, "pass mmap=False"),
];
