//! Memory that has a handle of its own, apart from the addresses at which it is mapped.

use super::{broken, take_descriptor};
use crate::abi::{DESCRIPTOR, HAS_DESCRIPTORS, Properties, Rights};
use crate::driver::{Address, needed};
use crate::gpu::Gpu;
use crate::memory::out_of_memory;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// Physical memory; it lives until the last handle and the last mapping are gone, in all processes together.
pub(crate) struct Physical {
    gpu: &'static Gpu,
    handle: u64,
}

impl Physical {
    /// New memory, of a multiple of [`granularity`] bytes.
    fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut handle = 0;
        let wanted = Properties::exportable(gpu.index());
        // SAFETY: a place for the handle, and a struct that lives through the call.
        let made = unsafe { gpu.driver.create(&raw mut handle, bytes, &raw const wanted, 0) };
        match needed("cuMemCreate", made) {
            Ok(()) => Ok(Self { gpu, handle }),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    /// That which is mapped at an address.
    pub(crate) fn behind(gpu: &'static Gpu, address: Address) -> Result<Self> {
        let mut handle = 0;
        let at: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: a place for the handle. The address is not followed.
        needed("cuMemRetainAllocationHandle", unsafe { gpu.driver.retain(&raw mut handle, at) })?;
        Ok(Self { gpu, handle })
    }

    /// That which another process, or this one, exported.
    fn import(gpu: &'static Gpu, descriptor: BorrowedFd<'_>) -> Result<Self> {
        let mut handle = 0;
        let number: *mut c_void = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: a place for the handle; the descriptor is open.
        let opened = unsafe { gpu.driver.import(&raw mut handle, number, DESCRIPTOR) };
        needed("cuMemImportFromShareableHandle", opened).map_err(|error| {
            broken(format!("the producer's GPU memory cannot be opened ({})", error.fact()))
        })?;
        let opened = Self { gpu, handle };
        let mut found = Properties::exportable(-1);
        // SAFETY: a place for the answer.
        needed("cuMemGetAllocationPropertiesFromHandle", unsafe {
            gpu.driver.properties(&raw mut found, handle)
        })?;
        if found.location.is(gpu.index()) {
            return Ok(opened);
        }
        Err(broken(format!("the producer sent memory that is not on cuda:{}, as it said", gpu.index())))
    }

    /// A descriptor for other processes.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let mut descriptor = -1;
        // SAFETY: a place for the descriptor.
        needed("cuMemExportToShareableHandle", unsafe {
            self.gpu.driver.export(&raw mut descriptor, self.handle, DESCRIPTOR, 0)
        })?;
        // SAFETY: just made for us.
        Ok(unsafe { take_descriptor(descriptor) })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: a handle of ours; what is mapped lives on.
        let _ = unsafe { self.gpu.driver.release(self.handle) };
    }
}

/// Addresses that nobody else gets.
struct Reserved {
    gpu: &'static Gpu,
    address: Address,
    bytes: usize,
}

impl Reserved {
    fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: a place for the address.
        needed("cuMemAddressReserve", unsafe { gpu.driver.reserve(&raw mut address, bytes, 0, 0, 0) })?;
        Ok(Self { gpu, address, bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: reserved by us with this length; refused while something is mapped there.
        let _ = unsafe { self.gpu.driver.unreserve(self.address, self.bytes) };
    }
}

/// Memory that is mapped here.
pub(crate) struct Mapping {
    physical: Option<Physical>,
    reserved: Option<Reserved>,
    is_mapped: bool,
}

impl Mapping {
    /// New memory of at least that many bytes, read and written by its GPU.
    pub(crate) fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let _entered = gpu.enter()?;
        let whole = bytes.max(1).checked_next_multiple_of(granularity(gpu)?);
        let whole = whole.ok_or_else(|| out_of_memory(gpu, bytes))?;
        Self::map(gpu, Physical::new(gpu, whole)?, whole, Access::ReadWrite)
    }

