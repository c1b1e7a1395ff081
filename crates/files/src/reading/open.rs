//! Opening a file: detecting its format, and reading and validating its headers.
//!
//! Every check of a file happens here, before memory is allocated for a tensor. The sizes in a
//! [`FileEntry`](crate::FileEntry) are therefore of bytes that exist, or, for compressed data, of bytes that can exist. The
//! cost depends on the headers, not on the data. The file stays open, so that the validated file is the one that is read,
//! even if another takes its name.
//!
//! In a file of several tensors, those of unsupported types are listed as skipped, each with the reason. A file of one such
//! tensor is rejected.

use super::file_source::FileSource;
use super::tensor_file::TensorFile;
use crate::entry::FileContents;
use crate::format::FileFormat;
use crate::formats::detect::{SIGNATURE_BYTES, detect_format};
use crate::formats::{npy, npz, protobuf, raw, safetensors, safetensors_index};
use crate::options::OpenOptions;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tensorferry_core::Result;

/// Opens the file at `path`.
///
/// # Errors
/// - [`ErrorKind::Io`](tensorferry_core::ErrorKind::Io) when a system call fails.
/// - [`ErrorKind::InvalidFile`](tensorferry_core::ErrorKind::InvalidFile) when the file breaks the rules of its format.
/// - [`ErrorKind::UnsupportedDType`](tensorferry_core::ErrorKind::UnsupportedDType) when its one tensor has an unsupported
///   type.
/// - [`ErrorKind::InvalidArgument`](tensorferry_core::ErrorKind::InvalidArgument) when the options are incomplete.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<TensorFile> {
    let path = path.as_ref();
    open_source(FileSource::open(path)?, path, options).map_err(|error| error.at(path.display()))
}

/// As [`open`], for a file that is already open. `path` gives the extension, and the folder of the files of an index.
///
/// # Errors
/// As [`open`].
pub fn open_file(file: File, path: impl AsRef<Path>, options: &OpenOptions) -> Result<TensorFile> {
    let path = path.as_ref();
    open_source(FileSource::new(file, path)?, path, options).map_err(|error| error.at(path.display()))
}

fn open_source(source: FileSource, path: &Path, options: &OpenOptions) -> Result<TensorFile> {
    let source = Arc::new(source);
    let start = source.read_to_vec(0, source.size().min(SIGNATURE_BYTES) as usize)?;
    let is_described = options.dtype.is_some() && options.shape.is_some();
    let format = detect_format(options.format, is_described, path, &start, source.size())?;
    let mut sources = vec![source.clone()];
    let mut dialect = None;
    let single = |entry| FileContents { entries: vec![entry], ..FileContents::default() };
    let contents = match format {
        FileFormat::Npy => single(npy::header::read_entry(&source, options)?),
        FileFormat::Npz => npz::read_contents(&source, options)?,
        FileFormat::Safetensors => safetensors::read_contents(&source, 0, options)?,
        FileFormat::SafetensorsIndex => {
            let (contents, all_sources) = safetensors_index::read_contents(source, options)?;
            sources = all_sources;
            contents
        }
        FileFormat::TensorProto => {
            let (entry, found) = protobuf::tensor_proto::read_entry(&source, options)?;
            dialect = Some(found);
            single(entry)
        }
        FileFormat::Raw => single(raw::read_entry(&source, options)?),
    };
    Ok(TensorFile::new(path.to_owned(), format, dialect, contents, sources))
}
