//! The two ends of a transfer.

use crate::driver::Address;
use tensorferry_core::{ByteOrder, DType, Layout};

/// Dense memory on the GPU, of elements as they cross the link.
#[derive(Clone, Copy)]
pub(crate) struct OnGpu {
    pub(crate) data: Address,
    pub(crate) dtype: DType,
}

/// Host memory to write or read, whatever its layout.
#[derive(Clone, Copy)]
pub(crate) struct OnHost<'a> {
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) layout: &'a Layout,
    pub(crate) order: ByteOrder,
}

// SAFETY: nothing here reads or writes through the address. `ring_buffer::download`, `ring_buffer::upload` and `Stage::upload`, which do, are
// unsafe functions whose callers vouch for the memory, and each of their threads has a part of its own.
unsafe impl Sync for OnHost<'_> {}
