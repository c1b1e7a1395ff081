//! Describes memories, and the GPUs that they are on, for a delivery.

use crate::errors::invalid_argument;
use crate::hints;
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{ExportDescription, GpuDescription, MemoryDescription, MemoryLocation};
use std::sync::Arc;
use tensorferry_core::Result;
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::{ExportHandle, ReadyEvent};

/// GPUs with their descriptions.
type DescribedGpus = Vec<(&'static Gpu, GpuDescription)>;

/// Describes the GPUs of these memories. `record` records the event on a GPU for which consumers must wait, if there
/// is one.
pub(super) fn describe_gpus(
    memories: &[SharedMemory],
    mut record: impl FnMut(&'static Gpu) -> Result<Option<Arc<ReadyEvent>>>,
) -> Result<(DescribedGpus, Vec<Arc<ReadyEvent>>)> {
    let (mut gpus, mut events): (DescribedGpus, _) = (Vec::new(), Vec::new());
    for memory in memories {
        let SharedMemory::Gpu(arena) = memory else { continue };
        let gpu = arena.gpu();
        if gpus.iter().any(|(other, _)| std::ptr::eq(*other, gpu)) {
            continue;
        }
        let event = record(gpu)?;
        gpus.push((
            gpu,
            GpuDescription { uuid: gpu.uuid()?.0, event: event.as_ref().map(|event| *event.handle()) },
        ));
        events.extend(event);
    }
    Ok((gpus, events))
}

/// Describes a memory.
pub(super) fn describe_memory(
    memory: &SharedMemory,
    gpus: &[(&'static Gpu, GpuDescription)],
) -> Result<MemoryDescription> {
    let bytes = memory.bytes() as u64;
    let SharedMemory::Gpu(arena) = memory else { return Ok(MemoryDescription::host(bytes)) };
    arena.set_shared();
    let export = match arena.export_handle() {
        ExportHandle::Descriptor(_) => ExportDescription::Descriptor,
        ExportHandle::Legacy(handle) => ExportDescription::Legacy(*handle),
    };
    let gpu = gpus.iter().position(|(gpu, _)| std::ptr::eq(*gpu, arena.gpu()));
    let gpu = gpu.ok_or_else(|| invalid_argument("a memory is on an unknown GPU", hints::REPORT_BUG))? as u32;
    Ok(MemoryDescription { bytes, location: MemoryLocation::Gpu { gpu, id: *arena.id(), export } })
}
