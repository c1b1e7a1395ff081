//! CUDA virtual memory management: physical memory with a handle, address ranges, and mappings of one onto the other.

use super::error::protocol_error;
use crate::abi::{
    AccessDescription, AllocationProperties, FILE_DESCRIPTOR_HANDLE, HAS_FILE_DESCRIPTOR_HANDLES,
    MemoryLocation,
};
use crate::driver::{Address, require};
use crate::gpu::Gpu;
use crate::hints;
use crate::memory::out_of_memory;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// A handle of physical memory, which lives until its last handle and its last mapping in any process are gone.
pub(crate) struct PhysicalMemory {
    gpu: &'static Gpu,
    handle: u64,
}

impl PhysicalMemory {
    /// New memory. `bytes` is a multiple of [`granularity`].
    fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut handle = 0;
        let properties = AllocationProperties::exportable(gpu.index());
        // SAFETY: a place for the handle, and a struct that lives through the call.
        let made = unsafe { gpu.driver.create_memory(&raw mut handle, bytes, &raw const properties, 0) };
        match require("cuMemCreate", made) {
            Ok(()) => Ok(Self { gpu, handle }),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    /// The memory that is mapped at an address.
    pub(crate) fn mapped_at(gpu: &'static Gpu, address: Address) -> Result<Self> {
        let mut handle = 0;
        let pointer: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: a place for the handle. The driver does not dereference the address.
        require("cuMemRetainAllocationHandle", unsafe {
            gpu.driver.retain_memory(&raw mut handle, pointer)
        })?;
        Ok(Self { gpu, handle })
    }

    /// Memory that this or another process exported.
    fn import(gpu: &'static Gpu, descriptor: BorrowedFd<'_>) -> Result<Self> {
        let mut handle = 0;
        let number: *mut c_void = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: a place for the handle; the descriptor is open.
        let opened = unsafe { gpu.driver.import_memory(&raw mut handle, number, FILE_DESCRIPTOR_HANDLE) };
        require("cuMemImportFromShareableHandle", opened).map_err(|error| {
            protocol_error(format!("the producer's GPU memory cannot be opened ({})", error.fact()))
        })?;
        let opened = Self { gpu, handle };
        let mut found = AllocationProperties::exportable(-1);
        // SAFETY: a place for the result.
        require("cuMemGetAllocationPropertiesFromHandle", unsafe {
            gpu.driver.memory_properties(&raw mut found, handle)
        })?;
        if found.location.is_device(gpu.index()) {
            return Ok(opened);
        }
        Err(protocol_error(format!(
            "the producer announced memory of cuda:{0} and sent memory that is not on cuda:{0}",
            gpu.index()
        )))
    }

    /// A file descriptor for other processes.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let mut descriptor = -1;
        // SAFETY: a place for the descriptor.
        require("cuMemExportToShareableHandle", unsafe {
            self.gpu.driver.export_memory(&raw mut descriptor, self.handle, FILE_DESCRIPTOR_HANDLE, 0)
        })?;
        // SAFETY: just made for us.
        Ok(unsafe { own_descriptor(descriptor) })
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: a handle of ours; mappings keep the memory alive.
        let _ = unsafe { self.gpu.driver.release_memory(self.handle) };
    }
}

/// A reserved range of addresses.
struct AddressRange {
    gpu: &'static Gpu,
    address: Address,
    bytes: usize,
}

impl AddressRange {
    fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: a place for the address.
        require("cuMemAddressReserve", unsafe {
            gpu.driver.reserve_address(&raw mut address, bytes, 0, 0, 0)
        })?;
        Ok(Self { gpu, address, bytes })
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: reserved by us with this length; the driver refuses while something is mapped there.
        let _ = unsafe { self.gpu.driver.free_address(self.address, self.bytes) };
    }
}

/// Physical memory that is mapped into this process.
pub(crate) struct Mapping {
    physical: Option<PhysicalMemory>,
    addresses: Option<AddressRange>,
    is_mapped: bool,
}

