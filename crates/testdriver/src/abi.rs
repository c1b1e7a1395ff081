//! Structs and constants of `cuda.h`.

use crate::devices::visible_devices;
use std::ffi::{c_int, c_void};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryLocation {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct AllocationProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: MemoryLocation,
    pub(crate) security: *mut c_void,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub struct AccessDescription {
    pub(crate) location: MemoryLocation,
    pub(crate) flags: c_int,
}

/// `CUmemPoolProps`.
#[repr(C)]
pub struct PoolProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: MemoryLocation,
    pub(crate) rest: [u64; 10],
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED_ALLOCATION: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const DEVICE_LOCATION: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR_HANDLE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ` and `_READWRITE`.
pub(crate) const ACCESS_READ: c_int = 1;
pub(crate) const ACCESS_READ_WRITE: c_int = 3;

/// `CUpointer_attribute`.
pub(crate) mod pointer_attribute {
    use std::ffi::c_int;

    pub(crate) const MEMORY_TYPE: c_int = 2;
    pub(crate) const BUFFER_ID: c_int = 7;
    pub(crate) const IS_MANAGED: c_int = 8;
    pub(crate) const DEVICE_ORDINAL: c_int = 9;
    pub(crate) const IS_LEGACY_IPC_CAPABLE: c_int = 10;
    pub(crate) const RANGE_START: c_int = 11;
    pub(crate) const RANGE_SIZE: c_int = 12;
    pub(crate) const MAPPED: c_int = 13;
    pub(crate) const ALLOWED_HANDLE_TYPES: c_int = 14;
    pub(crate) const MEMPOOL_HANDLE: c_int = 17;
    pub(crate) const MAPPING_SIZE: c_int = 18;
    pub(crate) const MAPPING_BASE_ADDRESS: c_int = 19;
}

/// `CUmemorytype`.
pub(crate) const HOST_MEMORY: u64 = 1;
pub(crate) const DEVICE_MEMORY: u64 = 2;

impl MemoryLocation {
    /// The physical index of the device, if this is the location of a visible device.
    pub(crate) fn device(self) -> Option<usize> {
        let is_device = self.kind == DEVICE_LOCATION;
        is_device.then(|| visible_devices().get(self.id as usize).copied()).flatten()
    }
}

impl AllocationProperties {
    /// The physical index of the device, if these are the properties of device memory.
    pub(crate) fn device(&self) -> Option<usize> {
        self.location.device().filter(|_| self.kind == PINNED_ALLOCATION)
    }
}

impl PoolProperties {
    /// The physical index of the device, if these are the properties of a pool of device memory.
    pub(crate) fn device(&self) -> Option<usize> {
        self.location.device().filter(|_| self.kind == PINNED_ALLOCATION)
    }
}
