//! A tensor that was attached from another process.

use crate::lease::Lease;
use crate::memory::shared_memory::SharedMemory;
use std::sync::Arc;
use tensorferry_core::device::Device;
use tensorferry_core::{Access, DType, Layout};

/// A tensor in memory of another process. It keeps the memory mapped, and the lease on it.
///
/// Only [`attach`](crate::attach) creates one, after it has checked the offset and the layout against the memory:
///
/// ```compile_fail,E0616
/// # fn move_outside(mut tensor: tensorferry_share::AttachedTensor) {
/// tensor.offset += 1 << 40;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AttachedTensor {
    /// The offset in the memory of the element with index zero in every dimension.
    pub(super) offset: usize,
    pub(super) dtype: DType,
    pub(super) layout: Layout,
    // Dropped before the lease: the memory is unmapped when the lease ends.
    pub(super) memory: SharedMemory,
    pub(super) lease: Arc<Lease>,
}

impl AttachedTensor {
    /// The address of the element with index zero in every dimension.
    pub fn data(&self) -> *mut u8 {
        self.memory.data().wrapping_add(self.offset)
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
