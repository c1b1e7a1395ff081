//! Files that are read or mapped.

use super::options::OpenOptions;
use super::write::TensorSpec;
use crate::convert::threads;
use crate::error::{Error, Result};
use crate::memory::Memory;
#[cfg(feature = "share")]
use crate::share::over_block;
use crate::tensor::{Tensor, dense_layout_of_lengths};
use std::mem::MaybeUninit;
use std::path::Path;
use std::slice;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{DType, Device, Error as CoreError, Tensor as CoreTensor};
use tensorferry_files::{FileFormat, MapMode};
#[cfg(feature = "share")]
use tensorferry_share::ArenaBlock;

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
        if let (Some(dtype), Some(shape)) = (options.0.dtype, &options.0.shape) {
            dense_layout_of_lengths(dtype, shape)?;
        }
        Ok(Self(tensorferry_files::open(path, &options.0).map_err(Error::from_core)?))
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
        Ok(self.with_shape(self.0.entry(name).map_err(Error::from_core)?))
    }

    fn with_shape<'a>(&'a self, entry: &'a tensorferry_files::FileEntry) -> FileEntry<'a> {
        // An entry has no negative lengths.
        let shape = entry.shape().iter().map(|&length| length as usize).collect();
        FileEntry { file: &self.0, entry, shape }
    }

    /// The names of what the file has beside readable tensors, such as arrays of Python objects, with the reasons.
    pub fn skipped(&self) -> impl ExactSizeIterator<Item = (&str, Error)> {
        self.0.skipped().iter().map(|(name, error)| (name.as_str(), Error::from_core(error.clone())))
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

    /// The description, for a [`FileWriter`](super::FileWriter).
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.name(), self.dtype(), &self.shape)
    }

    /// Reads the tensor into new memory. It has the strides and the byte order of the file.
    ///
    /// # Errors
    /// When the file cannot be read, contradicts its header or its checksum, or memory runs out.
    pub fn read(&self) -> Result<Tensor> {
        let (bytes, layout) = (self.size()?, self.entry.layout().map_err(Error::from_core)?);
        let block = HostBlock::new(bytes).map_err(Error::from_core)?;
        // SAFETY: the block is new, has this many bytes, and needs no values as `MaybeUninit`.
        let out = unsafe { slice::from_raw_parts_mut(block.data().cast::<MaybeUninit<u8>>(), bytes) };
        self.file.read_into(self.entry, out, threads()).map_err(Error::from_core)?;
        // SAFETY: `read_into` has filled the block. The layout of an entry is dense, in row-major or column-major order, and
        // takes the bytes of the entry.
        unsafe { Tensor::from_block(block, self.dtype(), layout, self.entry.order()) }
    }

    /// As [`read`](Self::read), into new shared memory, from which [`publish`](crate::share::publish) shares the tensor without a copy.
    ///
    /// A tensor in the other byte order is published as a copy all the same.
    ///
    /// ```
    /// # use tensorferry::files::{TensorFile, save};
    /// # use tensorferry::share::{PublishOptions, publish};
    /// # use tensorferry::Tensor;
    /// # let path = std::env::temp_dir().join(format!("tensorferry-shared-{}.npy", std::process::id()));
    /// # save(&path, [("", &Tensor::from_vec(vec![1u8, 2], &[2])?)])?;
    /// let file = TensorFile::open(&path)?;
    /// let tensor = file.entry("")?.read_shared()?;
    /// let publication = publish(&tensor, &PublishOptions::new())?;
    /// assert_eq!(tensor.as_slice::<u8>()?, [1, 2]);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read), and when the system has no shared memory or no descriptor left.
    #[cfg(feature = "share")]
    pub fn read_shared(&self) -> Result<Tensor> {
        let (bytes, layout) = (self.size()?, self.entry.layout().map_err(Error::from_core)?);
        let block = ArenaBlock::new(bytes).map_err(Error::from_core)?;
        // SAFETY: the block is new and has this many bytes, only `block` refers to them, and `MaybeUninit` needs no values.
        let out = unsafe { slice::from_raw_parts_mut(block.data().cast::<MaybeUninit<u8>>(), bytes) };
        self.file.read_into(self.entry, out, threads()).map_err(Error::from_core)?;
        // SAFETY: as in `read`, for a block of shared memory.
        unsafe { over_block(block, self.dtype(), layout, self.entry.order()) }
    }

    /// The size in memory, in the type that Rust counts with.
    fn size(&self) -> Result<usize> {
        usize::try_from(self.bytes()).map_err(|_| Error::from_core(CoreError::out_of_memory(usize::MAX)))
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
    /// ```compile_fail,E0133
    /// # use tensorferry::files::{FileEntry, MapMode};
    /// fn map(entry: &FileEntry<'_>) -> tensorferry::Result<tensorferry::Tensor> {
    ///     entry.map(MapMode::ReadOnly)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the tensor is compressed or encoded ([`can_map`](Self::can_map)), or a system call fails.
    ///
    /// # Safety
    /// While the result or a handle on its memory exists, nothing writes or truncates the file, in this process or another.
    /// To delete the file, or to replace it by another of its name, is allowed: the map keeps the old contents. [`save`](super::save) and
    /// [`FileWriter`](super::FileWriter) replace files.
    pub unsafe fn map(&self, mode: MapMode) -> Result<Tensor> {
        let mapped = self.file.map(self.entry, mode).map_err(Error::from_core)?;
        let (data, layout) = (mapped.data(), self.entry.layout().map_err(Error::from_core)?);
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
            )
            .map_err(Error::from_core)?
        };
        // SAFETY: mapped bytes have values. Nothing writes or truncates the file, by the contract of this function. Only
        // copy-on-write maps are writable, and each has a mapping of its own, which nothing else uses.
        Ok(unsafe { Tensor::from_parts(tensor) })
    }
}
