//! Device memory as ranges of anonymous files (memfd), so that another process can map the same range.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

pub(crate) const PAGE_BYTES: usize = 4096;

/// Allocates consecutive ranges of one file. No range is used twice.
#[derive(Default)]
pub(crate) struct MemfdAllocator {
    file: Option<OwnedFd>,
    end: usize,
}

/// A range of a file that is mapped here.
#[derive(Clone, Debug)]
pub(crate) struct FileMapping {
    pub(crate) start: usize,
    /// Bytes, a multiple of the page size.
    pub(crate) length: usize,
    /// The file; valid if this process made it.
    pub(crate) file: RawFd,
    /// The offset of the range in the file.
    pub(crate) offset: usize,
}

impl MemfdAllocator {
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<FileMapping> {
        if self.file.is_none() {
            self.file = Some(create("testdriver")?);
        }
        let file = self.file.as_ref()?;
        let (offset, length) = (self.end, bytes.max(1).next_multiple_of(PAGE_BYTES));
        // SAFETY: the descriptor is open, and the file grows.
        if unsafe { libc::ftruncate(file.as_raw_fd(), (offset + length) as i64) } != 0 {
            return None;
        }
        self.end += length;
        map(file.as_raw_fd(), offset, length)
    }
}

impl FileMapping {
    pub(crate) fn fill(&self, pattern: u64) {
        let data: *mut u64 = ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: mapped, of whole pages, and never unmapped while it is ours.
        (0..self.length / 8).for_each(|index| unsafe { data.add(index).write(pattern) });
    }

    pub(crate) fn unmap(&self) {
        // SAFETY: mapped by us with this length; the caller of the driver vouches that nothing uses it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}

/// Creates an empty anonymous file.
pub(crate) fn create(name: &str) -> Option<OwnedFd> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a name that ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: just created, and nobody else's.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Maps a range of a file for reading and writing.
pub(crate) fn map(file: RawFd, offset: usize, length: usize) -> Option<FileMapping> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file, offset as i64) };
    if address == libc::MAP_FAILED {
        return None;
    }
    Some(FileMapping { start: address.expose_provenance(), length, file, offset })
}

/// Opens a file of another process, by its descriptor there.
pub(crate) fn open_in_process(process: u32, descriptor: i32) -> Option<File> {
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}")).ok()
}
