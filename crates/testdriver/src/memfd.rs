//! Device memory as stretches of files without a name, so that another process can map the same stretch.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

pub(crate) const PAGE: usize = 4096;

/// A file that memory is taken from, one stretch after the other; none is used twice.
#[derive(Default)]
pub(crate) struct Backing {
    file: Option<OwnedFd>,
    end: usize,
}

/// A part of a file, mapped here.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) start: usize,
    /// Of whole pages.
    pub(crate) length: usize,
    /// The file, where it is ours, and where in it the stretch begins.
    pub(crate) file: RawFd,
    pub(crate) offset: usize,
}

impl Backing {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Stretch> {
        if self.file.is_none() {
            self.file = Some(make("testdriver")?);
        }
        let file = self.file.as_ref()?;
        let (offset, length) = (self.end, bytes.max(1).next_multiple_of(PAGE));
        // SAFETY: the descriptor is open, and the file grows.
        if unsafe { libc::ftruncate(file.as_raw_fd(), (offset + length) as i64) } != 0 {
            return None;
        }
        self.end += length;
        map(file.as_raw_fd(), offset, length)
    }
}

impl Stretch {
    pub(crate) fn fill(&self, pattern: u64) {
        let data: *mut u64 = ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: mapped, of whole pages, and never unmapped while it is ours.
        (0..self.length / 8).for_each(|at| unsafe { data.add(at).write(pattern) });
    }

    pub(crate) fn unmap(&self) {
        // SAFETY: mapped by us with this length; who asked for it vouches that nothing uses it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}

/// A file without a name, empty.
pub(crate) fn make(name: &str) -> Option<OwnedFd> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a name that ends with a zero byte.
    let made = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: just made, and nobody else's.
    (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })
}

/// Maps a part of a file for reading and writing.
pub(crate) fn map(file: RawFd, offset: usize, length: usize) -> Option<Stretch> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file, offset as i64) };
    if address == libc::MAP_FAILED {
        return None;
    }
    Some(Stretch { start: address.expose_provenance(), length, file, offset })
}

/// A file of another process's, by the number that it has there.
pub(crate) fn of_process(process: u32, number: i32) -> Option<File> {
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{number}")).ok()
}