impl Mapping {
    /// New memory of at least `bytes`, which its GPU reads and writes.
    pub(crate) fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let _entered = gpu.enter()?;
        let rounded = bytes.max(1).checked_next_multiple_of(granularity(gpu)?);
        let rounded = rounded.ok_or_else(|| out_of_memory(gpu, bytes))?;
        Self::map(gpu, PhysicalMemory::new(gpu, rounded)?, rounded, Access::ReadWrite)
    }

    /// The memory behind a file descriptor, of which `bytes` were announced.
    pub(crate) fn import(
        gpu: &'static Gpu,
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
    ) -> Result<Self> {
        let _entered = gpu.enter()?;
        if bytes == 0 || !bytes.is_multiple_of(granularity(gpu)?) {
            return Err(protocol_error(format!(
                "the producer announced {bytes} bytes of GPU memory, which is not a multiple of the granularity"
            )));
        }
        Self::map(gpu, PhysicalMemory::import(gpu, descriptor)?, bytes, access)
    }

    /// Maps physical memory at new addresses. The driver refuses to map more bytes than the memory has.
    fn map(gpu: &'static Gpu, physical: PhysicalMemory, bytes: usize, access: Access) -> Result<Self> {
        let (addresses, handle) = (AddressRange::new(gpu, bytes)?, physical.handle);
        let address = addresses.address;
        let mut mapping = Self { physical: Some(physical), addresses: Some(addresses), is_mapped: false };
        // SAFETY: addresses that were reserved for this, and a handle of ours.
        require("cuMemMap", unsafe { gpu.driver.map_memory(address, bytes, 0, handle, 0) }).map_err(
            |error| {
                protocol_error(format!("{bytes} bytes of GPU memory cannot be mapped ({})", error.fact()))
            },
        )?;
        mapping.is_mapped = true;
        let flags = match access {
            Access::ReadOnly => AccessDescription::READ,
            Access::ReadWrite => AccessDescription::READ_WRITE,
        };
        let description = AccessDescription { location: MemoryLocation::of_device(gpu.index()), flags };
        // SAFETY: exactly the mapping, and one struct that lives through the call.
        let allowed = unsafe { gpu.driver.set_access(address, bytes, &raw const description, 1) };
        require("cuMemSetAccess", allowed).map_err(|error| match access {
            Access::ReadWrite => error,
            Access::ReadOnly => Error::new(
                ErrorKind::UnsupportedDevice,
                format!("this driver cannot map GPU memory as read-only ({})", error.fact()),
            )
            .with_hint(hints::PUBLISH_WRITABLE),
        })?;
        Ok(mapping)
    }

    pub(crate) fn address(&self) -> Address {
        self.addresses.as_ref().map_or(0, |addresses| addresses.address)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.addresses.as_ref().map_or(0, |addresses| addresses.bytes)
    }

    pub(crate) fn export(&self) -> Result<OwnedFd> {
        match &self.physical {
            Some(physical) => physical.export(),
            None => Err(protocol_error("the GPU memory was released")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(addresses) = self.addresses.as_ref().filter(|_| self.is_mapped) else { return };
        let Ok(_entered) = addresses.gpu.enter() else { return };
        if !addresses.gpu.settle() {
            // Queued work may still use the memory, and the end of that work cannot be observed: the mapping is leaked.
            std::mem::forget((self.addresses.take(), self.physical.take()));
            return;
        }
        // SAFETY: exactly the mapping, which nothing uses any more. The fields release addresses and handle afterwards.
        let _ = unsafe { addresses.gpu.driver.unmap_memory(addresses.address, addresses.bytes) };
    }
}

/// Takes ownership of a file descriptor that the driver made, and closes it in programs that this one executes.
///
/// # Safety
/// It is open, and nobody else's.
unsafe fn own_descriptor(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller's contract.
    unsafe {
        libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        OwnedFd::from_raw_fd(descriptor)
    }
}

/// The bytes that the size of an allocation is a multiple of.
fn granularity(gpu: &Gpu) -> Result<usize> {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    const MINIMUM: i32 = 0;
    let (mut bytes, properties) = (0, AllocationProperties::exportable(gpu.index()));
    // SAFETY: a place for the result, and a struct that lives through the call.
    let queried =
        unsafe { gpu.driver.allocation_granularity(&raw mut bytes, &raw const properties, MINIMUM) };
    require("cuMemGetAllocationGranularity", queried)?;
    Ok(bytes.max(4096))
}

/// Whether a GPU supports virtual memory management with file descriptors.
pub(crate) fn is_supported(gpu: &Gpu) -> bool {
    let mut value = 0;
    // SAFETY: a place for the result. The ordinal of a device is its index.
    let queried =
        unsafe { gpu.driver.device_attribute(&raw mut value, HAS_FILE_DESCRIPTOR_HANDLES, gpu.index()) };
    matches!(queried, Some(Ok(()))) && value != 0
}
