//! What the driver's calls between processes take: structs and numbers of `cuda.h`.

use std::ffi::{c_int, c_void};

/// A handle that means something to the driver alone: of memory, or of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Opaque(pub(crate) [u8; 64]);

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

impl Location {
    const DEVICE: c_int = 1;

    pub(crate) fn of(index: i32) -> Self {
        Self { kind: Self::DEVICE, id: index }
    }

    pub(crate) fn is(self, index: i32) -> bool {
        self.kind == Self::DEVICE && self.id == index
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(crate) struct Properties {
    pub(crate) kind: c_int,
    pub(crate) handles: c_int,
    pub(crate) location: Location,
    pub(crate) security: *mut c_void,
    pub(crate) flags: [u8; 8],
}

impl Properties {
    /// Memory of a GPU that can be exported as a descriptor.
    pub(crate) fn exportable(index: i32) -> Self {
        /// The only kind of memory that there was for years.
        const PINNED: c_int = 1;
        let location = Location::of(index);
        Self { kind: PINNED, handles: DESCRIPTOR, location, security: std::ptr::null_mut(), flags: [0; 8] }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct Rights {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

impl Rights {
    pub(crate) const READ: c_int = 1;
    pub(crate) const READ_WRITE: c_int = 3;
}

/// A handle that is a file descriptor.
pub(crate) const DESCRIPTOR: c_int = 1;

/// What a device can, by its number.
pub(crate) const HAS_DESCRIPTORS: c_int = 103;

/// What the driver knows of an address.
pub(crate) const BUFFER: c_int = 7;
pub(crate) const IS_LEGACY: c_int = 10;
pub(crate) const HANDLES: c_int = 14;
pub(crate) const POOL: c_int = 17;
pub(crate) const MAPPING_BYTES: c_int = 18;
pub(crate) const MAPPING_START: c_int = 19;
