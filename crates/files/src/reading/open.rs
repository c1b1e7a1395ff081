//! Opening a file: its headers are read and checked, its tensors are listed, its data is left where it is.
//!
//! Everything that can be wrong with a file is found here, before memory is taken for a tensor: sizes in an [`FileEntry`] are of
//! bytes that are there (or, compressed, of bytes that can be). What opening costs depends on the headers and not on the
//! data. The file stays open, so that what was checked is what is read, even if another takes its name.
//!
//! Tensors of types that tensorferry does not carry do not spoil a file of several: they are listed apart, each with the
//! reason. A file of one tensor is refused with that reason.

use crate::dialect::Dialect;
use crate::entry::{FileEntry, Place};
use crate::fault::{bad, quoted, wrong};
use crate::format::{self, FileFormat};
use crate::inflate::check;
use crate::map::{self, MapMode, MappedTensor};
use crate::source::FileSource;
use crate::stream::{TensorReader, foreign, hash_header};
use crate::{index, npy, npz, proto, raw, safetensors};
use memmap2::MmapRaw;
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Result};

/// What the caller knows about a file, or wants of it.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Its format; found out if not given.
    pub format: Option<FileFormat>,
    /// The element type, of raw bytes, and of .npy files whose type has no name.
    pub dtype: Option<DType>,
    /// The shape of raw bytes.
    pub shape: Option<Vec<i64>>,
    /// The byte order of raw bytes.
    pub order: ByteOrder,
    /// Whether raw bytes have the first index running fastest.
    pub fortran: bool,
    /// Whose TensorProto it is; found out if not given.
    pub dialect: Option<Dialect>,
    /// Whether safetensors that carry a type which the format lacks are given as they are stored.
    pub as_stored: bool,
    /// The most bytes that compressed data may become. By default 4 GiB, or a hundred times the file's size if that is more.
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
    /// Refuses data that becomes more than the caller allows.
    pub(crate) fn check_inflated(&self, bytes: u128, length: u64) -> Result<()> {
        let most = self.max_decompressed_bytes.unwrap_or_else(|| length.saturating_mul(100).max(4 << 30));
        if bytes > u128::from(most) {
            return Err(bad(format!(
                "its {length} bytes declare to become {bytes}, which is more than {most}"
            ))
            .with_advice(
                "if you trust the file, pass max_decompressed_bytes= with the bytes that it may become",
            ));
        }
        Ok(())
    }
}

/// What a reader finds in a file.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) entries: Vec<FileEntry>,
    pub(crate) skipped: Vec<(String, Error)>,
    pub(crate) metadata: Vec<(String, String)>,
}

/// A file whose headers have been read and found right.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    format: FileFormat,
    dialect: Option<Dialect>,
    found: Found,
    sources: Vec<Arc<FileSource>>,
    maps: Vec<OnceLock<Arc<MmapRaw>>>,
}

/// Opens the file at `path`.
///
/// # Errors
/// [`ErrorKind::Io`] when the system refuses; [`ErrorKind::InvalidFile`] when the file breaks the rules of its format;
/// [`ErrorKind::UnsupportedDType`] when its one tensor is of a type that tensorferry does not carry;
/// [`ErrorKind::InvalidArgument`] when the options do not say enough.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<TensorFile> {
    let path = path.as_ref();
    opened(FileSource::open(path)?, path, options).map_err(|error| error.at(path.display()))
}

/// As [`open`], for a file that is open already; `path` tells its format, and where the files of an index are.
///
/// # Errors
/// As [`open`].
pub fn open_file(file: File, path: impl AsRef<Path>, options: &OpenOptions) -> Result<TensorFile> {
    let path = path.as_ref();
    opened(FileSource::new(file, path)?, path, options).map_err(|error| error.at(path.display()))
}

fn opened(source: FileSource, path: &Path, options: &OpenOptions) -> Result<TensorFile> {
    let source = Arc::new(source);
    let start = source.bytes(0, source.length().min(64) as usize)?;
    let described = options.dtype.is_some() && options.shape.is_some();
    let format = format::recognise(options.format, described, path, &start, source.length())?;
    let mut sources = vec![source.clone()];
    let mut dialect = None;
    let one = |entry| Found { entries: vec![entry], ..Found::default() };
    let found = match format {
        FileFormat::Npy => one(npy::open(&source, options)?),
        FileFormat::Npz => npz::open(&source, options)?,
        FileFormat::Safetensors => safetensors::open(&source, 0, options)?,
        FileFormat::SafetensorsIndex => {
            let (found, all) = index::open(source, options)?;
            sources = all;
            found
        }
        FileFormat::TensorProto => {
            let (entry, whose) = proto::open(&source, options)?;
            dialect = Some(whose);
            one(entry)
        }
        FileFormat::Raw => one(raw::open(&source, options)?),
    };
    let maps = sources.iter().map(|_| OnceLock::new()).collect();
    Ok(TensorFile { path: path.to_owned(), format, dialect, found, sources, maps })
}

