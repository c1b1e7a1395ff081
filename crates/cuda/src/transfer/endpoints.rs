//! The two endpoints of a transfer: dense GPU memory, and host memory of any layout.
//!
//! Several threads share the endpoints of a transfer, so the host's address is a [`SharedPointer`].

use crate::driver::handles::Address;
use tensorferry_core::{ByteOrder, DType, Layout};

/// Dense memory on the GPU, with elements of the type in which they cross the link.
#[derive(Clone, Copy)]
pub(crate) struct GpuEndpoint {
    pub(crate) data: Address,
    pub(crate) dtype: DType,
}

/// Host memory that is read or written, of any layout.
#[derive(Clone, Copy)]
pub(crate) struct HostEndpoint<'a> {
    pub(crate) data: SharedPointer,
    pub(crate) dtype: DType,
    pub(crate) layout: &'a Layout,
    pub(crate) order: ByteOrder,
}

/// The address of host memory whose chunks several threads read or write.
#[derive(Clone, Copy)]
pub(crate) struct SharedPointer(*mut u8);

// SAFETY: `Sync` needs that threads with a `&SharedPointer` cannot race. The methods read and write nothing: they return
// addresses, and an access through one is an unsafe operation, whose comment says which thread has the bytes.
unsafe impl Sync for SharedPointer {}

impl SharedPointer {
    pub(crate) fn new(data: *mut u8) -> Self {
        Self(data)
    }

    /// The address at this many bytes from the first byte.
    pub(crate) fn at(self, offset: i64) -> *mut u8 {
        self.0.wrapping_offset(offset as isize)
    }
}
