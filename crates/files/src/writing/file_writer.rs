//! Writing files: first what is to come, then the bytes, then a name.
//!
//! A [`FileWriter`] is told all tensors at once, so that headers can be written and places given out before the first byte is
//! there. Then each is begun and handed over in pieces of any size, so that a tensor can be written while it is still on its
//! way from a GPU. Tensors may come in any order. [`FileWriter::finish`] checks that every byte promised has come; only then does
//! the file appear under its name, and until then the target is what it was. A writer that is dropped before leaves nothing.
//!
//! An existing file's permissions are kept; one that may not be written is not replaced. If the target is a symbolic link,
//! what it points to is replaced and the link stays. Other hard links to the old file keep the old one. How, and what the
//! system promises, is in `atomic.rs`.

use crate::atomic::Atomic;
use crate::dialect::Dialect;
use crate::entry::{self, TensorSpec};
use crate::fault::{failed, quoted, wrong};
use crate::format::FileFormat;
use crate::writeback::{STRETCH, Writeback};
use crate::{npy, npz, proto, safetensors};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tensorferry_core::{Error, Result, workers};
use zip::CompressionMethod;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};

/// How a file is to be written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// What safetensors are to say about themselves.
    pub metadata: Vec<(String, String)>,
    /// Deflates the members of a .npz, at this level from 1 to 9.
    pub compression: Option<u8>,
    /// Whose TensorProto it is to be.
    pub dialect: Dialect,
    /// The most threads that write at once. One by default: on ext4, which locks a file for each write, a second one showed no
    /// gain that could be told from the noise.
    pub threads: usize,
    /// Whether the bytes are to have reached the disk, and not only the system, before the file gets its name. Without, a
    /// process that ends in the middle still leaves the old file or none, and a machine that does may leave a part. (ext4
    /// begins to write a file to the disk when it replaces another, so that replacing costs some of it either way.)
    pub durable: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { metadata: Vec::new(), compression: None, dialect: Dialect::Onnx, threads: 1, durable: true }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    specs: Vec<TensorSpec>,
    sizes: Vec<u64>,
    begun: Vec<bool>,
    /// The tensor that is being written, and how much of it has come.
    now: Option<(usize, u64)>,
    broken: bool,
    options: WriteOptions,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// Every tensor has its place.
    Placed { file: Atomic, offsets: Vec<u64>, writeback: Option<Writeback> },
    /// The order is that in which they are dropped.
    Zip { cancel: CallOff, zip: Box<ZipWriter<Tap>>, file: Atomic },
}

impl FileWriter {
    /// Begins a file that is to hold these tensors.
    ///
    /// # Errors
    /// When the format cannot hold them, or the system refuses.
    pub fn create(
        path: impl AsRef<Path>,
        format: FileFormat,
        specs: &[TensorSpec],
        options: WriteOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        entry::check_specs(specs)?;
        let sizes = specs.iter().map(TensorSpec::bytes).collect::<Result<Vec<u64>>>()?;
        let single = || match specs {
            [spec] => Ok(spec),
            _ => Err(wrong(
                format!("a file of the format {format} holds one tensor, and there are {}", specs.len()),
                "save them as .npz or safetensors",
            )),
        };
        let (header, offsets) = match format {
            FileFormat::Npy => placed(npy::write(single()?)),
            FileFormat::TensorProto => placed(proto::write(single()?, options.dialect)?),
            FileFormat::Raw => {
                single()?;
                placed(Vec::new())
            }
            FileFormat::Safetensors => safetensors::write(specs, &options.metadata)?,
            FileFormat::Npz => {
                npz::check_specs(specs)?;
                (Vec::new(), Vec::new())
            }
            FileFormat::SafetensorsIndex => {
                return Err(wrong("tensors are not written into an index", "save them as safetensors"));
            }
        };
        let file = Atomic::create(path)?;
        let fail = |error: io::Error| failed(&path.display().to_string(), &error);
        // Where another file is replaced, ext4 has the new one written at once.
        let writeback = (options.durable || file.replaces()).then(Writeback::default);
        let body = if format == FileFormat::Npz {
            let called_off = Arc::new(AtomicBool::new(false));
            let clone = file.file().try_clone().map_err(fail)?;
            let tap = Tap { file: clone, at: 0, writeback, called_off: called_off.clone() };
            Body::Zip { cancel: CallOff(called_off), zip: Box::new(ZipWriter::new(tap)), file }
        } else {
            file.file().write_all_at(&header, 0).map_err(fail)?;
            Body::Placed { file, offsets, writeback }
        };
        Ok(Self {
            path: path.to_owned(),
            begun: vec![false; specs.len()],
            specs: specs.to_vec(),
            sizes,
            now: None,
            broken: false,
            options,
            body,
        })
    }

