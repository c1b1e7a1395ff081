//! The writer of a file of tensors.
//!
//! A [`FileWriter`] gets the specs of all tensors at once, so that it can write headers and assign offsets before the first
//! byte arrives. The caller then begins each tensor and writes its bytes in pieces of any size, so that a tensor can be
//! written while it is still being copied from a GPU. Tensors may come in any order. [`FileWriter::finish`] checks that every
//! byte was written, and only then gives the file its name. A writer that is dropped before leaves nothing behind.
//!
//! The permissions of a replaced file are kept, and a file without write permission is not replaced. If the target is a
//! symbolic link, the link stays and the file that it points to is replaced. Other hard links keep the old file. The module
//! `atomic_file` describes how.

use super::atomic_file::AtomicFile;
use super::parallel::write_parallel;
use super::writeback::{WRITEBACK_INTERVAL_BYTES, Writeback};
use super::zip_output::{CancelOnDrop, ZipOutput};
use crate::errors::{invalid_argument, io_error, quoted};
use crate::format::FileFormat;
use crate::formats::{npy, npz, protobuf, safetensors};
use crate::hints;
use crate::options::WriteOptions;
use crate::spec::{TensorSpec, check_specs};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tensorferry_core::{Error, Result};
use zip::CompressionMethod;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};

/// The size from which a member gets zip's 64-bit fields.
const ZIP64_THRESHOLD_BYTES: u64 = 0xffff_0000;
/// The alignment of stored zip members.
const MEMBER_ALIGNMENT_BYTES: u16 = 64;

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    specs: Vec<TensorSpec>,
    sizes: Vec<u64>,
    begun: Vec<bool>,
    /// The index of the current tensor, and the number of its bytes that were written.
    current: Option<(usize, u64)>,
    has_failed: bool,
    options: WriteOptions,
    output: Output,
}

#[derive(Debug)]
enum Output {
    /// Every tensor has its offset in the file.
    Offsets { file: AtomicFile, offsets: Vec<u64>, writeback: Option<Writeback> },
    /// Fields are dropped in this order: the cancellation must precede the zip.
    Zip { cancel: CancelOnDrop, zip: Box<ZipWriter<ZipOutput>>, file: AtomicFile },
}

impl FileWriter {
    /// Begins a file for these tensors.
    ///
    /// # Errors
    /// When the format cannot hold them, or a system call fails.
    pub fn create(
        path: impl AsRef<Path>,
        format: FileFormat,
        specs: &[TensorSpec],
        options: WriteOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        let at_path = |error: Error| error.at(path.display());
        check_specs(specs).map_err(at_path)?;
        let sizes = specs.iter().map(TensorSpec::bytes).collect::<Result<Vec<u64>>>().map_err(at_path)?;
        let (header, offsets) = write_header(format, specs, &options).map_err(at_path)?;
        let file = AtomicFile::create(path)?;
        let fail = |error: io::Error| io_error(&path.display().to_string(), &error);
        // ext4 flushes a file that replaces another one, so early writeback helps even if the write is not durable.
        let writeback = (options.durable || file.replaces()).then(Writeback::default);
        let output = if format == FileFormat::Npz {
            let (zip_output, cancel) = ZipOutput::new(file.file().try_clone().map_err(fail)?, writeback);
            Output::Zip { cancel, zip: Box::new(ZipWriter::new(zip_output)), file }
        } else {
            write_parallel(file.file(), 0, &header, 1).map_err(fail)?;
            Output::Offsets { file, offsets, writeback }
        };
        Ok(Self {
            path: path.to_owned(),
            begun: vec![false; specs.len()],
            specs: specs.to_vec(),
            sizes,
            current: None,
            has_failed: false,
            options,
            output,
        })
    }

    fn fail(&mut self, error: io::Error) -> Error {
        self.has_failed = true;
        from_output_error(error, &self.path)
    }

    /// Checks that the current tensor is complete.
    fn check_complete(&self) -> Result<()> {
        match self.current {
            Some((index, written)) if written < self.sizes[index] => Err(invalid_argument(
                format!(
                    "{written} of {} bytes of tensor {} were written",
                    self.sizes[index],
                    quoted(&self.specs[index].name)
                ),
                hints::WRITE_TENSOR_SIZE,
            )),
            _ => Ok(()),
        }
    }

    /// Begins the tensor of this index. The previous tensor must be complete, and each tensor is begun once.
    ///
    /// # Errors
    /// When the previous tensor is incomplete, the index is out of range, or a system call fails.
    pub fn begin(&mut self, index: usize) -> Result<()> {
        self.check_complete()?;
        match self.begun.get(index) {
            Some(false) => {}
            Some(true) => {
                let name = quoted(&self.specs[index].name);
                return Err(invalid_argument(
                    format!("tensor {name} was begun before"),
                    hints::BEGIN_EACH_TENSOR_ONCE,
                ));
            }
            None => {
                return Err(invalid_argument(
                    format!("tensor index {index} is out of range for {} tensors", self.specs.len()),
                    hints::BEGIN_EACH_TENSOR_ONCE,
                ));
            }
        }
        if let Output::Zip { zip, .. } = &mut self.output {
            let spec = &self.specs[index];
            let header = npy::header::write_header(spec);
            let mut options = SimpleFileOptions::default()
                .large_file(self.sizes[index] >= ZIP64_THRESHOLD_BYTES - header.len() as u64)
                .unix_permissions(0o644)
                .compression_method(CompressionMethod::Stored);
            options = match self.options.compression {
                Some(level) => options
                    .compression_method(CompressionMethod::Deflated)
                    .compression_level(Some(i64::from(level.clamp(1, 9)))),
                None => options.with_alignment(MEMBER_ALIGNMENT_BYTES),
            };
            let started = zip.start_file(format!("{}.npy", spec.name), options).map_err(into_io_error);
            if let Err(error) = started.and_then(|()| zip.write_all(&header)) {
                return Err(self.fail(error));
            }
        }
        self.begun[index] = true;
        self.current = Some((index, 0));
        Ok(())
    }

