//! Memory that can be published, on the host or on a GPU.

use crate::memory::arena::Arena;
use std::sync::Arc;
use tensorferry_core::Access;
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_cuda::ipc::GpuArena;

/// Memory of this process that others can have, or of another that this one has.
#[derive(Clone, Debug)]
pub enum SharedMemory {
    /// The host's.
    Host(Arc<Arena>),
    /// A GPU's.
    Gpu(Arc<GpuArena>),
}

impl SharedMemory {
    /// The first byte; for the GPU, where it is one's. It may be written only if [`SharedMemory::access`] says so.
    pub fn data(&self) -> *mut u8 {
        match self {
            Self::Host(arena) => arena.data(),
            Self::Gpu(arena) => arena.data(),
        }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Host(arena) => arena.bytes(),
            Self::Gpu(arena) => arena.bytes(),
        }
    }

    /// What may be done to it here.
    pub fn access(&self) -> Access {
        match self {
            Self::Host(arena) => arena.access(),
            Self::Gpu(arena) => arena.access(),
        }
    }

    /// Where it is, as this process counts GPUs.
    pub fn device(&self) -> Device {
        match self {
            Self::Host(_) => Device::CPU,
            Self::Gpu(arena) => Device { kind: DeviceKind::Cuda, index: arena.gpu().index() },
        }
    }

    /// Whether it can be published as read-only: memory of a GPU only if it has a handle of its own.
    pub fn can_be_read_only(&self) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Gpu(arena) => arena.can_be_read_only(),
        }
    }

    /// Whether both are one mapping.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(left), Self::Host(right)) => Arc::ptr_eq(left, right),
            (Self::Gpu(left), Self::Gpu(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }

    /// The same for all that name one memory.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Host(arena) => Key::Host(Arc::as_ptr(arena) as usize),
            Self::Gpu(arena) => Key::Gpu(*arena.id()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
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