    /// The memory behind a descriptor, of which so many bytes were announced.
    pub(crate) fn import(
        gpu: &'static Gpu,
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
    ) -> Result<Self> {
        let _entered = gpu.enter()?;
        if bytes == 0 || !bytes.is_multiple_of(granularity(gpu)?) {
            return Err(broken(format!(
                "the producer announced GPU memory of {bytes} bytes, which cannot be"
            )));
        }
        Self::map(gpu, Physical::import(gpu, descriptor)?, bytes, access)
    }

    /// The driver refuses to map more than there is.
    fn map(gpu: &'static Gpu, physical: Physical, bytes: usize, access: Access) -> Result<Self> {
        let (reserved, handle) = (Reserved::new(gpu, bytes)?, physical.handle);
        let address = reserved.address;
        let mut mapping = Self { physical: Some(physical), reserved: Some(reserved), is_mapped: false };
        // SAFETY: addresses that were reserved for this, and a handle of ours.
        needed("cuMemMap", unsafe { gpu.driver.map(address, bytes, 0, handle, 0) }).map_err(|error| {
            broken(format!("GPU memory of {bytes} bytes cannot be mapped ({})", error.fact()))
        })?;
        mapping.is_mapped = true;
        let flags = match access {
            Access::ReadOnly => Rights::READ,
            Access::ReadWrite => Rights::READ_WRITE,
        };
        let rights = Rights { location: crate::abi::Location::of(gpu.index()), flags };
        // SAFETY: exactly the mapping, and one struct that lives through the call.
        let allowed = unsafe { gpu.driver.set_access(address, bytes, &raw const rights, 1) };
        needed("cuMemSetAccess", allowed).map_err(|error| match access {
            Access::ReadWrite => error,
            Access::ReadOnly => Error::new(
                ErrorKind::UnsupportedDevice,
                format!("this driver cannot map GPU memory as read-only ({})", error.fact()),
            )
            .with_advice("update the NVIDIA driver, or publish for writing"),
        })?;
        Ok(mapping)
    }

    pub(crate) fn address(&self) -> Address {
        self.reserved.as_ref().map_or(0, |reserved| reserved.address)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, |reserved| reserved.bytes)
    }

    pub(crate) fn export(&self) -> Result<OwnedFd> {
        match &self.physical {
            Some(physical) => physical.export(),
            None => Err(broken("GPU memory is gone")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(reserved) = self.reserved.as_ref().filter(|_| self.is_mapped) else { return };
        let Ok(_entered) = reserved.gpu.enter() else { return };
        if !reserved.gpu.settle() {
            // Somebody may still use it, and nobody says when they have finished.
            std::mem::forget((self.reserved.take(), self.physical.take()));
            return;
        }
        // SAFETY: exactly the mapping, which nothing uses any more. Addresses and handle follow.
        let _ = unsafe { reserved.gpu.driver.unmap(reserved.address, reserved.bytes) };
    }
}

/// What sizes are a multiple of.
fn granularity(gpu: &Gpu) -> Result<usize> {
    const LEAST: i32 = 0;
    let (mut bytes, wanted) = (0, Properties::exportable(gpu.index()));
    // SAFETY: a place for the answer, and a struct that lives through the call.
    let asked = unsafe { gpu.driver.granularity(&raw mut bytes, &raw const wanted, LEAST) };
    needed("cuMemGetAllocationGranularity", asked)?;
    Ok(bytes.max(4096))
}

/// Whether a GPU has such memory.
pub(crate) fn is_supported(gpu: &Gpu) -> bool {
    let mut answer = 0;
    // SAFETY: a place for the answer. The number of a device is its index.
    let asked = unsafe { gpu.driver.device_attribute(&raw mut answer, HAS_DESCRIPTORS, gpu.index()) };
    matches!(asked, Some(Ok(()))) && answer != 0
}
