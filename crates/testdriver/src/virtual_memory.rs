//! The state of virtual memory management: physical memory is an anonymous file, and mapping it maps that file.

use crate::memfd;
use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{OwnedFd, RawFd};

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
    /// Address reservations by their first address.
    reserved: BTreeMap<usize, MmapRaw>,
    mappings: BTreeMap<usize, Mapping>,
    next: u64,
}

impl VirtualMemory {
    pub(crate) fn create(&mut self, bytes: usize, device: usize, is_exportable: bool) -> Option<u64> {
        let file = memfd::create(&format!("{FILE_NAME_PREFIX}{device}"), bytes)?;
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
        let file = memfd::open_in_process(std::process::id(), descriptor)?;
        let bytes = file.metadata().ok()?.len() as usize;
        let file = OwnedFd::from(file);
        let is_exportable = true;
        Some(self.insert(PhysicalMemory { file, bytes, device, is_exportable, is_own: false, references: 1 }))
    }

    pub(crate) fn export(&self, handle: u64) -> Option<OwnedFd> {
        let memory = self.memory.get(&handle).filter(|memory| memory.is_exportable)?;
        memory.file.try_clone().ok()
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
        let reserved = MmapOptions::new().len(bytes).no_reserve_swap().map_anon().ok()?;
        let reserved = MmapRaw::from(reserved);
        let start = reserved.as_mut_ptr().expose_provenance();
        if !replace_pages(&reserved, start, bytes, None, ProtFlags::empty()) {
            return None;
        }
        self.reserved.insert(start, reserved);
        Some(start)
    }

    /// Frees a reservation. Returns false while something is mapped in it.
    pub(crate) fn free_address(&mut self, start: usize, bytes: usize) -> bool {
        if self.reserved.get(&start).is_none_or(|reserved| reserved.len() != bytes)
            || self.mappings.range(start..start + bytes).next().is_some()
        {
            return false;
        }
        self.reserved.remove(&start);
        true
    }

    /// The reservation that contains an address: start and size.
    pub(crate) fn reservation_of(&self, address: usize) -> Option<(usize, usize)> {
        let (&start, reserved) = self.reserved.range(..=address).next_back()?;
        (address < start + reserved.len()).then_some((start, reserved.len()))
    }

    /// [`replace_pages`] in the reservation that contains `start`.
    fn replace(&self, start: usize, bytes: usize, handle: Option<u64>, protection: ProtFlags) -> bool {
        let reservation = self.reserved.range(..=start).next_back();
        let file = handle.map(|handle| self.memory.get(&handle).map(|memory| &memory.file));
        match (reservation, file) {
            (None, _) | (_, Some(None)) => false,
            (Some((_, reservation)), file) => {
                replace_pages(reservation, start, bytes, file.flatten(), protection)
            }
        }
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
        if !self.replace(start, bytes, Some(handle), ProtFlags::empty()) {
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
        if !self.replace(start, bytes, None, ProtFlags::empty()) {
            return false;
        }
        self.mappings.remove(&start);
        self.remove_if_unused(handle);
        true
    }

    /// Makes a mapping readable, or writable too. Returns false if the range is not a mapping.
    pub(crate) fn protect(&mut self, start: usize, bytes: usize, is_writable: bool) -> bool {
        let Some(mapping) = self.mappings.get(&start).filter(|mapping| mapping.bytes == bytes) else {
            return false;
        };
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        self.replace(start, bytes, Some(mapping.handle), protection)
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

/// Replaces pages of a reservation by those of a file, or by pages that nothing may access. Returns false if the range is not
/// within the reservation, or the system refuses.
fn replace_pages(
    reservation: &MmapRaw,
    start: usize,
    bytes: usize,
    file: Option<&OwnedFd>,
    protection: ProtFlags,
) -> bool {
    let first = reservation.as_mut_ptr().addr();
    if start < first || start.checked_add(bytes).is_none_or(|end| end > first + reservation.len()) {
        return false;
    }
    let pages = reservation.as_mut_ptr().wrapping_add(start - first).cast();
    // SAFETY: `mmap` with `MAP_FIXED` replaces what is mapped in the range. The checks above say that the range is within the
    // reservation, which this driver alone maps. The program accesses it through device addresses only, so no reference to the
    // old pages exists.
    unsafe {
        match file {
            Some(file) => mmap(pages, bytes, protection, MapFlags::SHARED | MapFlags::FIXED, file, 0),
            None => {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
                mmap_anonymous(pages, bytes, protection, flags)
            }
        }
    }
    .is_ok()
}
