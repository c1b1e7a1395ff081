//! Tensors in files: safetensors with their index files, npy, npz, TensorProto and raw bytes.
//!
//! [`TensorFile::open`] validates the headers of a file, in which nothing is trusted or executed. Its entries are then read
//! into memory, which is safe, or mapped, which is not:
//!
//! ```
//! use tensorferry::files::{TensorFile, save};
//! use tensorferry::Tensor;
//!
//! # let folder = std::env::temp_dir().join(format!("tensorferry-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! let path = folder.join("model.safetensors");
//! save(&path, [("weight", &Tensor::from_vec(vec![0.5f32; 6], &[2, 3])?)])?;
//!
//! let file = TensorFile::open(&path)?;
//! for entry in file.entries() {
//!     println!("{} {} {:?}", entry.name(), entry.dtype(), entry.shape());
//! }
//! let weight = file.entry("weight")?.read()?;
//! assert_eq!(weight.as_slice::<f32>()?, [0.5; 6]);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), tensorferry::Error>(())
//! ```

use crate::convert::threads;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::{Tensor, lengths};
use std::mem::MaybeUninit;
use std::path::Path;
use std::slice;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{ByteOrder, DType, Device, ErrorKind, Tensor as CoreTensor};
use tensorferry_files::hints;
pub use tensorferry_files::{Dialect, FileFormat, MapMode, OpenOptions, WriteOptions};

/// A file of tensors whose headers are valid.
#[derive(Debug)]
pub struct TensorFile(tensorferry_files::TensorFile);

impl TensorFile {
    /// Opens a file and validates its headers. The format is that of the contents and the name.
    ///
    /// # Errors
    /// When the file cannot be read, or violates its format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with options. Raw bytes need a format, an element type and a shape.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the options contradict the file.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        Ok(Self(tensorferry_files::open(path, options)?))
    }

    /// The format.
    pub fn format(&self) -> FileFormat {
        self.0.format()
    }

    /// The tensors, in the order of the file.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = FileEntry<'_>> {
        self.0.entries().iter().map(|entry| self.with_shape(entry))
    }

    /// The tensor with this name. The name is empty where the format has none, as in npy.
    ///
    /// # Errors
    /// When the file has no such tensor.
    pub fn entry(&self, name: &str) -> Result<FileEntry<'_>> {
        Ok(self.with_shape(self.0.entry(name)?))
    }

    fn with_shape<'a>(&'a self, entry: &'a tensorferry_files::FileEntry) -> FileEntry<'a> {
        // An entry has no negative lengths.
        let shape = entry.shape().iter().map(|&length| length as usize).collect();
        FileEntry { file: &self.0, entry, shape }
    }

    /// The names of what the file has beside readable tensors, such as arrays of Python objects, with the reasons.
    pub fn skipped(&self) -> impl ExactSizeIterator<Item = (&str, Error)> {
        self.0.skipped().iter().map(|(name, error)| (name.as_str(), Error::from(error.clone())))
    }

    /// The metadata of a safetensors file, as keys and values.
    pub fn metadata(&self) -> &[(String, String)] {
        self.0.metadata()
    }
}

/// One tensor of a file, not yet read.
#[derive(Clone, Debug)]
pub struct FileEntry<'a> {
    file: &'a tensorferry_files::TensorFile,
    entry: &'a tensorferry_files::FileEntry,
    shape: Vec<usize>,
}

impl<'a> FileEntry<'a> {
    /// The name in the file.
    pub fn name(&self) -> &'a str {
        self.entry.name()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.entry.dtype()
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The size in memory.
    pub fn bytes(&self) -> u64 {
        self.entry.bytes()
    }

    /// Whether the file has the bytes uncompressed, so that they can be mapped.
    pub fn can_map(&self) -> bool {
        self.entry.is_stored()
    }

