//! Opening what another process exported.

use super::arena::{ArenaId, ExportHandle, GpuArena, Hold, Name};
use super::physical::Mapping;
use super::{broken, registry};
use crate::abi::Opaque;
use crate::driver::needed;
use crate::gpu::Gpu;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// What another process sent so that we come to its memory.
#[derive(Clone, Copy, Debug)]
pub enum ImportHandle<'a> {
    /// A descriptor of the memory.
    Descriptor(BorrowedFd<'a>),
    /// A legacy handle.
    Legacy(&'a [u8; 64]),
}

impl GpuArena {
    /// Memory that another process handed over, at least so many bytes of it. Where this process has it already, because it
    /// came before or was made here, that is given back.
    ///
    /// # Errors
    /// When it is not what was announced, cannot be protected as announced, or the driver refuses.
    pub fn attach(
        gpu: &'static Gpu,
        id: &ArenaId,
        announced: u64,
        access: Access,
        entrance: ImportHandle<'_>,
    ) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let bytes =
            usize::try_from(announced).ok().filter(|&bytes| (1..=isize::MAX as usize).contains(&bytes));
        let bytes =
            bytes.ok_or_else(|| broken(format!("the producer announced GPU memory of {announced} bytes")))?;
        if access == Access::ReadOnly && !matches!(entrance, ImportHandle::Descriptor(_)) {
            return Err(broken("the producer sent as read-only what cannot be protected"));
        }
        let check = |known: Arc<Self>| match known.bytes() >= bytes && std::ptr::eq(known.gpu(), gpu) {
            true => Ok(known),
            false => Err(broken("the producer sent other memory under the name of what is here already")),
        };
        if let Some(known) = registry::known(id, access) {
            return check(known);
        }
        // Not while another thread opens or closes the same.
        let turn = registry::turn();
        if let Some(known) = registry::known(id, access) {
            drop(turn);
            return check(known);
        }
        let (place, door, hold) = match entrance {
            ImportHandle::Descriptor(descriptor) => {
                let mapping = Mapping::import(gpu, descriptor, bytes, access)?;
                let door = ExportHandle::Descriptor(own(descriptor)?);
                ((mapping.address(), mapping.bytes()), door, Hold::Mapped(mapping))
            }
            ImportHandle::Legacy(handle) => {
                const LAZY_PEERS: u32 = 1;
                let mut address = 0;
                // SAFETY: a place for the address. Bytes that are no handle are refused.
                let opened = unsafe { gpu.driver.legacy_open(&raw mut address, Opaque(*handle), LAZY_PEERS) };
                needed("cuIpcOpenMemHandle", opened).map_err(refused)?;
                ((address, bytes), ExportHandle::Legacy(*handle), Hold::Opened)
            }
        };
        let is_mapped = matches!(hold, Hold::Mapped(_));
        let name = Arc::new(Name { id: *id, door });
        let arena = Self::assemble(gpu, place, access, name, hold, true);
        let (mut base, mut length) = (arena.address, bytes);
        let asked = match is_mapped {
            true => Ok(()),
            // SAFETY: places for the answers.
            false => needed("cuMemGetAddressRange", unsafe {
                gpu.driver.address_range(&raw mut base, &raw mut length, arena.address)
            }),
        };
        if asked.is_err() || base != arena.address || length < bytes {
            // The arena closes what was opened, when it is its turn.
            drop(turn);
            asked?;
            return Err(broken(format!(
                "the producer announced GPU memory of {bytes} bytes and sent memory of {length}"
            )));
        }
        Ok(registry::keep(arena))
    }
}

fn own(descriptor: BorrowedFd<'_>) -> Result<std::os::fd::OwnedFd> {
    descriptor.try_clone_to_owned().map_err(|error| {
        Error::new(ErrorKind::Io, "there is no descriptor left for the producer's GPU memory")
            .with_errno(error.raw_os_error())
            .with_advice("let go of some shared tensors, or raise the limit: ulimit -n")
    })
}

/// The driver does not open what was sent. It says why in general words; the usual reason stands in the hint.
fn refused(error: Error) -> Error {
    let kind = match error.kind() {
        kind @ (ErrorKind::OutOfMemory | ErrorKind::UnsupportedDevice) => kind,
        _ => ErrorKind::InvalidTensor,
    };
    Error::new(kind, format!("the producer's GPU memory cannot be opened ({})", error.fact()))
        .with_advice("see whether the producer still runs, and whether both see the same GPU")
}
