//! The options of opening and writing a file.

use crate::errors::invalid_file;
use crate::format::FileFormat;
use crate::formats::protobuf::dialect::Dialect;
use crate::hints;
use tensorferry_core::{ByteOrder, DType, Result};

/// The smallest default of [`OpenOptions::max_decompressed_bytes`].
const DEFAULT_MAX_DECOMPRESSED_BYTES: u64 = 4 << 30;
/// The default limit, as a multiple of the file's size.
const DEFAULT_MAX_EXPANSION_RATIO: u64 = 100;

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The format; detected if `None`.
    pub format: Option<FileFormat>,
    /// The element type of raw bytes, and of .npy files that do not name their type.
    pub dtype: Option<DType>,
    /// The shape of raw bytes.
    pub shape: Option<Vec<i64>>,
    /// The byte order of raw bytes.
    pub order: ByteOrder,
    /// Whether raw bytes are column-major.
    pub fortran: bool,
    /// The dialect of a TensorProto; detected if `None`.
    pub dialect: Option<Dialect>,
    /// Whether tensors of a type that safetensors lacks are returned in the type that carries them.
    pub as_stored: bool,
    /// The limit on the expanded size of compressed data. The default is 4 GiB, or a hundred times the file's size if that
    /// is more.
    pub max_decompressed_bytes: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            format: None,
            dtype: None,
            shape: None,
            order: ByteOrder::Native,
            fortran: false,
            dialect: None,
            as_stored: false,
            max_decompressed_bytes: None,
        }
    }
}

impl OpenOptions {
    /// Rejects data that expands to more than the limit.
    pub(crate) fn check_decompressed_bytes(&self, bytes: u128, file_bytes: u64) -> Result<()> {
        let limit = self.max_decompressed_bytes.unwrap_or_else(|| {
            file_bytes.saturating_mul(DEFAULT_MAX_EXPANSION_RATIO).max(DEFAULT_MAX_DECOMPRESSED_BYTES)
        });
        if bytes > u128::from(limit) {
            return Err(invalid_file(format!(
                "the file of {file_bytes} bytes expands to {bytes} bytes, over the limit of {limit}"
            ))
            .with_hint(hints::RAISE_DECOMPRESSION_LIMIT));
        }
        Ok(())
    }
}

/// How a file is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Metadata of a safetensors file.
    pub metadata: Vec<(String, String)>,
    /// The deflate level of .npz members, from 1 to 9; `None` stores them uncompressed.
    pub compression: Option<u8>,
    /// The dialect of a TensorProto.
    pub dialect: Dialect,
    /// The limit on threads that write at once. The default is one: ext4 locks a file for each write, and a second thread
    /// showed no measurable gain.
    pub threads: usize,
    /// Whether the bytes reach the disk before the file gets its name. Without it, a killed process still leaves the old
    /// file or none, but a machine that loses power can leave an incomplete file. ext4 starts writing a file to the disk
    /// when it replaces another, so replacing pays some of the cost either way.
    pub durable: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { metadata: Vec::new(), compression: None, dialect: Dialect::Onnx, threads: 1, durable: true }
    }
}
