//! The state of virtual memory management: physical memory is an anonymous file, and mapping it maps that file.

use crate::memfd;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Sizes are multiples of this.
pub(crate) const GRANULARITY_BYTES: usize = 2 << 20;
/// The prefix of the files' names; the physical index of the device follows.
const FILE_NAME_PREFIX: &str = "testdriver-physical-";

/// Physical memory.
pub(crate) struct PhysicalMemory {
    file: OwnedFd,
    pub(crate) bytes: usize,
    /// The physical index of its device.
    pub(crate) device: usize,
    pub(crate) is_exportable: bool,
    /// Whether this process created it.
    is_own: bool,
    /// Open handles; mappings are counted apart.
    references: usize,
}

/// Physical memory at an address.
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) handle: u64,
}

/// All physical memory, address reservations and mappings.
#[derive(Default)]
pub(crate) struct VirtualMemory {
    memory: HashMap<u64, PhysicalMemory>,
    reserved: BTreeMap<usize, usize>,
    mappings: BTreeMap<usize, Mapping>,
    next: u64,
}

impl VirtualMemory {
    pub(crate) fn create(&mut self, bytes: usize, device: usize, is_exportable: bool) -> Option<u64> {
        let file = memfd::create(&format!("{FILE_NAME_PREFIX}{device}"))?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } != 0 {
            return None;
        }
        Some(self.insert(PhysicalMemory { file, bytes, device, is_exportable, is_own: true, references: 1 }))
    }

    fn insert(&mut self, memory: PhysicalMemory) -> u64 {
        self.next += 1;
        self.memory.insert(self.next, memory);
        self.next
    }

    /// Imports a descriptor that [`VirtualMemory::export`] made, here or in another process.
    pub(crate) fn import(&mut self, descriptor: RawFd) -> Option<u64> {
        let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
        let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(FILE_NAME_PREFIX)?;
        let device = name.split(' ').next()?.parse().ok()?;
        let file = duplicate(descriptor)?;
        let bytes = fs::metadata(format!("/proc/self/fd/{descriptor}")).ok()?.len() as usize;
        let is_exportable = true;
        Some(self.insert(PhysicalMemory { file, bytes, device, is_exportable, is_own: false, references: 1 }))
    }

    pub(crate) fn export(&self, handle: u64) -> Option<OwnedFd> {
        let memory = self.memory.get(&handle).filter(|memory| memory.is_exportable)?;
        duplicate(memory.file.as_raw_fd())
    }

    /// The memory of an open handle.
    pub(crate) fn memory(&self, handle: u64) -> Option<&PhysicalMemory> {
        self.memory.get(&handle).filter(|memory| memory.references > 0)
    }

    pub(crate) fn retain(&mut self, address: usize) -> Option<u64> {
        let handle = self.mapping_of(address)?.handle;
        self.memory.get_mut(&handle)?.references += 1;
        Some(handle)
    }

    pub(crate) fn release(&mut self, handle: u64) -> bool {
        let Some(found) = self.memory.get_mut(&handle).filter(|memory| memory.references > 0) else {
            return false;
        };
        found.references -= 1;
        self.remove_if_unused(handle);
        true
    }

    /// Removes memory that has neither a handle nor a mapping.
    fn remove_if_unused(&mut self, handle: u64) {
        let is_mapped = self.mappings.values().any(|mapping| mapping.handle == handle);
        if !is_mapped && self.memory.get(&handle).is_some_and(|memory| memory.references == 0) {
            self.memory.remove(&handle);
        }
    }

    pub(crate) fn reserve_address(&mut self, bytes: usize) -> Option<usize> {
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

    /// Frees a reservation. Returns false while something is mapped in it.
    pub(crate) fn free_address(&mut self, start: usize, bytes: usize) -> bool {
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

    /// The reservation that contains an address: start and size.
    pub(crate) fn reservation_of(&self, address: usize) -> Option<(usize, usize)> {
        let (&start, &bytes) = self.reserved.range(..=address).next_back()?;
        (address < start + bytes).then_some((start, bytes))
    }

    pub(crate) fn map(&mut self, start: usize, bytes: usize, handle: u64) -> bool {
        let Some(found) = self.memory(handle) else { return false };
        let Some((reserved_start, reserved_bytes)) = self.reservation_of(start) else { return false };
        let before = self.mappings.range(..start + bytes).next_back();
        let overlaps = before.is_some_and(|(other, mapping)| other + mapping.bytes > start);
        if overlaps
            || bytes == 0
            || !bytes.is_multiple_of(GRANULARITY_BYTES)
            || bytes > found.bytes
            || start + bytes > reserved_start + reserved_bytes
        {
            return false;
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let pointer = ptr::with_exposed_provenance_mut(start);
        // SAFETY: inside address space that was reserved for this, where nothing is mapped.
        let mapped = unsafe { libc::mmap(pointer, bytes, libc::PROT_NONE, flags, found.file.as_raw_fd(), 0) };
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
        let pointer = ptr::with_exposed_provenance_mut(start);
        // SAFETY: replaces exactly the mapping with address space that nothing may access.
        unsafe { libc::mmap(pointer, bytes, libc::PROT_NONE, flags, -1, 0) };
        self.mappings.remove(&start);
        self.remove_if_unused(handle);
        true
    }

    /// Makes a mapping readable, or writable too. Returns false if the range is not a mapping.
    pub(crate) fn protect(&mut self, start: usize, bytes: usize, is_writable: bool) -> bool {
        if self.mappings.get(&start).is_none_or(|mapping| mapping.bytes != bytes) {
            return false;
        }
        let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a mapping of ours, as a whole.
        unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), bytes, protection) == 0 }
    }

    /// The mapping that contains an address.
    pub(crate) fn mapping_of(&self, address: usize) -> Option<&Mapping> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.bytes).then_some(mapping)
    }

    /// The physical index of the device of an address, and whether its memory can be exported.
    pub(crate) fn device_of(&self, address: usize) -> Option<(usize, bool)> {
        let memory = self.memory.get(&self.mapping_of(address)?.handle)?;
        Some((memory.device, memory.is_exportable))
    }

    /// Bytes of memory that this process created.
    pub(crate) fn used_bytes(&self) -> usize {
        self.memory.values().filter(|memory| memory.is_own).map(|memory| memory.bytes).sum()
    }

    /// The number of handles, reservations and mappings.
    pub(crate) fn count(&self) -> usize {
        self.memory.len() + self.reserved.len() + self.mappings.len()
    }
}

fn duplicate(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: the call fails if the number is not a descriptor.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: just made, and nobody else's.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}
