//! A tensor that was attached from another process.

use crate::lease::Lease;
use crate::memory::shared_memory::SharedMemory;
use std::sync::Arc;
use tensorferry_core::device::Device;
use tensorferry_core::{Access, DType, Layout};

/// A tensor in memory of another process. It keeps the memory mapped, and the lease on it.
#[derive(Clone, Debug)]
pub struct AttachedTensor {
    pub(super) data: *mut u8,
    pub(super) dtype: DType,
    pub(super) layout: Layout,
    // Dropped before the lease: the memory is unmapped when the lease ends.
    pub(super) memory: SharedMemory,
    pub(super) lease: Arc<Lease>,
}

// SAFETY: the pointer is only an address here, into memory that `memory` keeps mapped; see `Arena`.
unsafe impl Send for AttachedTensor {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for AttachedTensor {}

impl AttachedTensor {
    /// The address of the element with index zero in every dimension.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The access that the mapping permits.
    pub fn access(&self) -> Access {
        self.memory.access()
    }

    /// The device, with the index that the GPU has in this process.
    pub fn device(&self) -> Device {
        self.memory.device()
    }

    /// The memory of the tensor.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The lease, which must be kept for as long as the memory is used.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}
