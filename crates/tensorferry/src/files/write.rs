//! Files that are written.

use super::options::WriteOptions;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, dense_layout};
use std::path::Path;
use tensorferry_core::{ByteOrder, DType, Error as CoreError, ErrorKind};
use tensorferry_files::{FileFormat, hints};

/// A tensor that a [`FileWriter`] writes: its name, element type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorSpec {
    /// The name in the file.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The lengths of the dimensions.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// The description of a tensor.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[usize]) -> Self {
        Self { name: name.into(), dtype, shape: shape.to_vec() }
    }
}

/// Writes a file of tensors one by one. The file gets its name when it is complete; until then an older file stays.
///
/// ```
/// use tensorferry::files::{FileWriter, TensorFile, TensorSpec, WriteOptions};
/// use tensorferry::{DType, Tensor};
///
/// # let path = std::env::temp_dir().join(format!("tensorferry-writer-{}.npz", std::process::id()));
/// let specs = [TensorSpec::new("a", DType::Int32, &[2]), TensorSpec::new("b", DType::Int32, &[1])];
/// let mut writer = FileWriter::create(&path, &specs, WriteOptions::default())?;
/// writer.write("a", &Tensor::from_vec(vec![1i32, 2], &[2])?)?;
/// writer.write("b", &Tensor::from_vec(vec![3i32], &[1])?)?;
/// writer.finish()?;
/// assert_eq!(TensorFile::open(&path)?.entry("b")?.read()?.as_slice::<i32>()?, [3]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), tensorferry::Error>(())
/// ```
#[derive(Debug)]
pub struct FileWriter {
    writer: tensorferry_files::FileWriter,
    specs: Vec<TensorSpec>,
    /// Whether each tensor was written, or failed to be.
    written: Vec<bool>,
}

impl FileWriter {
    /// Begins a file for these tensors, in the format of the path's extension.
    ///
    /// # Errors
    /// When the extension is unknown or that of raw bytes, the format cannot hold the tensors or what the options request, or a
    /// system call fails. Raw bytes have neither names nor types nor shapes, and are written by [`create_as`](Self::create_as) only.
    pub fn create(path: impl AsRef<Path>, specs: &[TensorSpec], options: WriteOptions) -> Result<Self> {
        let path = path.as_ref();
        let format = FileFormat::from_path(path).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{}: no format has the extension of this path", path.display()),
                "use .safetensors, .npy or .npz, or name the format with create_as",
            )
        })?;
        if format == FileFormat::Raw {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{}: raw bytes keep neither names nor types nor shapes", path.display()),
                "use .safetensors, .npy or .npz, or request raw bytes with FileWriter::create_as and FileFormat::Raw",
            ));
        }
        Self::create_as(path, format, specs, options)
    }

    /// As [`create`](Self::create), in this format.
    ///
    /// # Errors
    /// When the format cannot hold the tensors or what the options request, or a system call fails.
    pub fn create_as(
        path: impl AsRef<Path>,
        format: FileFormat,
        specs: &[TensorSpec],
        options: WriteOptions,
    ) -> Result<Self> {
        options.check(format)?;
        let described = |spec: &TensorSpec| -> Result<_> {
            let layout = dense_layout(spec.dtype, &spec.shape)?;
            Ok(tensorferry_files::TensorSpec::new(&spec.name, spec.dtype, layout.shape()))
        };
        let described = specs.iter().map(described).collect::<Result<Vec<_>>>()?;
        let writer = tensorferry_files::FileWriter::create(path, format, &described, options.0)
            .map_err(Error::from_core)?;
        Ok(Self { writer, specs: specs.to_vec(), written: vec![false; specs.len()] })
    }

    /// Writes the tensor with this name. Its element type and shape are those of its spec; its strides are any.
    ///
    /// # Errors
    /// When the file has no such tensor, it was written before, it differs from its spec, or a system call fails.
    pub fn write(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let index = self.specs.iter().position(|spec| spec.name == name).ok_or_else(|| {
            let fact = format!("the file has no tensor {name:?}");
            Error::new(
                ErrorKind::InvalidArgument,
                fact,
                "name one of the specs that the writer was created with",
            )
        })?;
        let spec = &self.specs[index];
        if (spec.dtype, &spec.shape[..]) != (tensor.dtype(), tensor.shape()) {
            let fact = format!(
                "tensor {name:?} is {} {:?}, and its spec is {} {:?}",
                tensor.dtype(),
                tensor.shape(),
                spec.dtype,
                spec.shape
            );
            return Err(Error::from_core(
                CoreError::new(ErrorKind::InvalidArgument, fact).with_hint(hints::WRITE_TENSOR_SIZE),
            ));
        }
        if self.written[index] {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("tensor {name:?} was written before"),
                "write each tensor once",
            ));
        }
        let packed;
        let dense = if tensor.is_dense() && tensor.byte_order() == ByteOrder::Native {
            tensor
        } else {
            packed = tensor.pack()?;
            &packed
        };
        let bytes = dense.as_bytes()?;
        self.written[index] = true;
        self.writer.write_tensor(index, bytes).map_err(Error::from_core)
    }

    /// Gives the file its name, if every tensor was written.
    ///
    /// # Errors
    /// When a tensor is missing, an earlier call failed, or a system call fails. An older file is then unchanged.
    pub fn finish(self) -> Result<()> {
        self.writer.finish().map_err(Error::from_core)
    }
}

/// Writes tensors to a file, in the format of the path's extension. The file appears complete or not at all. Formats of one
/// tensor do not store its name.
///
/// # Errors
/// As [`FileWriter`].
pub fn save<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<()> {
    let tensors: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    let spec = |(name, tensor): &(&str, &Tensor)| TensorSpec::new(*name, tensor.dtype(), tensor.shape());
    let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
    let mut writer = FileWriter::create(path, &specs, WriteOptions::default())?;
    for (name, tensor) in tensors {
        writer.write(name, tensor)?;
    }
    writer.finish()
}
