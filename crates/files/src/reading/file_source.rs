//! A regular file that is open for reading, by offset and from several threads.
//!
//! Every read names its offset (`pread`), so that threads share no file position. Every read is checked against the size
//! that the file had when it was opened. A file that was truncated since then causes an error, not a panic.
//!
//! Pipes and devices are rejected: a pipe would block, and a device has no size.

use crate::errors::{invalid_file, io_error};
use crate::hints;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::slice::ChunksMut;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::{Error, ErrorKind, Result, fallible, workers};

/// The size of one read. A chunk stays in the cache of its thread while it is hashed.
const CHUNK_BYTES: usize = 1 << 20;
/// The smallest read that uses several threads. Below it one thread is as fast.
const PARALLEL_THRESHOLD_BYTES: usize = 4 << 20;
/// The limit on one system call, below that of the kernel.
const MAX_PREAD_BYTES: usize = 1 << 30;

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// A regular file, its size when it was opened, and its path for messages.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: File,
    size: u64,
    path: PathBuf,
}

impl FileSource {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // O_NONBLOCK: opening a pipe would otherwise wait for a writer. It has no effect on regular files.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(path)
            .map_err(|error| io_error(&path.display().to_string(), &error))?;
        Self::new(file, path)
    }

    pub(crate) fn new(file: File, path: &Path) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| io_error(&path.display().to_string(), &error))?;
        if !metadata.is_file() {
            let errno = metadata.is_dir().then_some(libc::EISDIR);
            let found = if metadata.is_dir() { "a directory" } else { "not a regular file" };
            return Err(Error::new(ErrorKind::Io, format!("{} is {found}", path.display()))
                .with_errno(errno)
                .with_hint(hints::PASS_REGULAR_FILE));
        }
        Ok(Self { file, size: metadata.len(), path: path.to_owned() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when the file was opened.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns an error if the file was truncated since it was opened.
    pub(crate) fn check_not_truncated(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|error| io_error("cannot stat the file", &error))?;
        if metadata.len() < self.size { Err(truncated()) } else { Ok(()) }
    }

    /// Fills `out` with the bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        self.read_each(offset, out, |_| ())
    }

    /// As [`Self::read_at`], and passes the bytes to `on_read` in their order, each once.
    pub(crate) fn read_each(
        &self,
        offset: u64,
        out: &mut [MaybeUninit<u8>],
        mut on_read: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.fill(offset, out.len(), |done, at| {
            let end = out.len().min(done + MAX_PREAD_BYTES);
            let (filled, _) = pread(&self.file, &mut out[done..end], at)?;
            on_read(filled);
            Ok(filled.len())
        })
    }

    /// Fills initialised memory with the bytes at `offset`.
    fn read_exact(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.fill(offset, out.len(), |done, at| pread(&self.file, &mut out[done..], at))
    }

    /// Reads `count` bytes at `offset`. The check below keeps a hostile count from causing a huge allocation.
    pub(crate) fn read_to_vec(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        if (count as u64) > self.size {
            return Err(invalid_file(format!("the file has {} bytes, fewer than {count}", self.size)));
        }
        let mut bytes = Vec::new();
        fallible::try_reserve(&mut bytes, count)?;
        self.fill(offset, count, |_, at| pread(&self.file, spare_capacity(&mut bytes), at))?;
        // The allocator may have returned more memory than was requested.
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Calls `read` with the number of bytes that are done and the next offset, until `length` bytes at `offset` are read.
    fn fill(
        &self,
        offset: u64,
        length: usize,
        mut read: impl FnMut(usize, u64) -> rustix::io::Result<usize>,
    ) -> Result<()> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(invalid_file(format!(
                "{length} bytes at byte {offset} extend past the end of the file at byte {}",
                self.size
            )));
        }
        let mut done = 0;
        while done < length {
            match read(done, offset + done as u64) {
                Ok(0) => return Err(truncated()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error("cannot read the file", &error.into())),
            }
        }
        Ok(())
    }

    /// As [`Self::read_at`], with several threads for large reads. With `hash`, returns the CRC-32 state of the bytes.
    pub(crate) fn read_parallel(
        &self,
        offset: u64,
        out: &mut [MaybeUninit<u8>],
        threads: usize,
        hash: bool,
    ) -> Result<crc32fast::Hasher> {
        let total = out.len();
        if offset.checked_add(total as u64).is_none_or(|end| end > self.size) {
            // Fails, with the message for a read past the end.
            self.read_at(offset, out)?;
        }
        let count = if hash { total.div_ceil(CHUNK_BYTES) } else { 0 };
        let hashes: Vec<Mutex<crc32fast::Hasher>> =
            fallible::try_collect((0..count).map(|_| Ok::<_, Error>(Mutex::default())))?;
        let (chunks, failure) = (SharedChunks::new(out), Mutex::new(None));
        let work = || {
            while let Some((index, chunk)) = chunks.next() {
                let mut hasher = hashes.get(index).and_then(|hasher| hasher.lock().ok());
                let read = self.read_each(offset + (index * CHUNK_BYTES) as u64, chunk, |bytes| {
                    if let Some(hasher) = &mut hasher {
                        hasher.update(bytes);
                    }
                });
                if let Err(error) = read {
                    if let Ok(mut slot) = failure.lock() {
                        *slot = Some(error);
                    }
                    chunks.stop();
                }
            }
        };
        workers::run_parallel(if total < PARALLEL_THRESHOLD_BYTES { 1 } else { threads }, work);
        if let Some(error) = failure.into_inner().unwrap_or_default() {
            return Err(error);
        }
        let mut whole = crc32fast::Hasher::new();
        for hasher in hashes {
            whole.combine(&hasher.into_inner().unwrap_or_default());
        }
        Ok(whole)
    }
}

/// The chunks of a buffer, each of which one thread takes.
struct SharedChunks<'a>(Mutex<std::iter::Enumerate<ChunksMut<'a, MaybeUninit<u8>>>>);

impl<'a> SharedChunks<'a> {
    fn new(buffer: &'a mut [MaybeUninit<u8>]) -> Self {
        Self(Mutex::new(buffer.chunks_mut(CHUNK_BYTES).enumerate()))
    }

    /// The next chunk and its index; `None` when all are taken.
    fn next(&self) -> Option<(usize, &'a mut [MaybeUninit<u8>])> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Leaves no chunk to take.
    fn stop(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = [].chunks_mut(CHUNK_BYTES).enumerate();
    }
}

fn truncated() -> Error {
    invalid_file("the file was truncated while it was open").with_hint(hints::REPLACE_INSTEAD_OF_OVERWRITING)
}

/// A range of a source as [`io::Read`] and [`io::Seek`], for libraries.
#[derive(Clone, Debug)]
pub(crate) struct RangeReader<S> {
    source: S,
    start: u64,
    length: u64,
    position: u64,
}

impl<S: AsRef<FileSource>> RangeReader<S> {
    pub(crate) fn new(source: S, start: u64, length: u64) -> Self {
        Self { source, start, length, position: 0 }
    }
}

impl AsRef<FileSource> for FileSource {
    fn as_ref(&self) -> &FileSource {
        self
    }
}

impl<S: AsRef<FileSource>> io::Read for RangeReader<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.length.saturating_sub(self.position).min(out.len() as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        let offset = self.start + self.position;
        self.source.as_ref().read_exact(offset, &mut out[..count]).map_err(io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<S: AsRef<FileSource>> io::Seek for RangeReader<S> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            io::SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
