//! Describes memories, and the GPUs that they are on, for a delivery.

use crate::errors::invalid_argument;
use crate::hints;
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{ExportDescription, GpuDescription, MemoryDescription, MemoryLocation};
use std::sync::Arc;
use tensorferry_core::Result;
use tensorferry_cuda::ipc::{ExportHandle, ReadyEvent};
use tensorferry_cuda::{Gpu, SyncPoint};

/// GPUs with their descriptions.
type DescribedGpus = Vec<(&'static Gpu, GpuDescription)>;

/// Describes the GPUs of these memories, and records an event on each GPU whose work consumers must wait for.
///
/// # Safety
/// As [`crate::publish_after`].
pub(super) unsafe fn describe_gpus(
    memories: &[SharedMemory],
    ready_after: &[(&'static Gpu, SyncPoint)],
) -> Result<(DescribedGpus, Vec<Arc<ReadyEvent>>)> {
    let (mut gpus, mut events): (DescribedGpus, _) = (Vec::new(), Vec::new());
    for memory in memories {
        let SharedMemory::Gpu(arena) = memory else { continue };
        let gpu = arena.gpu();
        if gpus.iter().any(|(other, _)| std::ptr::eq(*other, gpu)) {
            continue;
        }
        let sync_points = ready_after.iter().filter(|(other, _)| std::ptr::eq(*other, gpu));
        let sync_points: Vec<SyncPoint> = sync_points.map(|(_, sync_point)| *sync_point).collect();
        let event = ReadyEvent::after(gpu, &sync_points)?;
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
