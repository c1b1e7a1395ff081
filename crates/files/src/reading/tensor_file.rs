//! An open file of tensors, which maps, reads or streams them.

use super::checksum::{check_crc32, hash_member_header};
use super::file_source::FileSource;
use super::map::{MapMode, MappedTensor, map_whole_file};
use super::tensor_reader::TensorReader;
use crate::entry::{DataLocation, FileContents, FileEntry};
use crate::errors::{entry_of_another_file, invalid_argument, quoted};
use crate::format::FileFormat;
use crate::formats::protobuf::dialect::Dialect;
use crate::hints;
use memmap2::MmapRaw;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tensorferry_core::{Error, ErrorKind, Result};

/// A file whose headers were read and validated.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    format: FileFormat,
    dialect: Option<Dialect>,
    contents: FileContents,
    sources: Vec<Arc<FileSource>>,
    /// The mapping of each source, made when it is first needed.
    mappings: Vec<OnceLock<Arc<MmapRaw>>>,
}

impl TensorFile {
    pub(super) fn new(
        path: PathBuf,
        format: FileFormat,
        dialect: Option<Dialect>,
        contents: FileContents,
        sources: Vec<Arc<FileSource>>,
    ) -> Self {
        let mappings = sources.iter().map(|_| OnceLock::new()).collect();
        Self { path, format, dialect, contents, sources, mappings }
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format.
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// The dialect, if the file is a TensorProto.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// The tensors, in the order in which the file lists them.
    pub fn entries(&self) -> &[FileEntry] {
        &self.contents.entries
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// When the file has no such tensor, or the tensor was skipped; then with the reason.
    pub fn entry(&self, name: &str) -> Result<&FileEntry> {
        if let Some(entry) = self.entries().iter().find(|entry| entry.name() == name) {
            return Ok(entry);
        }
        let skipped = self.skipped().iter().find(|skipped| skipped.0 == name);
        Err(match skipped {
            Some((_, reason)) => reason.clone(),
            None => invalid_argument(
                format!("the file does not contain tensor {}", quoted(name)),
                hints::LIST_TENSORS,
            ),
        }
        .at(self.path.display()))
    }

    /// The names of what cannot be read as a tensor, with the reasons.
    pub fn skipped(&self) -> &[(String, Error)] {
        &self.contents.skipped
    }

    /// The metadata of the file, as keys and values. Only safetensors have metadata.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.contents.metadata
    }

    /// Maps a tensor into memory.
    ///
    /// # Errors
    /// When the tensor is not [stored](FileEntry::is_stored), or a system call fails.
    pub fn map(&self, entry: &FileEntry, mode: MapMode) -> Result<MappedTensor> {
        self.map_entry(entry, mode).map_err(|error| error.at(self.path.display()))
    }

    fn map_entry(&self, entry: &FileEntry, mode: MapMode) -> Result<MappedTensor> {
        let &DataLocation::Stored { file, offset, .. } = entry.location() else {
            return Err(Error::new(
                ErrorKind::CopyRequired,
                format!("tensor {} is compressed or encoded and cannot be mapped", quoted(entry.name())),
            )
            .with_hint(hints::READ_INSTEAD_OF_MAPPING));
        };
        let source = self.sources.get(file).ok_or_else(entry_of_another_file)?;
        if entry.bytes() == 0 {
            return Ok(MappedTensor::empty(mode));
        }
        if offset.checked_add(entry.bytes()).is_none_or(|end| end > source.size()) {
            return Err(entry_of_another_file());
        }
        source.check_not_truncated()?;
        match mode {
            MapMode::CopyOnWrite => MappedTensor::copy_on_write(source, offset, entry.bytes() as usize),
            MapMode::ReadOnly => {
                let mapping = match self.mappings[file].get() {
                    Some(mapping) => mapping,
                    None => {
                        let mapping = map_whole_file(source)?;
                        self.mappings[file].get_or_init(|| mapping)
                    }
                };
                MappedTensor::within(mapping, offset as usize, entry.bytes() as usize)
                    .ok_or_else(entry_of_another_file)
            }
        }
    }

    /// Reads a tensor into `out`, which has exactly its size, with at most `threads` threads.
    ///
    /// # Errors
    /// When the sizes differ, the file cannot be read, or its contents contradict its header. `out` is then partly filled.
    pub fn read_into(&self, entry: &FileEntry, out: &mut [MaybeUninit<u8>], threads: usize) -> Result<()> {
        self.read_entry(entry, out, threads).map_err(|error| error.at(self.path.display()))
    }

    fn read_entry(&self, entry: &FileEntry, out: &mut [MaybeUninit<u8>], threads: usize) -> Result<()> {
        if out.len() as u64 != entry.bytes() {
            return Err(invalid_argument(
                format!(
                    "tensor {} has {} bytes, and the buffer has {}",
                    quoted(entry.name()),
                    entry.bytes(),
                    out.len()
                ),
                hints::PASS_BUFFER_OF_TENSOR_SIZE,
            ));
        }
        match entry.location() {
            &DataLocation::Stored { file, offset, member } => {
                let source = self.sources.get(file).ok_or_else(entry_of_another_file)?;
                let data_hasher = source.read_parallel(offset, out, threads, member.is_some())?;
                if let Some(member) = member {
                    let mut hasher = hash_member_header(source, member, offset)?;
                    hasher.combine(&data_hasher);
                    check_crc32(hasher, member.crc32)?;
                }
                Ok(())
            }
            _ => TensorReader::new(&self.sources, entry)?.read(out),
        }
    }

    /// Fills `out` with the bytes of a stored tensor at `offset`. Several threads may call this at once.
    ///
    /// # Errors
    /// When the tensor is not [stored](FileEntry::is_stored), the range exceeds it, or the file cannot be read.
    pub fn read_at(&self, entry: &FileEntry, offset: u64, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let is_within = offset.checked_add(out.len() as u64).is_some_and(|end| end <= entry.bytes());
        let &DataLocation::Stored { file, offset: start, .. } = entry.location() else {
            return Err(invalid_argument(
                format!(
                    "tensor {} is compressed or encoded and can only be read from its start",
                    quoted(entry.name())
                ),
                hints::READ_AS_STREAM,
            ));
        };
        if !is_within {
            return Err(invalid_argument(
                format!(
                    "{} bytes at byte {offset} extend past the end of tensor {} of {} bytes",
                    out.len(),
                    quoted(entry.name()),
                    entry.bytes()
                ),
                hints::READ_WITHIN_TENSOR,
            ));
        }
        let source = self.sources.get(file).ok_or_else(entry_of_another_file)?;
        source.read_at(start + offset, out).map_err(|error| error.at(self.path.display()))
    }

    /// A reader of the tensor's bytes, from the first to the last.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stream(&self, entry: &FileEntry) -> Result<TensorReader> {
        TensorReader::new(&self.sources, entry).map_err(|error| error.at(self.path.display()))
    }
}