impl TensorFile {
    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// Whose TensorProto it is, if it is one.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Its tensors, in the order of the file's own list.
    pub fn entries(&self) -> &[FileEntry] {
        &self.found.entries
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// When there is none, or it was skipped, with the reason.
    pub fn entry(&self, name: &str) -> Result<&FileEntry> {
        if let Some(entry) = self.entries().iter().find(|entry| entry.name() == name) {
            return Ok(entry);
        }
        let skipped = self.skipped().iter().find(|skipped| skipped.0 == name);
        Err(match skipped {
            Some((_, why)) => why.clone(),
            None => {
                wrong(format!("there is no tensor {} in it", quoted(name)), "list what there is with inspect")
            }
        }
        .at(self.path.display()))
    }

    /// What is in it and cannot be read as a tensor: names, and why.
    pub fn skipped(&self) -> &[(String, Error)] {
        &self.found.skipped
    }

    /// What the file says about itself, as names and texts. Only safetensors do.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.found.metadata
    }

    /// Maps a tensor into memory.
    ///
    /// # Errors
    /// When its bytes do not lie in the file as they are ([`FileEntry::is_stored`]), or the system refuses.
    pub fn map(&self, entry: &FileEntry, kind: MapMode) -> Result<MappedTensor> {
        self.mapped(entry, kind).map_err(|error| error.at(self.path.display()))
    }

    fn mapped(&self, entry: &FileEntry, kind: MapMode) -> Result<MappedTensor> {
        let Place::Stored { file, offset, .. } = entry.place else {
            return Err(Error::new(
                ErrorKind::CopyRequired,
                format!("the tensor {} is compressed or encoded, and cannot be mapped", quoted(entry.name())),
            )
            .with_advice("read it"));
        };
        let source = self.sources.get(file).ok_or_else(foreign)?;
        if entry.bytes() == 0 {
            return Ok(MappedTensor::empty(kind));
        }
        if offset.checked_add(entry.bytes()).is_none_or(|end| end > source.length()) {
            return Err(foreign());
        }
        source.check_length()?;
        match kind {
            MapMode::CopyOnWrite => MappedTensor::own(source, offset, entry.bytes() as usize),
            MapMode::ReadOnly => {
                let whole = match self.maps[file].get() {
                    Some(whole) => whole,
                    None => {
                        let whole = map::whole(source)?;
                        self.maps[file].get_or_init(|| whole)
                    }
                };
                MappedTensor::shared(whole, offset as usize, entry.bytes() as usize).ok_or_else(foreign)
            }
        }
    }

    /// Fills `out`, which is exactly as large as the tensor, on at most so many threads.
    ///
    /// # Errors
    /// When the size is another, the file cannot be read, or what is read is not what the file declares. `out` is then
    /// filled in part.
    pub fn read_into(&self, entry: &FileEntry, out: &mut [MaybeUninit<u8>], threads: usize) -> Result<()> {
        self.fill(entry, out, threads).map_err(|error| error.at(self.path.display()))
    }

    fn fill(&self, entry: &FileEntry, out: &mut [MaybeUninit<u8>], threads: usize) -> Result<()> {
        if out.len() as u64 != entry.bytes() {
            return Err(wrong(
                format!(
                    "the tensor {} has {} bytes, and there is room for {}",
                    quoted(entry.name()),
                    entry.bytes(),
                    out.len()
                ),
                "pass memory of the tensor's size",
            ));
        }
        match entry.place {
            Place::Stored { file, offset, member } => {
                let source = self.sources.get(file).ok_or_else(foreign)?;
                let hasher = source.read_shared(offset, out, threads, member.is_some())?;
                if let Some(member) = member {
                    let mut whole = hash_header(source, member, offset)?;
                    whole.combine(&hasher);
                    check(whole, member.crc)?;
                }
                Ok(())
            }
            _ => TensorReader::new(&self.sources, entry)?.read(out),
        }
    }

    /// Fills `out` with the bytes of a stored tensor from `offset` on; from any thread.
    ///
    /// # Errors
    /// When the tensor is not [`FileEntry::is_stored`], has not as many bytes, or the file cannot be read.
    pub fn read_at(&self, entry: &FileEntry, offset: u64, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let within = offset.checked_add(out.len() as u64).is_some_and(|end| end <= entry.bytes());
        let Place::Stored { file, offset: start, .. } = entry.place else {
            return Err(wrong(
                format!(
                    "the tensor {} is compressed or encoded, and can be read only from its front",
                    quoted(entry.name())
                ),
                "read it as a stream",
            ));
        };
        if !within {
            return Err(wrong(
                format!("the tensor {} has {} bytes", quoted(entry.name()), entry.bytes()),
                "ask for no more than there are",
            ));
        }
        let source = self.sources.get(file).ok_or_else(foreign)?;
        source.read(start + offset, out).map_err(|error| error.at(self.path.display()))
    }

    /// The tensor's bytes from the first to the last, piece by piece.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stream(&self, entry: &FileEntry) -> Result<TensorReader> {
        TensorReader::new(&self.sources, entry).map_err(|error| error.at(self.path.display()))
    }
}
