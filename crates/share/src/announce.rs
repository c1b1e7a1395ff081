//! What a consumer is told of memory, and of the GPUs that it is on.

use crate::fault::wrong;
use crate::memory::Memory;
use crate::wire::{OneGpu, OneMemory, Place, Way};
use std::sync::Arc;
use tensorferry_core::Result;
use tensorferry_cuda::ipc::{Door, ReadyEvent};
use tensorferry_cuda::{Gpu, Side};

/// GPUs, each with what a consumer is told of it.
type Gpus = Vec<(&'static Gpu, OneGpu)>;

/// The GPUs of these memories, and for each what is to be waited for.
///
/// # Safety
/// As [`crate::publish_after`].
pub(crate) unsafe fn gpus_of(
    memories: &[Memory],
    ready: &[(&'static Gpu, Side)],
) -> Result<(Gpus, Vec<Arc<ReadyEvent>>)> {
    let (mut gpus, mut events): (Gpus, _) = (Vec::new(), Vec::new());
    for memory in memories {
        let Memory::Gpu(arena) = memory else { continue };
        let gpu = arena.gpu();
        if gpus.iter().any(|(other, _)| std::ptr::eq(*other, gpu)) {
            continue;
        }
        let sides = ready.iter().filter(|(other, _)| std::ptr::eq(*other, gpu)).map(|(_, side)| *side);
        let sides: Vec<Side> = sides.collect();
        // SAFETY: the caller's contract.
        let event = unsafe { ReadyEvent::after(gpu, &sides)? };
        gpus.push((gpu, OneGpu { uuid: gpu.uuid()?.0, event: event.as_ref().map(|event| *event.handle()) }));
        events.extend(event);
    }
    Ok((gpus, events))
}

/// What a consumer is told of a memory.
pub(crate) fn announce(memory: &Memory, gpus: &[(&'static Gpu, OneGpu)]) -> Result<OneMemory> {
    let bytes = memory.bytes() as u64;
    let Memory::Gpu(arena) = memory else { return Ok(OneMemory::host(bytes)) };
    arena.show();
    let way = match arena.door() {
        Door::Descriptor(_) => Way::Descriptor,
        Door::Legacy(handle) => Way::Legacy(*handle),
    };
    let gpu = gpus.iter().position(|(gpu, _)| std::ptr::eq(*gpu, arena.gpu()));
    let gpu = gpu.ok_or_else(|| wrong("a memory is on no GPU", "report this"))? as u32;
    Ok(OneMemory { bytes, place: Place::Gpu { gpu, id: *arena.id(), way } })
}
