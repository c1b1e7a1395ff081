//! Attaching: opening GPU memory that another process exported.

use super::arena::{ArenaMemory, GpuArena, lock_imports};
use super::error::protocol_error;
use super::identity::{ArenaId, ArenaIdentity, ExportHandle};
use super::physical::Mapping;
use crate::abi::IpcHandle;
use crate::driver::handles::DeviceMemory;
use crate::driver::require;
use crate::gpu::Gpu;
use crate::hints;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// The handle that another process sent for its memory.
#[derive(Clone, Copy, Debug)]
pub enum ImportHandle<'a> {
    /// A file descriptor of the memory.
    Descriptor(BorrowedFd<'a>),
    /// A legacy IPC handle.
    Legacy(&'a [u8; 64]),
}

impl GpuArena {
    /// Opens memory of another process, of which at least `announced` bytes were promised. If this process has the memory
    /// already, because it attached or made it, returns that arena.
    ///
    /// # Errors
    /// If the memory is not what was announced, cannot be protected as announced, or the driver refuses.
    pub fn attach(
        gpu: &'static Gpu,
        id: &ArenaId,
        announced: u64,
        access: Access,
        handle: ImportHandle<'_>,
    ) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let bytes =
            usize::try_from(announced).ok().filter(|&bytes| (1..=isize::MAX as usize).contains(&bytes));
        let bytes = bytes.ok_or_else(|| {
            protocol_error(format!("the producer announced {announced} bytes of GPU memory"))
        })?;
        if access == Access::ReadOnly && !matches!(handle, ImportHandle::Descriptor(_)) {
            return Err(protocol_error(
                "the producer sent a legacy handle as read-only, and such memory cannot be protected",
            ));
        }
        let check = |known: Arc<Self>| match known.bytes() >= bytes && std::ptr::eq(known.gpu(), gpu) {
            true => Ok(known),
            false => Err(protocol_error("the producer sent other memory under the id of an attached arena")),
        };
        if let Some(known) = Self::find_known(id, access) {
            return check(known);
        }
        // Another thread may be opening or closing the same memory.
        let imports = lock_imports();
        if let Some(known) = Self::find_known(id, access) {
            drop(imports);
            return check(known);
        }
        let (range, export_handle, memory) = match handle {
            ImportHandle::Descriptor(descriptor) => {
                let mapping = Mapping::import(gpu, descriptor, bytes, access)?;
                let export_handle = ExportHandle::Descriptor(duplicate(descriptor)?);
                ((mapping.address(), mapping.bytes()), export_handle, ArenaMemory::Mapped(mapping))
            }
            ImportHandle::Legacy(handle) => {
                /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
                const LAZY_PEER_ACCESS: u32 = 1;
                let mut memory = DeviceMemory::default();
                // The driver rejects bytes that are not a handle.
                let opened = gpu.driver.legacy_open(&mut memory, IpcHandle(*handle), LAZY_PEER_ACCESS);
                require("cuIpcOpenMemHandle", opened).map_err(open_error)?;
                let range = (memory.address(), bytes);
                (range, ExportHandle::Legacy(*handle), ArenaMemory::LegacyImport(memory))
            }
        };
        let is_mapped = matches!(memory, ArenaMemory::Mapped(_));
        let identity = Arc::new(ArenaIdentity { id: *id, handle: export_handle });
        let arena = Self::assemble(gpu, range, access, identity, memory, true);
        let (mut base, mut length) = (arena.address, bytes);
        let queried = match is_mapped {
            true => Ok(()),
            false => require(
                "cuMemGetAddressRange",
                gpu.driver.address_range(&mut base, &mut length, arena.address),
            ),
        };
        if queried.is_err() || base != arena.address || length < bytes {
            // The arena takes the lock when it closes the memory.
            drop(imports);
            queried?;
            return Err(protocol_error(format!(
                "the producer announced {bytes} bytes of GPU memory and sent {length} bytes"
            )));
        }
        Ok(arena.register())
    }
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<std::os::fd::OwnedFd> {
    descriptor.try_clone_to_owned().map_err(|error| {
        Error::new(ErrorKind::Io, "the file descriptor of the producer's GPU memory cannot be duplicated")
            .with_errno(error.raw_os_error())
            .with_hint(hints::RAISE_DESCRIPTOR_LIMIT)
    })
}

/// The error for a handle that the driver does not open. The driver's reason is vague; the hint names the usual ones.
fn open_error(error: Error) -> Error {
    let kind = match error.kind() {
        kind @ (ErrorKind::OutOfMemory | ErrorKind::UnsupportedDevice) => kind,
        _ => ErrorKind::InvalidTensor,
    };
    Error::new(kind, format!("the producer's GPU memory cannot be opened ({})", error.fact()))
        .with_hint(hints::CHECK_PRODUCER)
}
