//! Memory apart from its address (CUDA's virtual memory management): a handle is a file without a name, and mapping it is
//! mapping that file.

use crate::memfd;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// What sizes must be a multiple of.
pub(crate) const GRANULARITY: usize = 2 << 20;
/// What a file is called that holds such memory; the true number of its device follows.
const NAME: &str = "testdriver-physical-";

pub(crate) struct Handle {
    file: OwnedFd,
    pub(crate) bytes: usize,
    /// The true number of its device.
    pub(crate) device: usize,
    pub(crate) exportable: bool,
    own: bool,
    references: usize,
}

pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) handle: u64,
}

#[derive(Default)]
pub(crate) struct Physical {
    handles: HashMap<u64, Handle>,
    reserved: BTreeMap<usize, usize>,
    mappings: BTreeMap<usize, Mapping>,
    next: u64,
}

impl Physical {
    pub(crate) fn create(&mut self, bytes: usize, device: usize, exportable: bool) -> Option<u64> {
        let file = memfd::make(&format!("{NAME}{device}"))?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } != 0 {
            return None;
        }
        Some(self.keep(Handle { file, bytes, device, exportable, own: true, references: 1 }))
    }

    fn keep(&mut self, handle: Handle) -> u64 {
        self.next += 1;
        self.handles.insert(self.next, handle);
        self.next
    }

    /// Memory of a descriptor that [`Physical::export`] made, here or in another process.
    pub(crate) fn import(&mut self, descriptor: RawFd) -> Option<u64> {
        let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
        let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(NAME)?;
        let device = name.split(' ').next()?.parse().ok()?;
        let file = duplicate(descriptor)?;
        let bytes = fs::metadata(format!("/proc/self/fd/{descriptor}")).ok()?.len() as usize;
        Some(self.keep(Handle { file, bytes, device, exportable: true, own: false, references: 1 }))
    }

    pub(crate) fn export(&self, handle: u64) -> Option<OwnedFd> {
        let handle = self.handles.get(&handle).filter(|handle| handle.exportable)?;
        duplicate(handle.file.as_raw_fd())
    }

    pub(crate) fn handle(&self, handle: u64) -> Option<&Handle> {
        self.handles.get(&handle).filter(|handle| handle.references > 0)
    }

    pub(crate) fn retain(&mut self, address: usize) -> Option<u64> {
        let number = self.mapping(address)?.handle;
        self.handles.get_mut(&number)?.references += 1;
        Some(number)
    }

    pub(crate) fn release(&mut self, handle: u64) -> bool {
        let Some(found) = self.handles.get_mut(&handle).filter(|handle| handle.references > 0) else {
            return false;
        };
        found.references -= 1;
        self.sweep(handle);
        true
    }

    /// Memory is gone with its last handle and its last mapping.
    fn sweep(&mut self, handle: u64) {
        let mapped = self.mappings.values().any(|mapping| mapping.handle == handle);
        if !mapped && self.handles.get(&handle).is_some_and(|handle| handle.references == 0) {
            self.handles.remove(&handle);
        }
    }

    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let start = address.expose_provenance();
        self.reserved.insert(start, bytes);
        Some(start)
    }

    /// Refused while something is mapped in it.
    pub(crate) fn unreserve(&mut self, start: usize, bytes: usize) -> bool {
        if self.reserved.get(&start) != Some(&bytes)
            || self.mappings.range(start..start + bytes).next().is_some()
        {
            return false;
        }
        self.reserved.remove(&start);
        // SAFETY: reserved by us with this length, and nothing is mapped in it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), bytes) };
        true
    }

    /// The reservation in which an address lies.
    pub(crate) fn range(&self, address: usize) -> Option<(usize, usize)> {
        let (&start, &bytes) = self.reserved.range(..=address).next_back()?;
        (address < start + bytes).then_some((start, bytes))
    }

    pub(crate) fn map(&mut self, start: usize, bytes: usize, handle: u64) -> bool {
        let Some(found) = self.handle(handle) else { return false };
        let Some((first, length)) = self.range(start) else { return false };
        let taken = self.mappings.range(..start + bytes).next_back();
        let taken = taken.is_some_and(|(other, mapping)| other + mapping.bytes > start);
        if taken
            || bytes == 0
            || !bytes.is_multiple_of(GRANULARITY)
            || bytes > found.bytes
            || start + bytes > first + length
        {
            return false;
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: inside address space that was reserved for this, where nothing is mapped.
        let mapped = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, found.file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        self.mappings.insert(start, Mapping { start, bytes, handle });
        true
    }

    pub(crate) fn unmap(&mut self, start: usize, bytes: usize) -> bool {
        let Some(mapping) = self.mappings.get(&start).filter(|mapping| mapping.bytes == bytes) else {
            return false;
        };
        let handle = mapping.handle;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: exactly the mapping, in whose place comes address space that nobody may touch.
        unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
        self.mappings.remove(&start);
        self.sweep(handle);
        true
    }

    /// Lets a mapping be read, and written; not what is not mapped.
    pub(crate) fn protect(&mut self, start: usize, bytes: usize, write: bool) -> bool {
        if self.mappings.get(&start).is_none_or(|mapping| mapping.bytes != bytes) {
            return false;
        }
        let protection = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a mapping of ours, as a whole.
        unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), bytes, protection) == 0 }
    }

    pub(crate) fn mapping(&self, address: usize) -> Option<&Mapping> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.bytes).then_some(mapping)
    }

    /// The true number of the device that an address belongs to, and whether it can be exported.
    pub(crate) fn place(&self, address: usize) -> Option<(usize, bool)> {
        let handle = self.handles.get(&self.mapping(address)?.handle)?;
        Some((handle.device, handle.exportable))
    }

    /// Bytes of memory that was made here.
    pub(crate) fn used(&self) -> usize {
        self.handles.values().filter(|handle| handle.own).map(|handle| handle.bytes).sum()
    }

    /// Handles, reservations and mappings.
    pub(crate) fn count(&self) -> usize {
        self.handles.len() + self.reserved.len() + self.mappings.len()
    }
}

fn duplicate(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: a number; where it is no descriptor, the call fails.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: just made, and nobody else's.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}