    /// The description, for a [`FileWriter`].
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.name(), self.dtype(), &self.shape)
    }

    /// Reads the tensor into new memory. It has the strides and the byte order of the file.
    ///
    /// # Errors
    /// When the file cannot be read, contradicts its header or its checksum, or memory runs out.
    pub fn read(&self) -> Result<Tensor> {
        let bytes =
            usize::try_from(self.bytes()).map_err(|_| tensorferry_core::Error::out_of_memory(usize::MAX))?;
        let layout = self.entry.layout()?;
        let block = HostBlock::new(bytes)?;
        // SAFETY: the block is new, has this many bytes, and needs no values as `MaybeUninit`.
        let out = unsafe { slice::from_raw_parts_mut(block.data().cast::<MaybeUninit<u8>>(), bytes) };
        self.file.read_into(self.entry, out, threads())?;
        // SAFETY: `read_into` has filled the block. The layout of an entry is dense, in row-major or column-major order, and
        // takes the bytes of the entry.
        unsafe { Tensor::from_block(block, self.dtype(), layout, self.entry.order()) }
    }

    /// Maps the tensor: the system reads it from the file as it is used. With [`MapMode::ReadOnly`] the tensor cannot be
    /// written; with [`MapMode::CopyOnWrite`] writes change this tensor and not the file.
    ///
    /// ```
    /// # use tensorferry::files::{MapMode, TensorFile, save};
    /// # use tensorferry::Tensor;
    /// # let path = std::env::temp_dir().join(format!("tensorferry-map-{}.npy", std::process::id()));
    /// # save(&path, [("", &Tensor::from_vec(vec![1u8, 2], &[2])?)])?;
    /// let file = TensorFile::open(&path)?;
    /// // SAFETY: this program wrote the file, and nothing else knows its name.
    /// let tensor = unsafe { file.entry("")?.map(MapMode::ReadOnly)? };
    /// assert_eq!(tensor.as_slice::<u8>()?, [1, 2]);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor is compressed or encoded ([`can_map`](Self::can_map)), or a system call fails.
    ///
    /// # Safety
    /// While the result or a handle on its memory exists, nothing writes or truncates the file, in this process or another.
    /// To delete the file, or to replace it by another of its name, is allowed: the map keeps the old contents. [`save`] and
    /// [`FileWriter`] replace files.
    pub unsafe fn map(&self, mode: MapMode) -> Result<Tensor> {
        let mapped = self.file.map(self.entry, mode)?;
        let (data, layout) = (mapped.data(), self.entry.layout()?);
        // SAFETY: the mapping has the bytes of the entry, which are those of its layout, readable while `mapped` lives, and
        // writable where the mode says so.
        let tensor = unsafe {
            CoreTensor::new(
                data,
                self.dtype(),
                layout,
                Device::CPU,
                self.entry.order(),
                mode.access(),
                Memory::other(mapped),
            )?
        };
        // SAFETY: mapped bytes have values. Nothing writes or truncates the file, by the contract of this function. Only
        // copy-on-write maps are writable, and each has a mapping of its own, which nothing else uses.
        Ok(unsafe { Tensor::from_parts(tensor) })
    }
}

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
}

impl FileWriter {
    /// Begins a file for these tensors, in the format of the path's extension.
    ///
    /// # Errors
    /// When the extension is unknown, the format cannot hold the tensors, or a system call fails.
    pub fn create(path: impl AsRef<Path>, specs: &[TensorSpec], options: WriteOptions) -> Result<Self> {
        let path = path.as_ref();
        let format = FileFormat::from_path(path).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{}: no format has the extension of this path", path.display()),
                "use .safetensors, .npy or .npz, or name the format with create_as",
            )
        })?;
        Self::create_as(path, format, specs, options)
    }

    /// As [`create`](Self::create), in this format.
    ///
    /// # Errors
    /// When the format cannot hold the tensors, or a system call fails.
    pub fn create_as(
        path: impl AsRef<Path>,
        format: FileFormat,
        specs: &[TensorSpec],
        options: WriteOptions,
    ) -> Result<Self> {
        let described = |spec: &TensorSpec| -> Result<_> {
            Ok(tensorferry_files::TensorSpec::new(&spec.name, spec.dtype, &lengths(&spec.shape)?))
        };
        let described = specs.iter().map(described).collect::<Result<Vec<_>>>()?;
        let writer = tensorferry_files::FileWriter::create(path, format, &described, options)?;
        Ok(Self { writer, specs: specs.to_vec() })
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
            return Err(tensorferry_core::Error::new(ErrorKind::InvalidArgument, fact)
                .with_hint(hints::WRITE_TENSOR_SIZE)
                .into());
        }
        if tensor.is_dense() && tensor.byte_order() == ByteOrder::Native {
            return Ok(self.writer.write_tensor(index, tensor.as_bytes()?)?);
        }
        Ok(self.writer.write_tensor(index, tensor.pack()?.as_bytes()?)?)
    }

    /// Gives the file its name, if every tensor was written.
    ///
    /// # Errors
    /// When a tensor is missing, an earlier call failed, or a system call fails. An older file is then unchanged.
    pub fn finish(self) -> Result<()> {
        Ok(self.writer.finish()?)
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