    fn fail(&mut self, error: io::Error) -> Error {
        self.broken = true;
        of_library(error, &self.path)
    }

    /// Checks that the tensor that was begun is complete.
    fn check_complete(&self) -> Result<()> {
        match self.now {
            Some((at, written)) if written < self.sizes[at] => Err(wrong(
                format!(
                    "of the tensor {} {written} bytes have come, and {} were promised",
                    quoted(&self.specs[at].name),
                    self.sizes[at]
                ),
                "write all of it",
            )),
            _ => Ok(()),
        }
    }

    /// Begins the tensor of this number, once the one before is complete. Each is begun once.
    ///
    /// # Errors
    /// When the one before is not complete, there is no such tensor, or the system refuses.
    pub fn begin(&mut self, number: usize) -> Result<()> {
        self.check_complete()?;
        match self.begun.get(number) {
            Some(false) => {}
            Some(true) => {
                let name = quoted(&self.specs[number].name);
                return Err(wrong(format!("the tensor {name} was begun before"), "begin each tensor once"));
            }
            None => {
                return Err(wrong(
                    format!("there is no tensor {number}: {} were announced", self.specs.len()),
                    "count from zero",
                ));
            }
        }
        if let Body::Zip { zip, .. } = &mut self.body {
            let spec = &self.specs[number];
            let header = npy::write(spec);
            let mut options = SimpleFileOptions::default()
                .large_file(self.sizes[number] >= 0xffff_0000 - header.len() as u64)
                .unix_permissions(0o644)
                .compression_method(CompressionMethod::Stored);
            options = match self.options.compression {
                Some(level) => options
                    .compression_method(CompressionMethod::Deflated)
                    .compression_level(Some(i64::from(level.clamp(1, 9)))),
                None => options.with_alignment(64),
            };
            let begun = zip.start_file(format!("{}.npy", spec.name), options).map_err(plain);
            if let Err(error) = begun.and_then(|()| zip.write_all(&header)) {
                return Err(self.fail(error));
            }
        }
        self.begun[number] = true;
        self.now = Some((number, 0));
        Ok(())
    }

