//! The two endpoints of a transfer: dense GPU memory, and host memory of any layout.

use crate::driver::Address;
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
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) layout: &'a Layout,
    pub(crate) order: ByteOrder,
}

// SAFETY: this type does not read or write through the address. `chunked::download`, `chunked::upload` and
// `StagingBuffer::upload`, which do, are unsafe functions whose callers vouch for the memory, and each of their threads has
// a chunk of its own.
unsafe impl Sync for HostEndpoint<'_> {}
