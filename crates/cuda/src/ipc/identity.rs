//! The identity of an exported allocation: its id in every process, and the handle by which other processes open it.

use crate::abi::IpcHandle;
use crate::driver::handles::Address;
use crate::driver::require;
use crate::gpu::Gpu;
use rustix::rand::GetRandomFlags;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::{Error, ErrorKind, Result};

/// Identifies an allocation in every process: sixteen random bytes, drawn when it is first exported.
pub type ArenaId = [u8; 16];

/// The handle by which another process opens an allocation.
#[derive(Debug)]
pub enum ExportHandle {
    /// A file descriptor of the memory.
    Descriptor(OwnedFd),
    /// A legacy IPC handle.
    Legacy([u8; 64]),
}

impl ExportHandle {
    /// The file descriptor that must be sent along.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Self::Legacy(_) => None,
        }
    }

    /// The legacy handle of the allocation that begins at `base`. The caller has entered the context.
    pub(crate) fn legacy(gpu: &Gpu, base: Address) -> Result<Self> {
        let mut handle = IpcHandle([0; 64]);
        require("cuIpcGetMemHandle", gpu.driver.legacy_export(&mut handle, base))?;
        Ok(Self::Legacy(handle.0))
    }
}

/// The id and the handle of an allocation. All arenas of that allocation share it.
pub(crate) struct ArenaIdentity {
    pub(crate) id: ArenaId,
    pub(crate) handle: ExportHandle,
}

/// A framework's allocation: the driver's buffer id, the first address and the size.
pub(crate) type AllocationKey = (u64, u64, usize);

type ExportedIdentities = HashMap<AllocationKey, Weak<ArenaIdentity>>;

fn exported() -> MutexGuard<'static, Option<ExportedIdentities>> {
    static EXPORTED: Mutex<Option<ExportedIdentities>> = Mutex::new(None);
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ArenaIdentity {
    /// The identity of a framework's allocation: the one under which it is exported already, or a new one.
    pub(crate) fn of_allocation(
        key: AllocationKey,
        make: impl FnOnce() -> Result<Self>,
    ) -> Result<Arc<Self>> {
        if let Some(known) = exported().as_ref().and_then(|exported| exported.get(&key)?.upgrade()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let mut guard = exported();
        let exported = guard.get_or_insert_default();
        if let Some(known) = exported.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        exported.retain(|_, identity| identity.strong_count() > 0);
        exported.insert(key, Arc::downgrade(&made));
        Ok(made)
    }
}

/// A new random id.
pub(crate) fn random_id() -> Result<ArenaId> {
    let mut id = [0; 16];
    let failed = |errno| Error::new(ErrorKind::Io, "the system has no random bytes").with_errno(errno);
    // So few bytes come at once or not at all.
    match rustix::rand::getrandom(&mut id, GetRandomFlags::empty()) {
        Ok(16) => Ok(id),
        Ok(_) => Err(failed(None)),
        Err(error) => Err(failed(Some(error.raw_os_error()))),
    }
}
