//! Structs and constants of `cuda.h` for memory that several processes map.

use std::ffi::{c_int, c_void};

/// `CUipcMemHandle` or `CUipcEventHandle`: bytes that only the driver interprets.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryLocation {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

impl MemoryLocation {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: c_int = 1;

    pub(crate) fn of_device(index: i32) -> Self {
        Self { kind: Self::DEVICE, id: index }
    }

    pub(crate) fn is_device(self, index: i32) -> bool {
        self.kind == Self::DEVICE && self.id == index
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: MemoryLocation,
    /// For Windows only. Private: this crate sets it to null alone.
    security: *mut c_void,
    flags: [u8; 8],
}

impl AllocationProperties {
    /// Memory of a GPU that can be exported as a file descriptor.
    pub(crate) fn exportable(index: i32) -> Self {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`, the only type that every driver has.
        const PINNED: c_int = 1;
        Self {
            kind: PINNED,
            handle_types: FILE_DESCRIPTOR_HANDLE,
            location: MemoryLocation::of_device(index),
            security: std::ptr::null_mut(),
            flags: [0; 8],
        }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: MemoryLocation,
    pub(crate) flags: c_int,
}

impl AccessDescription {
    pub(crate) const READ: c_int = 1;
    pub(crate) const READ_WRITE: c_int = 3;
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR_HANDLE: c_int = 1;

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
pub(crate) const HAS_FILE_DESCRIPTOR_HANDLES: c_int = 103;

/// `CUpointer_attribute`: what the driver knows about an address. The field is private, so that only attributes of at most
/// eight bytes can be queried.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct PointerAttribute(c_int);

impl PointerAttribute {
    pub(crate) const MEMORY_TYPE: Self = Self(2);
    pub(crate) const BUFFER_ID: Self = Self(7);
    pub(crate) const IS_MANAGED: Self = Self(8);
    pub(crate) const DEVICE_ORDINAL: Self = Self(9);
    pub(crate) const IS_LEGACY_IPC_CAPABLE: Self = Self(10);
    pub(crate) const ALLOWED_HANDLE_TYPES: Self = Self(14);
    pub(crate) const MEMPOOL_HANDLE: Self = Self(17);
    pub(crate) const MAPPING_SIZE: Self = Self(18);
    pub(crate) const MAPPING_BASE_ADDRESS: Self = Self(19);
}
