//! The options of opening and writing a file.

use crate::error::{Error, Result};
use crate::tensor::lengths;
use tensorferry_core::{ByteOrder, DType, ErrorKind};
use tensorferry_files::{Dialect, FileFormat};

/// How a file is opened. The defaults detect the format.
///
/// ```
/// use tensorferry::DType;
/// use tensorferry::files::{FileFormat, OpenOptions, TensorFile};
///
/// # let path = std::env::temp_dir().join(format!("tensorferry-raw-{}.bin", std::process::id()));
/// std::fs::write(&path, [1, 0, 2, 0]).unwrap();
/// let options = OpenOptions::new().format(FileFormat::Raw).dtype(DType::Int16).shape(&[2])?;
/// let file = TensorFile::open_with(&path, &options)?;
/// assert_eq!(file.entry("")?.read()?.to_vec::<i16>()?, [1, 2]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), tensorferry::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions(pub(super) tensorferry_files::OpenOptions);

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The format, instead of that of the contents and the name.
    #[must_use]
    pub fn format(mut self, format: FileFormat) -> Self {
        self.0.format = Some(format);
        self
    }

    /// The element type of raw bytes, and of .npy files that do not name their type.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.0.dtype = Some(dtype);
        self
    }

    /// The shape of raw bytes.
    ///
    /// # Errors
    /// When a length overflows.
    pub fn shape(mut self, shape: &[usize]) -> Result<Self> {
        self.0.shape = Some(lengths(shape)?.to_vec());
        Ok(self)
    }

    /// The byte order of raw bytes, which is native by default.
    #[must_use]
    pub fn byte_order(mut self, order: ByteOrder) -> Self {
        self.0.order = order;
        self
    }

    /// The dialect of a TensorProto, instead of that of its contents.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.0.dialect = Some(dialect);
        self
    }

    /// The limit on the expanded size of compressed data. The default is 4 GiB, or a hundred times the file's size if that
    /// is more.
    #[must_use]
    pub fn max_decompressed_bytes(mut self, bytes: u64) -> Self {
        self.0.max_decompressed_bytes = Some(bytes);
        self
    }
}

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions(pub(super) tensorferry_files::WriteOptions);

impl WriteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The metadata of a safetensors file, as keys and values. Other formats store none, and refuse it.
    #[must_use]
    pub fn metadata(mut self, metadata: impl IntoIterator<Item = (String, String)>) -> Self {
        self.0.metadata = metadata.into_iter().collect();
        self
    }

    /// The deflate level of .npz members, from 1 to 9. By default they are not compressed, and can be mapped. Other formats are
    /// never compressed, and refuse a level.
    #[must_use]
    pub fn compression(mut self, level: u8) -> Self {
        self.0.compression = Some(level);
        self
    }

    /// The dialect of a TensorProto, which is ONNX's by default.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.0.dialect = dialect;
        self
    }

    /// Whether the bytes reach the disk before the file gets its name, which is the default. Without it, a killed process
    /// still leaves the old file or none, but a machine that loses power can leave an incomplete file.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.0.durable = durable;
        self
    }

    /// Checks that a format keeps what was requested.
    pub(super) fn check(&self, format: FileFormat) -> Result<()> {
        let refuse =
            |fact: String, advice: &'static str| Err(Error::new(ErrorKind::InvalidArgument, fact, advice));
        if let Some(level) = self.0.compression {
            if format != FileFormat::Npz {
                return refuse(
                    format!("{format} files are not compressed, and compression level {level} was requested"),
                    "leave out WriteOptions::compression, or write .npz",
                );
            }
            if !(1..=9).contains(&level) {
                return refuse(
                    format!("compression level {level} is not in the range from 1 to 9"),
                    "pass a level from 1, which is fast, to 9, which is small",
                );
            }
        }
        let entries = self.0.metadata.len();
        if entries > 0 && format != FileFormat::Safetensors {
            return refuse(
                format!("{format} files store no metadata, and {entries} keys were passed"),
                "leave out WriteOptions::metadata, or write .safetensors",
            );
        }
        Ok(())
    }
}
