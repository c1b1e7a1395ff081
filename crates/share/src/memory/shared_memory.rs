//! Shared memory on the host or on a GPU, behind one type.

use super::arena::Arena;
use std::sync::Arc;
use tensorferry_core::Access;
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_cuda::ipc::GpuArena;

/// Memory that can be published: created by this process, or attached from another.
#[derive(Clone, Debug)]
pub enum SharedMemory {
    /// Host memory.
    Host(Arc<Arena>),
    /// GPU memory.
    Gpu(Arc<GpuArena>),
}

impl SharedMemory {
    /// The address of the first byte, a device address for GPU memory. It may be written only if
    /// [`SharedMemory::access`] permits it.
    pub fn data(&self) -> *mut u8 {
        match self {
            Self::Host(arena) => arena.data(),
            Self::Gpu(arena) => arena.data(),
        }
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Host(arena) => arena.bytes(),
            Self::Gpu(arena) => arena.bytes(),
        }
    }

    /// The access that the mapping permits.
    pub fn access(&self) -> Access {
        match self {
            Self::Host(arena) => arena.access(),
            Self::Gpu(arena) => arena.access(),
        }
    }

    /// The device, with the index that the GPU has in this process.
    pub fn device(&self) -> Device {
        match self {
            Self::Host(_) => Device::CPU,
            Self::Gpu(arena) => Device { kind: DeviceKind::Cuda, index: arena.gpu().index() },
        }
    }

    /// Whether it can be published as read-only. Legacy GPU memory, which has no shareable handle, cannot.
    pub fn can_be_read_only(&self) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Gpu(arena) => arena.can_be_read_only(),
        }
    }

    /// Whether both are the same mapping.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(left), Self::Host(right)) => Arc::ptr_eq(left, right),
            (Self::Gpu(left), Self::Gpu(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }

    /// Equal for all values that refer to one memory.
    pub(crate) fn key(&self) -> MemoryKey {
        match self {
            Self::Host(arena) => MemoryKey::Host(Arc::as_ptr(arena) as usize),
            Self::Gpu(arena) => MemoryKey::Gpu(*arena.id()),
        }
    }
}

/// Identifies a memory within this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemoryKey {
    Host(usize),
    Gpu([u8; 16]),
}

impl From<Arc<Arena>> for SharedMemory {
    fn from(arena: Arc<Arena>) -> Self {
        Self::Host(arena)
    }
}

impl From<Arc<GpuArena>> for SharedMemory {
    fn from(arena: Arc<GpuArena>) -> Self {
        Self::Gpu(arena)
    }
}
