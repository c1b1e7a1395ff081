//! Device memory as ranges of anonymous files (memfd), so that another process can map the same range.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

pub(crate) const PAGE_BYTES: usize = 4096;

/// Allocates consecutive ranges of one file. No range is used twice.
#[derive(Default)]
pub(crate) struct MemfdAllocator {
    file: Option<OwnedFd>,
    end: usize,
}

/// A range of a file that is mapped here until this is dropped.
#[derive(Debug)]
pub(crate) struct FileMapping {
    map: MmapRaw,
    /// The file; valid if this process made it.
    pub(crate) file: RawFd,
    /// The offset of the range in the file.
    pub(crate) offset: usize,
}

impl MemfdAllocator {
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<FileMapping> {
        if self.file.is_none() {
            self.file = Some(create("testdriver", 0)?);
        }
        let file = self.file.as_ref()?;
        let (offset, length) = (self.end, bytes.max(1).next_multiple_of(PAGE_BYTES));
        ftruncate(file, (offset + length) as u64).ok()?;
        self.end += length;
        map(file, offset, length)
    }
}

impl FileMapping {
    /// The address of the first byte.
    pub(crate) fn start(&self) -> usize {
        self.map.as_mut_ptr().expose_provenance()
    }

    pub(crate) fn fill(&self, pattern: u64) {
        let data = self.map.as_mut_ptr().cast::<u64>();
        for index in 0..self.map.len() / 8 {
            // SAFETY: `write` needs eight aligned, writable bytes. `map` maps whole pages for writing, of which the index
            // names a word. Memory of a device is accessed through addresses only, so no reference to the word exists.
            unsafe { data.add(index).write(pattern) };
        }
    }

    /// The first two words of the range, which stays mapped for good.
    pub(crate) fn leak_counters(self) -> &'static [AtomicU64; 2] {
        let words = self.map.as_mut_ptr().cast::<[AtomicU64; 2]>();
        std::mem::forget(self);
        // SAFETY: a reference needs memory that is valid and aligned for as long as it lives, and that changes through
        // atomic operations alone. The mapping is leaked and begins at a page. This process and others access the words
        // of such a page through this function.
        unsafe { &*words }
    }
}

/// Creates an anonymous file of this many zeros.
pub(crate) fn create(name: &str, bytes: usize) -> Option<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&file, bytes as u64).ok()?;
    Some(file)
}

/// Maps a range of whole pages of a file for reading and writing.
pub(crate) fn map(file: &impl AsRawFd, offset: usize, length: usize) -> Option<FileMapping> {
    let map = MmapOptions::new().offset(offset as u64).len(length).map_raw(file).ok()?;
    Some(FileMapping { map, file: file.as_raw_fd(), offset })
}

/// Opens a file of another process, by its descriptor there.
pub(crate) fn open_in_process(process: u32, descriptor: i32) -> Option<File> {
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}")).ok()
}
