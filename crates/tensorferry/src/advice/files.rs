//! Advice for the hint keys of `tensorferry_files`.

use tensorferry_core::error::{Advice, covers};
use tensorferry_files::hints;

pub(super) const ADVICE: &[Advice] = &[
    (
        hints::RAISE_DECOMPRESSION_LIMIT,
        "if you trust the file, pass OpenOptions::max_decompressed_bytes the number of bytes that it may expand to",
    ),
    (hints::RAISE_FILE_SIZE_LIMIT, "raise the limit (ulimit -f), or save the tensors to several files"),
    (hints::NAME_FORMAT, "name it with OpenOptions::format; raw bytes also need a dtype and a shape"),
    (hints::NAME_FORMAT_OR_RENAME, "name the format {} with OpenOptions::format, or rename the file"),
    (hints::NAME_DTYPE, "name the type of the elements with OpenOptions::dtype"),
    (hints::NAME_DIALECT, "name the dialect with OpenOptions::dialect"),
    (hints::DESCRIBE_RAW_BYTES, "describe the bytes with OpenOptions::dtype and OpenOptions::shape"),
    (hints::MATCH_RAW_DTYPE, "pass OpenOptions::dtype the type that the file was written with"),
    (
        hints::MATCH_RAW_SHAPE,
        "pass OpenOptions::shape and OpenOptions::dtype those that the file was written with",
    ),
    (hints::LIST_TENSORS, "list the tensors with TensorFile::entries"),
    (hints::READ_INSTEAD_OF_MAPPING, "read it with FileEntry::read"),
];

// A key without advice, or with two, does not compile.
const _: () = assert!(covers(&[ADVICE], hints::ALL));
