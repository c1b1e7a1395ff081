//! A regular file that is open for reading, by offset and from several threads.
//!
//! Every read names its offset (`pread`), so that threads share no file position. Every read is checked against the size
//! that the file had when it was opened. A file that was truncated since then causes an error, not a panic.
//!
//! Pipes and devices are rejected: a pipe would block, and a device has no size.

use crate::errors::{invalid_file, io_error};
use crate::hints;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// The size of one read. A chunk stays in the cache of its thread while it is hashed.
const CHUNK_BYTES: u64 = 1 << 20;
/// The smallest read that uses several threads. Below it one thread is as fast.
const PARALLEL_THRESHOLD_BYTES: u64 = 4 << 20;
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
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(invalid_file(format!(
                "{} bytes at byte {offset} extend past the end of the file at byte {}",
                out.len(),
                self.size
            )));
        }
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            // SAFETY: the memory is `rest`, which is ours to write for its whole length; the descriptor is open as long as
            // `self.file` lives. The offset is within the file and so fits.
            let count = unsafe {
                libc::pread(
                    self.file.as_raw_fd(),
                    rest.as_mut_ptr().cast(),
                    rest.len().min(MAX_PREAD_BYTES),
                    (offset + done as u64) as libc::off_t,
                )
            };
            match count {
                0 => return Err(truncated()),
                1.. => done += count as usize,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(io_error("cannot read the file", &error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads `count` bytes at `offset`. The check below keeps a hostile count from causing a huge allocation.
    pub(crate) fn read_to_vec(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        if (count as u64) > self.size {
            return Err(invalid_file(format!("the file has {} bytes, fewer than {count}", self.size)));
        }
        let mut bytes = Vec::with_capacity(count);
        self.read_at(offset, &mut bytes.spare_capacity_mut()[..count])?;
        // SAFETY: `read_at` has filled the first `count` bytes.
        unsafe { bytes.set_len(count) };
        Ok(bytes)
    }

    /// As [`Self::read_at`], with several threads for large reads. With `hash`, returns the CRC-32 state of the bytes.
    pub(crate) fn read_parallel(
        &self,
        offset: u64,
        out: &mut [MaybeUninit<u8>],
        threads: usize,
        hash: bool,
    ) -> Result<crc32fast::Hasher> {
        let total = out.len() as u64;
        if offset.checked_add(total).is_none_or(|end| end > self.size) {
            // Fails, with the message for a read past the end.
            self.read_at(offset, out)?;
        }
        let chunks = total.div_ceil(CHUNK_BYTES);
        let base = SharedBuffer(out.as_mut_ptr());
        let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
        let hashes: Vec<Mutex<crc32fast::Hasher>> =
            (0..if hash { chunks } else { 0 }).map(|_| Mutex::new(crc32fast::Hasher::new())).collect();
        let work = || {
            while let chunk = next.fetch_add(1, Ordering::Relaxed)
                && chunk < chunks
            {
                let start = chunk * CHUNK_BYTES;
                let count = CHUNK_BYTES.min(total - start) as usize;
                // SAFETY: the chunk lies in `out`, and no other thread has it: `next` returns each number once.
                let slice = unsafe { std::slice::from_raw_parts_mut(base.at(start as usize), count) };
                match self.read_at(offset + start, slice) {
                    Ok(()) if hash => {
                        // SAFETY: `read_at` has filled it.
                        let bytes = unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), count) };
                        if let Ok(mut hasher) = hashes[chunk as usize].lock() {
                            hasher.update(bytes);
                        }
                    }
                    Ok(()) => {}
                    Err(error) => {
                        if let Ok(mut slot) = failure.lock() {
                            *slot = Some(error);
                        }
                        next.store(chunks, Ordering::Relaxed);
                    }
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

fn truncated() -> Error {
    invalid_file("the file was truncated while it was open").with_hint(hints::REPLACE_INSTEAD_OF_OVERWRITING)
}

/// The address of a buffer whose disjoint chunks several threads write.
struct SharedBuffer(*mut MaybeUninit<u8>);

// SAFETY: only an address. Each thread writes through it to a chunk that no other thread has.
unsafe impl Sync for SharedBuffer {}

impl SharedBuffer {
    fn at(&self, offset: usize) -> *mut MaybeUninit<u8> {
        self.0.wrapping_add(offset)
    }
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
        // SAFETY: initialised bytes are bytes that may be uninitialised, and `read_at` writes only bytes that are initialised.
        let out = unsafe { &mut *(&raw mut out[..count] as *mut [MaybeUninit<u8>]) };
        self.source.as_ref().read_at(self.start + self.position, out).map_err(io::Error::other)?;
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