    /// Appends bytes to the current tensor.
    ///
    /// # Errors
    /// When no tensor was begun, the bytes exceed its size, or a system call fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((index, written)) = self.current else {
            return Err(invalid_argument("no tensor was begun", hints::BEGIN_EACH_TENSOR_ONCE));
        };
        let end = written + bytes.len() as u64;
        if end > self.sizes[index] {
            self.has_failed = true;
            return Err(invalid_argument(
                format!(
                    "{end} bytes exceed the {} bytes of tensor {}",
                    self.sizes[index],
                    quoted(&self.specs[index].name)
                ),
                hints::WRITE_TENSOR_SIZE,
            ));
        }
        let result = match &mut self.output {
            Output::Offsets { file, offsets, writeback } => {
                let (file, threads) = (file.file(), self.options.threads);
                let mut offset = offsets[index] + written;
                bytes.chunks(WRITEBACK_INTERVAL_BYTES).try_for_each(|chunk| {
                    write_parallel(file, offset, chunk, threads)?;
                    if let Some(writeback) = writeback {
                        writeback.record_write(file, offset, chunk.len() as u64);
                    }
                    offset += chunk.len() as u64;
                    Ok(())
                })
            }
            Output::Zip { zip, .. } => zip.write_all(bytes),
        };
        match result {
            Ok(()) => {
                self.current = Some((index, end));
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Writes all bytes of the tensor of this index.
    ///
    /// # Errors
    /// As [`Self::begin`] and [`Self::write`].
    pub fn write_tensor(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        self.begin(index)?;
        self.write(bytes)?;
        self.check_complete()
    }

    /// Gives the file its name, if every tensor is complete.
    ///
    /// # Errors
    /// When a tensor is incomplete, an earlier call failed, or a system call fails. The target is then unchanged.
    pub fn finish(self) -> Result<()> {
        self.check_complete()?;
        if let Some(missing) = self.begun.iter().position(|begun| !begun) {
            return Err(invalid_argument(
                format!("tensor {} was never written", quoted(&self.specs[missing].name)),
                hints::WRITE_ALL_TENSORS,
            ));
        }
        if self.has_failed {
            return Err(invalid_argument("an earlier error left the file incomplete", hints::SAVE_AGAIN));
        }
        let Self { path, options, output, .. } = self;
        match output {
            Output::Offsets { file, .. } => file.commit(options.durable),
            Output::Zip { file, zip, cancel } => {
                zip.finish().map_err(|error| from_output_error(into_io_error(error), &path))?;
                drop(cancel);
                file.commit(options.durable)
            }
        }
    }
}

/// The header of a file, and the offsets of its tensors. Both are empty for .npz, whose members have their own headers.
fn write_header(
    format: FileFormat,
    specs: &[TensorSpec],
    options: &WriteOptions,
) -> Result<(Vec<u8>, Vec<u64>)> {
    let single = || match specs {
        [spec] => Ok(spec),
        _ => Err(invalid_argument(
            format!("{format} holds one tensor, and {} were given", specs.len()),
            hints::SAVE_AS_ARCHIVE,
        )),
    };
    let before_data = |header: Vec<u8>| {
        let offset = header.len() as u64;
        (header, vec![offset])
    };
    match format {
        FileFormat::Npy => Ok(before_data(npy::header::write_header(single()?))),
        FileFormat::TensorProto => {
            Ok(before_data(protobuf::encode::write_header(single()?, options.dialect)?))
        }
        FileFormat::Raw => {
            single()?;
            Ok(before_data(Vec::new()))
        }
        FileFormat::Safetensors => safetensors::write_header(specs, &options.metadata),
        FileFormat::Npz => {
            npz::check_written_names(specs)?;
            Ok((Vec::new(), Vec::new()))
        }
        FileFormat::SafetensorsIndex => {
            Err(invalid_argument("a safetensors index cannot hold tensors", hints::SAVE_AS_SAFETENSORS))
        }
    }
}

/// The zip library's error as an [`io::Error`], with errno where there is one.
fn into_io_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// An error from writing: the system's if it has an errno, otherwise the zip library's.
fn from_output_error(error: io::Error, path: &Path) -> Error {
    match error.raw_os_error() {
        Some(_) => io_error(&path.display().to_string(), &error),
        None => invalid_argument(error.to_string(), hints::SAVE_AS_SAFETENSORS).at(path.display()),
    }
}