    /// Appends to the tensor that was begun.
    ///
    /// # Errors
    /// When none was, more comes than was promised, or the system refuses.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((number, written)) = self.now else {
            return Err(wrong("no tensor was begun", "begin one"));
        };
        let end = written + bytes.len() as u64;
        if end > self.sizes[number] {
            self.broken = true;
            return Err(wrong(
                format!(
                    "of the tensor {} {end} bytes have come, and {} were promised",
                    quoted(&self.specs[number].name),
                    self.sizes[number]
                ),
                "write no more than its shape takes",
            ));
        }
        let done = match &mut self.body {
            Body::Placed { file, offsets, writeback } => {
                let (file, threads) = (file.file(), self.options.threads);
                let mut at = offsets[number] + written;
                bytes.chunks(STRETCH).try_for_each(|piece| {
                    write_shared(file, at, piece, threads)?;
                    if let Some(writeback) = writeback {
                        writeback.wrote(file, at, piece.len() as u64);
                    }
                    at += piece.len() as u64;
                    Ok(())
                })
            }
            Body::Zip { zip, .. } => zip.write_all(bytes),
        };
        match done {
            Ok(()) => {
                self.now = Some((number, end));
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Writes the tensor of this number as a whole.
    ///
    /// # Errors
    /// As [`Self::begin`] and [`Self::write`].
    pub fn put(&mut self, number: usize, bytes: &[u8]) -> Result<()> {
        self.begin(number)?;
        self.write(bytes)?;
        self.check_complete()
    }

    /// Gives the file its name, if every tensor is complete.
    ///
    /// # Errors
    /// When one is not, an error came before, or the system refuses. The target is then what it was.
    pub fn finish(self) -> Result<()> {
        self.check_complete()?;
        if let Some(missing) = self.begun.iter().position(|begun| !begun) {
            let name = quoted(&self.specs[missing].name);
            return Err(wrong(
                format!("the tensor {name} was announced and never begun"),
                "write all of them",
            ));
        }
        if self.broken {
            return Err(wrong("an earlier error has left the file incomplete", "write it again"));
        }
        let Self { path, options, body, .. } = self;
        match body {
            Body::Placed { file, .. } => file.commit(options.durable),
            Body::Zip { file, zip, cancel } => {
                zip.finish().map_err(|error| of_library(plain(error), &path))?;
                drop(cancel);
                file.commit(options.durable)
            }
        }
    }
}

/// A zip that is dropped writes its directory, and complains if it cannot: it is told before that nobody wants it.
#[derive(Debug)]
struct CallOff(Arc<AtomicBool>);

impl Drop for CallOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The library's error as the system's, where it is.
fn plain(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// An error that came through the zip library: the system's, or its own.
fn of_library(error: io::Error, path: &Path) -> Error {
    match error.raw_os_error() {
        Some(_) => failed(&path.display().to_string(), &error),
        None => wrong(error.to_string(), "save it as safetensors").at(path.display()),
    }
}

fn placed(header: Vec<u8>) -> (Vec<u8>, Vec<u64>) {
    let offset = header.len() as u64;
    (header, vec![offset])
}

/// Bytes that one thread writes at a time.
const PART: usize = 4 << 20;

/// Writes at an offset, by several threads where there is enough to do.
fn write_shared(file: &File, offset: u64, bytes: &[u8], threads: usize) -> io::Result<()> {
    let parts = bytes.len().div_ceil(PART);
    if parts < 2 || threads < 2 {
        return file.write_all_at(bytes, offset);
    }
    let (next, failure) = (AtomicUsize::new(0), std::sync::Mutex::new(None));
    workers::run_parallel(threads.min(parts), || {
        while let part = next.fetch_add(1, Ordering::Relaxed)
            && part < parts
        {
            let start = part * PART;
            let piece = &bytes[start..bytes.len().min(start + PART)];
            if let Err(error) = file.write_all_at(piece, offset + start as u64) {
                next.store(parts, Ordering::Relaxed);
                if let Ok(mut slot) = failure.lock() {
                    *slot = Some(error);
                }
            }
        }
    });
    match failure.into_inner().unwrap_or_default() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What a zip is written into: a file, until it is called off.
#[derive(Debug)]
struct Tap {
    file: File,
    at: u64,
    writeback: Option<Writeback>,
    called_off: Arc<AtomicBool>,
}

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut count = bytes.len();
        if !self.called_off.load(Ordering::Relaxed) {
            // After an error the zip is of no use to anybody.
            count = self.file.write_at(bytes, self.at).inspect_err(|error| {
                self.called_off.store(error.kind() != io::ErrorKind::Interrupted, Ordering::Relaxed)
            })?;
            if let Some(writeback) = &mut self.writeback {
                writeback.wrote(&self.file, self.at, count as u64);
            }
        }
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Tap {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
