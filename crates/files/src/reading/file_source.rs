//! A file that is being read: never past its end, never through its position, and from several threads at once.
//!
//! Every read names its offset (`pread`), so that readers on several threads do not know of each other, and is checked
//! against the length that the file had when it was opened. A file that has become shorter since is an error and no panic.
//! Errors call the file "it": whoever knows what the caller calls it puts that in front.
//!
//! Only regular files are taken: a pipe would block, a device has no length.

use crate::fault::{bad, failed};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// Bytes that one thread reads at a time: small enough to be in its cache when it is hashed.
const PART: u64 = 1 << 20;
/// Below this, one thread is as quick as several.
const ALONE: u64 = 4 << 20;

/// A regular file, its length when it was opened, and its name for messages.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: File,
    length: u64,
    path: PathBuf,
}

impl FileSource {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Opening a pipe would otherwise wait for somebody to write; on a regular file the flag means nothing.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(path)
            .map_err(|error| failed(&path.display().to_string(), &error))?;
        Self::new(file, path)
    }

    pub(crate) fn new(file: File, path: &Path) -> Result<Self> {
        let facts = file.metadata().map_err(|error| failed(&path.display().to_string(), &error))?;
        if !facts.is_file() {
            let errno = facts.is_dir().then_some(libc::EISDIR);
            let what = if facts.is_dir() { "a folder" } else { "no regular file" };
            return Err(Error::new(ErrorKind::Io, format!("{} is {what}", path.display()))
                .with_errno(errno)
                .with_advice("pass the path of a file"));
        }
        Ok(Self { file, length: facts.len(), path: path.to_owned() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Says that the file has become shorter, if it has.
    pub(crate) fn check_length(&self) -> Result<()> {
        let now = self.file.metadata().map_err(|error| failed("it cannot be looked at", &error))?.len();
        if now < self.length { Err(self.shortened()) } else { Ok(()) }
    }

    fn shortened(&self) -> Error {
        bad("it has become shorter while it was open")
            .with_advice("whoever writes it must replace it, not overwrite it")
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(bad(format!("it ends at byte {}, before what it should hold", self.length)));
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
                    rest.len().min(1 << 30),
                    (offset + done as u64) as libc::off_t,
                )
            };
            match count {
                0 => return Err(self.shortened()),
                1.. => done += count as usize,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(failed("it cannot be read", &error));
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes from `offset` on, as many as `count`: the caller has compared it with the file's length.
    pub(crate) fn bytes(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        if (count as u64) > self.length {
            return Err(bad(format!("it is shorter than {count} bytes")));
        }
        let mut bytes = Vec::with_capacity(count);
        self.read(offset, &mut bytes.spare_capacity_mut()[..count])?;
        // SAFETY: `read` has filled the first `count` bytes.
        unsafe { bytes.set_len(count) };
        Ok(bytes)
    }

    /// As [`Self::read`], by several threads where there is enough to do. With `hash`, the CRC-32 of the bytes comes back.
    pub(crate) fn read_shared(
        &self,
        offset: u64,
        out: &mut [MaybeUninit<u8>],
        threads: usize,
        hash: bool,
    ) -> Result<crc32fast::Hasher> {
        let total = out.len() as u64;
        if offset.checked_add(total).is_none_or(|end| end > self.length) {
            self.read(offset, out)?;
        }
        let parts = total.div_ceil(PART);
        let base = Target(out.as_mut_ptr());
        let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
        let hashes: Vec<Mutex<crc32fast::Hasher>> =
            (0..if hash { parts } else { 0 }).map(|_| Mutex::new(crc32fast::Hasher::new())).collect();
        let work = || {
            while let part = next.fetch_add(1, Ordering::Relaxed)
                && part < parts
            {
                let start = part * PART;
                let count = PART.min(total - start) as usize;
                // SAFETY: part of `out`, and no other thread's: each number is handed out once.
                let piece = unsafe { std::slice::from_raw_parts_mut(base.at(start as usize), count) };
                match self.read(offset + start, piece) {
                    Ok(()) if hash => {
                        // SAFETY: `read` has filled it.
                        let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr().cast(), count) };
                        if let Ok(mut hasher) = hashes[part as usize].lock() {
                            hasher.update(bytes);
                        }
                    }
                    Ok(()) => {}
                    Err(error) => {
                        if let Ok(mut slot) = failure.lock() {
                            *slot = Some(error);
                        }
                        next.store(parts, Ordering::Relaxed);
                    }
                }
            }
        };
        workers::run_parallel(if total < ALONE { 1 } else { threads }, work);
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

/// Where parts go, for threads that each have their own.
struct Target(*mut MaybeUninit<u8>);

// SAFETY: only an address; whoever writes through it has a part that is nobody else's.
unsafe impl Sync for Target {}

impl Target {
    fn at(&self, offset: usize) -> *mut MaybeUninit<u8> {
        self.0.wrapping_add(offset)
    }
}

/// A part of a source, read from its beginning to its end or by seeking, as libraries want it.
#[derive(Clone, Debug)]
pub(crate) struct Part<S> {
    source: S,
    start: u64,
    length: u64,
    position: u64,
}

impl<S: AsRef<FileSource>> Part<S> {
    pub(crate) fn new(source: S, start: u64, length: u64) -> Self {
        Self { source, start, length, position: 0 }
    }
}

impl AsRef<FileSource> for FileSource {
    fn as_ref(&self) -> &FileSource {
        self
    }
}

impl<S: AsRef<FileSource>> io::Read for Part<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.length.saturating_sub(self.position).min(out.len() as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: initialised bytes are bytes that may be uninitialised, and `read` writes only bytes that are initialised.
        let out = unsafe { &mut *(&raw mut out[..count] as *mut [MaybeUninit<u8>]) };
        self.source.as_ref().read(self.start + self.position, out).map_err(io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<S: AsRef<FileSource>> io::Seek for Part<S> {
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
