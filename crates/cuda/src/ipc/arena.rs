//! Arenas: GPU memory that other processes can open, or that another process exported.

use super::counters::{self, Counter, counts};
use super::identity::{ArenaId, ArenaIdentity, ExportHandle, random_id};
use super::physical::{self, Mapping};
use super::registry::Registry;
use crate::driver::Driver;
use crate::driver::handles::{Address, DeviceMemory};
use crate::gpu::Gpu;
use crate::memory::out_of_memory;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tensorferry_core::{Access, ErrorKind, Result};

/// What an arena's memory consists of, which decides how it is released.
pub(crate) enum ArenaMemory {
    /// Virtual memory management: memory of this or another process, mapped here.
    Mapped(#[expect(dead_code, reason = "held for its drop")] Mapping),
    /// Memory that this process allocated with `cuMemAlloc`.
    Allocated(DeviceMemory),
    /// Memory of another process, opened by a legacy handle.
    LegacyImport(DeviceMemory),
    /// A framework's memory, with the owner that keeps it alive.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>),
}

/// GPU memory that other processes can open: made here, exported here, or attached from another process.
pub struct GpuArena {
    pub(crate) gpu: &'static Gpu,
    pub(crate) address: Address,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    pub(crate) identity: Arc<ArenaIdentity>,
    pub(crate) memory: ArenaMemory,
    /// Whether another process exported it.
    pub(crate) is_imported: bool,
    was_shared: AtomicBool,
}

/// All arenas of this process. An arena takes this lock when it is dropped, so no arena may be dropped under it.
fn arenas() -> MutexGuard<'static, Option<Registry<GpuArena>>> {
    static ARENAS: Mutex<Option<Registry<GpuArena>>> = Mutex::new(None);
    ARENAS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets one thread at a time open or close memory of other processes: drivers give two imports of one allocation the same
/// address, and close it for both.
pub(crate) fn lock_imports() -> MutexGuard<'static, ()> {
    static IMPORTS: Mutex<()> = Mutex::new(());
    IMPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The arena that contains a range of addresses, and the offset of the range in it; `None` for memory of a framework.
pub fn find(address: *const u8, bytes: usize) -> Option<(Arc<GpuArena>, usize)> {
    let counts = counts();
    if counts.made + counts.imports == 0 || Driver::get().is_err() {
        return None;
    }
    arenas().as_ref()?.find_range(address as usize, bytes)
}

impl GpuArena {
    pub(crate) fn assemble(
        gpu: &'static Gpu,
        (address, bytes): (Address, usize),
        access: Access,
        identity: Arc<ArenaIdentity>,
        memory: ArenaMemory,
        is_imported: bool,
    ) -> Arc<Self> {
        let was_shared = AtomicBool::new(false);
        let arena = Self { gpu, address, bytes, access, identity, memory, is_imported, was_shared };
        arena.counter().add();
        Arc::new(arena)
    }

    /// New uninitialised memory of at least `bytes`. Where the GPU supports virtual memory management, it is exported by a
    /// file descriptor.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let id = random_id()?;
        if physical::is_supported(gpu) {
            let mapping = Mapping::new(gpu, bytes)?;
            let handle = ExportHandle::Descriptor(mapping.export()?);
            let identity = Arc::new(ArenaIdentity { id, handle });
            let range = (mapping.address(), mapping.bytes());
            let memory = ArenaMemory::Mapped(mapping);
            return Ok(Self::assemble(gpu, range, Access::ReadWrite, identity, memory, false).register());
        }
        let (mut memory, bytes) = (DeviceMemory::default(), bytes.max(1));
        gpu.driver.allocate(&mut memory, bytes).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => out_of_memory(gpu, bytes),
            _ => error,
        })?;
        let range = (memory.address(), bytes);
        let handle = ExportHandle::legacy(gpu, memory.address()).inspect_err(|_| {
            let _ = gpu.driver.free(memory.take());
        })?;
        let identity = Arc::new(ArenaIdentity { id, handle });
        let memory = ArenaMemory::Allocated(memory);
        Ok(Self::assemble(gpu, range, Access::ReadWrite, identity, memory, false).register())
    }

    /// The arena of this process with this id and access.
    pub(crate) fn find_known(id: &ArenaId, access: Access) -> Option<Arc<Self>> {
        arenas().as_ref()?.find_id(id, access)
    }

    /// Adds the arena to the registry. If another thread has meanwhile imported the same allocation, returns that arena.
    pub(crate) fn register(self: Arc<Self>) -> Arc<Self> {
        let mut guard = arenas();
        let registry = guard.get_or_insert_default();
        if self.is_imported
            && let Some(known) = registry.find_id(self.id(), self.access())
        {
            drop(guard);
            return known;
        }
        let start = self.address as usize;
        let is_borrowed = matches!(self.memory, ArenaMemory::Borrowed(_));
        let addresses = (!is_borrowed).then(|| start..start + self.bytes);
        registry.insert(&self, self.id(), self.access(), addresses);
        drop(guard);
        self
    }

    fn unregister(&self) {
        if let Some(registry) = arenas().as_mut() {
            registry.remove(self, self.id(), self.address as usize);
        }
    }

    /// The GPU that the memory belongs to.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The first byte, as a device address. It may be written only if [`GpuArena::access`] allows it.
    pub fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this process may write to it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its id in every process.
    pub fn id(&self) -> &ArenaId {
        &self.identity.id
    }

    /// The handle by which another process opens it.
    pub fn export_handle(&self) -> &ExportHandle {
        &self.identity.handle
    }

    /// Whether this process allocated the memory.
    pub fn is_own(&self) -> bool {
        !self.is_imported
    }

    /// Whether other processes can be given read-only access, which needs a file descriptor.
    pub fn can_be_read_only(&self) -> bool {
        matches!(self.identity.handle, ExportHandle::Descriptor(_))
    }

    /// Records that another process was given the memory, so it is not reused from then on. A consumer may pass the memory
    /// on. This process does not know the next consumer, whose mapping keeps the memory alive.
    pub fn set_shared(&self) {
        self.was_shared.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_shared(&self) -> bool {
        self.was_shared.load(Ordering::Relaxed)
    }

    fn counter(&self) -> &'static Counter {
        match self.memory {
            ArenaMemory::Borrowed(_) => &counters::EXPORTS,
            _ if self.is_imported => &counters::IMPORTS,
            _ => &counters::MADE,
        }
    }
}

impl Drop for GpuArena {
    fn drop(&mut self) {
        self.counter().remove();
        // In a forked child another thread may have held a lock for good at the time of the fork.
        let Ok(_entered) = self.gpu.enter() else { return };
        if !matches!(self.memory, ArenaMemory::Allocated(_) | ArenaMemory::LegacyImport(_)) {
            return self.unregister();
        }
        let is_settled = self.gpu.settle();
        // Taken after the wait, which may be long.
        let _imports = self.is_imported.then(lock_imports);
        self.unregister();
        if !is_settled {
            return;
        }
        // A failure is one of the device, which the next call reports.
        match &mut self.memory {
            ArenaMemory::LegacyImport(memory) => drop(self.gpu.driver.legacy_close(memory.take())),
            ArenaMemory::Allocated(memory) => drop(self.gpu.driver.free(memory.take())),
            ArenaMemory::Mapped(_) | ArenaMemory::Borrowed(_) => {}
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
            .field("is_own", &self.is_own())
            .finish_non_exhaustive()
    }
}
