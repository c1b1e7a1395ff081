//! CUDA virtual memory management: physical memory with a handle, address ranges, and mappings of one onto the other.

use super::error::protocol_error;
use crate::abi::{
    AccessDescription, AllocationProperties, FILE_DESCRIPTOR_HANDLE, HAS_FILE_DESCRIPTOR_HANDLES,
    MemoryLocation,
};
use crate::driver::arguments::{LookupAddress, One};
use crate::driver::handles::{Address, PhysicalHandle};
use crate::driver::require;
use crate::gpu::Gpu;
use crate::hints;
use crate::memory::out_of_memory;
use rustix::io::FdFlags;
use std::os::fd::{BorrowedFd, OwnedFd};
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// A handle of physical memory, which lives until its last handle and its last mapping in any process are gone.
pub(crate) struct PhysicalMemory {
    gpu: &'static Gpu,
    handle: PhysicalHandle,
}

impl PhysicalMemory {
    /// New memory. `bytes` is a multiple of [`granularity`].
    fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut handle = PhysicalHandle::default();
        let properties = AllocationProperties::exportable(gpu.index());
        let made = gpu.driver.create_memory(&mut handle, bytes, &properties, 0);
        match require("cuMemCreate", made) {
            Ok(()) => Ok(Self { gpu, handle }),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    /// The memory that is mapped at an address.
    pub(crate) fn mapped_at(gpu: &'static Gpu, address: Address) -> Result<Self> {
        let mut handle = PhysicalHandle::default();
        let retained = gpu.driver.retain_memory(&mut handle, LookupAddress(address));
        require("cuMemRetainAllocationHandle", retained)?;
        Ok(Self { gpu, handle })
    }

    /// Memory that this or another process exported.
    fn import(gpu: &'static Gpu, descriptor: BorrowedFd<'_>) -> Result<Self> {
        let mut handle = PhysicalHandle::default();
        let opened = gpu.driver.import_memory(&mut handle, descriptor, FILE_DESCRIPTOR_HANDLE);
        require("cuMemImportFromShareableHandle", opened).map_err(|error| {
            protocol_error(format!("the producer's GPU memory cannot be opened ({})", error.fact()))
        })?;
        let opened = Self { gpu, handle };
        let mut found = AllocationProperties::exportable(-1);
        let queried = gpu.driver.memory_properties(&mut found, &opened.handle);
        require("cuMemGetAllocationPropertiesFromHandle", queried)?;
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
        // `None` is the descriptor -1, which the driver replaces by one that it opens for the caller.
        let mut descriptor = None;
        let exported =
            self.gpu.driver.export_memory(&mut descriptor, &self.handle, FILE_DESCRIPTOR_HANDLE, 0);
        require("cuMemExportToShareableHandle", exported)?;
        let descriptor = descriptor.ok_or_else(|| {
            Error::new(ErrorKind::DeviceFailed, "the CUDA driver exported GPU memory without a descriptor")
                .with_hint(hints::UPDATE_DRIVER)
        })?;
        // A program that this one executes must not inherit it. If this fails, the memory lives longer.
        let _ = rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC);
        Ok(descriptor)
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // Mappings keep the memory alive.
        let _ = self.gpu.driver.release_memory(self.handle.take());
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
        require("cuMemAddressReserve", gpu.driver.reserve_address(&mut address, bytes, 0, 0, 0))?;
        Ok(Self { gpu, address, bytes })
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: `AddressRange::new` reserved exactly this range. `Mapping` owns the range and unmaps it before this drop, or
        // leaks it, so nothing uses the addresses.
        let _ = unsafe { self.gpu.driver.free_address(self.address, self.bytes) };
    }
}

/// Physical memory that is mapped into this process.
pub(crate) struct Mapping {
    physical: Option<PhysicalMemory>,
    /// The addresses at which all of it is mapped.
    addresses: Option<AddressRange>,
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
        let addresses = AddressRange::new(gpu, bytes)?;
        let address = addresses.address;
        require("cuMemMap", gpu.driver.map_memory(address, bytes, 0, &physical.handle, 0)).map_err(
            |error| {
                protocol_error(format!("{bytes} bytes of GPU memory cannot be mapped ({})", error.fact()))
            },
        )?;
        let mapping = Self { physical: Some(physical), addresses: Some(addresses) };
        let flags = match access {
            Access::ReadOnly => AccessDescription::READ,
            Access::ReadWrite => AccessDescription::READ_WRITE,
        };
        let description = AccessDescription { location: MemoryLocation::of_device(gpu.index()), flags };
        let allowed = gpu.driver.set_access(address, bytes, &description, One);
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
        let Some(addresses) = &self.addresses else { return };
        let Ok(_entered) = addresses.gpu.enter() else { return };
        if !addresses.gpu.settle() {
            // Queued work may still use the memory, and the end of that work cannot be observed: the mapping is leaked.
            std::mem::forget((self.addresses.take(), self.physical.take()));
            return;
        }
        // SAFETY: `Mapping::map` mapped exactly this range. `settle` has returned true, so all work of this process on the GPU
        // is complete.
        let unmapped = unsafe { addresses.gpu.driver.unmap_memory(addresses.address, addresses.bytes) };
        if !matches!(unmapped, Some(Ok(()))) {
            // The addresses are still in use, and must not be reserved again.
            std::mem::forget(self.addresses.take());
        }
    }
}

/// The bytes that the size of an allocation is a multiple of.
fn granularity(gpu: &Gpu) -> Result<usize> {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    const MINIMUM: i32 = 0;
    let (mut bytes, properties) = (0, AllocationProperties::exportable(gpu.index()));
    let queried = gpu.driver.allocation_granularity(&mut bytes, &properties, MINIMUM);
    require("cuMemGetAllocationGranularity", queried)?;
    Ok(bytes.max(4096))
}

/// Whether a GPU supports virtual memory management with file descriptors.
pub(crate) fn is_supported(gpu: &Gpu) -> bool {
    let mut value = 0;
    // The ordinal of a device is its index.
    let queried = gpu.driver.device_attribute(&mut value, HAS_FILE_DESCRIPTOR_HANDLES, gpu.index());
    matches!(queried, Some(Ok(()))) && value != 0
}
