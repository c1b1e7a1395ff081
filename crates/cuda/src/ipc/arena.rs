//! GPU memory that other processes can be handed, or that came from one.

use super::physical::{self, Mapping};
use super::registry;
use crate::abi::Opaque;
use crate::driver::{Address, needed};
use crate::gpu::Gpu;
use crate::memory::out_of_memory;
use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::{Access, ErrorKind, Result};

/// What an allocation is called in every process: sixteen random bytes, made when it is first exported.
pub type ArenaId = [u8; 16];

/// How another process comes to an allocation.
#[derive(Debug)]
pub enum ExportHandle {
    /// By a descriptor of the memory.
    Descriptor(OwnedFd),
    /// By these bytes.
    Legacy([u8; 64]),
}

impl ExportHandle {
    /// The descriptor that must be sent along.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Self::Legacy(_) => None,
        }
    }
}

/// An allocation's name and door, which all who export or open it share.
pub(crate) struct Name {
    pub(crate) id: ArenaId,
    pub(crate) door: ExportHandle,
}

/// What is to be done when nobody needs it any more.
pub(crate) enum Hold {
    /// Memory of ours, or another process's, that has a handle of its own.
    Mapped(#[expect(dead_code, reason = "held for its drop")] Mapping),
    /// Plain memory of ours.
    Allocated,
    /// Memory of another process, by a legacy handle.
    Opened,
    /// Memory that somebody else in this process made and this keeps alive.
    Kept(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>),
}

/// GPU memory that other processes can be handed, made here, exported here or attached from another.
pub struct GpuArena {
    pub(crate) gpu: &'static Gpu,
    pub(crate) address: Address,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    pub(crate) name: Arc<Name>,
    pub(crate) hold: Hold,
    /// Whether it is another process's.
    pub(crate) foreign: bool,
    shown: AtomicBool,
}

impl GpuArena {
    pub(crate) fn assemble(
        gpu: &'static Gpu,
        (address, bytes): (Address, usize),
        access: Access,
        name: Arc<Name>,
        hold: Hold,
        foreign: bool,
    ) -> Arc<Self> {
        let made = Self { gpu, address, bytes, access, name, hold, foreign, shown: AtomicBool::new(false) };
        made.counter().add();
        Arc::new(made)
    }

    /// New memory of at least that many bytes, not initialised. It has a handle of its own where the GPU knows such memory.
    ///
    /// # Errors
    /// When the device has no such memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let id = super::random()?;
        if physical::is_supported(gpu) {
            let mapping = Mapping::new(gpu, bytes)?;
            let name = Arc::new(Name { id, door: ExportHandle::Descriptor(mapping.export()?) });
            let place = (mapping.address(), mapping.bytes());
            let hold = Hold::Mapped(mapping);
            return Ok(registry::keep(Self::assemble(gpu, place, Access::ReadWrite, name, hold, false)));
        }
        let (mut address, bytes) = (0, bytes.max(1));
        // SAFETY: a place for the address; the context is entered.
        unsafe { gpu.driver.allocate(&raw mut address, bytes) }.map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => out_of_memory(gpu, bytes),
            _ => error,
        })?;
        let door = legacy(gpu, address).inspect_err(|_| {
            // SAFETY: just made, and not used.
            let _ = unsafe { gpu.driver.free(address) };
        })?;
        let name = Arc::new(Name { id, door });
        let made = Self::assemble(gpu, (address, bytes), Access::ReadWrite, name, Hold::Allocated, false);
        Ok(registry::keep(made))
    }

    /// The GPU that it belongs to.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The first byte, for the GPU. It may be written only if [`GpuArena::access`] says so.
    pub fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What may be done to it here.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its name in every process.
    pub fn id(&self) -> &ArenaId {
        &self.name.id
    }

    /// How another process comes to it.
    pub fn door(&self) -> &ExportHandle {
        &self.name.door
    }

    /// Whether this process made it, or somebody else in this process did.
    pub fn is_own(&self) -> bool {
        !self.foreign
    }

    /// Whether others can be handed it so that they cannot write: memory with a handle of its own.
    pub fn can_be_read_only(&self) -> bool {
        matches!(self.name.door, ExportHandle::Descriptor(_))
    }

    /// Notes that others were handed it. Nothing is laid over it from then on: one who has it from somebody whose lease
    /// has ended is not known here, and keeps memory with a handle of its own by having it mapped.
    pub fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    fn counter(&self) -> &'static registry::Counter {
        match self.hold {
            Hold::Kept(_) => &registry::EXPORTS,
            _ if self.foreign => &registry::IMPORTS,
            _ => &registry::MADE,
        }
    }
}

/// The legacy handle of an allocation, by its first address. The context is entered.
pub(crate) fn legacy(gpu: &Gpu, base: Address) -> Result<ExportHandle> {
    let mut handle = Opaque([0; 64]);
    // SAFETY: a place for the handle.
    needed("cuIpcGetMemHandle", unsafe { gpu.driver.legacy_export(&raw mut handle, base) })?;
    Ok(ExportHandle::Legacy(handle.0))
}

impl Drop for GpuArena {
    fn drop(&mut self) {
        self.counter().remove();
        // Not in the child of a fork, where a lock may be another thread's for good.
        let Ok(_entered) = self.gpu.enter() else { return };
        if !matches!(self.hold, Hold::Allocated | Hold::Opened) {
            return registry::forget(self);
        }
        let is_settled = self.gpu.settle();
        // Waited for without the turn; closed in it.
        let _turn = self.foreign.then(registry::turn);
        registry::forget(self);
        if !is_settled {
            return;
        }
        // SAFETY: ours, and nothing uses it any more. A failure is one of the device, which the next call reports.
        unsafe {
            match self.hold {
                Hold::Opened => drop(self.gpu.driver.legacy_close(self.address)),
                _ => drop(self.gpu.driver.free(self.address)),
            }
        }
    }
}

impl fmt::Debug for GpuArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuArena")
            .field("gpu", &self.gpu)
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .field("access", &self.access)
            .field("is_own", &!self.foreign)
            .finish_non_exhaustive()
    }
}
