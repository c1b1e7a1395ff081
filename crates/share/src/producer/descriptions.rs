//! What a consumer is told of memory, and of the GPUs that it is on.

use crate::errors::wrong;
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{ExportedBy, GpuDescription, MemoryDescription, MemoryLocation};
use std::sync::Arc;
use tensorferry_core::Result;
use tensorferry_cuda::ipc::{ExportHandle, ReadyEvent};
use tensorferry_cuda::{Gpu, SyncPoint};

/// GPUs, each with what a consumer is told of it.
type Gpus = Vec<(&'static Gpu, GpuDescription)>;

/// The GPUs of these memories, and for each what is to be waited for.
///
/// # Safety
/// As [`crate::publish_after`].
pub(crate) unsafe fn gpus_of(
    memories: &[SharedMemory],
    ready: &[(&'static Gpu, SyncPoint)],
) -> Result<(Gpus, Vec<Arc<ReadyEvent>>)> {
    let (mut gpus, mut events): (Gpus, _) = (Vec::new(), Vec::new());
    for memory in memories {
        let SharedMemory::Gpu(arena) = memory else { continue };
        let gpu = arena.gpu();
        if gpus.iter().any(|(other, _)| std::ptr::eq(*other, gpu)) {
            continue;
        }
        let sides = ready.iter().filter(|(other, _)| std::ptr::eq(*other, gpu)).map(|(_, side)| *side);
        let sides: Vec<SyncPoint> = sides.collect();
        // SAFETY: the caller's contract.
        let event = unsafe { ReadyEvent::after(gpu, &sides)? };
        gpus.push((
            gpu,
            GpuDescription { uuid: gpu.uuid()?.0, event: event.as_ref().map(|event| *event.handle()) },
        ));
        events.extend(event);
    }
    Ok((gpus, events))
}

/// What a consumer is told of a memory.
pub(crate) fn announce(
    memory: &SharedMemory,
    gpus: &[(&'static Gpu, GpuDescription)],
) -> Result<MemoryDescription> {
    let bytes = memory.bytes() as u64;
    let SharedMemory::Gpu(arena) = memory else { return Ok(MemoryDescription::host(bytes)) };
    arena.show();
    let way = match arena.door() {
        ExportHandle::Descriptor(_) => ExportedBy::Descriptor,
        ExportHandle::Legacy(handle) => ExportedBy::Legacy(*handle),
    };
    let gpu = gpus.iter().position(|(gpu, _)| std::ptr::eq(*gpu, arena.gpu()));
    let gpu = gpu.ok_or_else(|| wrong("a memory is on no GPU", "report this"))? as u32;
    Ok(MemoryDescription { bytes, place: MemoryLocation::Gpu { gpu, id: *arena.id(), way } })
}
