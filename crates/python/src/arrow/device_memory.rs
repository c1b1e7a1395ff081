//! Columns in GPU memory: waiting for their producer on import, and for the source's framework on export.

use crate::conversion::source::Source;
use crate::conversion::streams::{self, Streams};
use crate::errors::{Result, fail};
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_arrow::DeviceArray;
use tensorferry_core::device::DeviceKind;
use tensorferry_core::{ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, SyncPoint, device_of_address};

/// Orders the sync stream of the GPU after the event of an array. For pinned memory the host waits, because it reads the memory.
pub(super) fn order_after_producer(py: Python<'_>, array: &DeviceArray) -> Result<()> {
    let Some(event) = array.sync_event else { return Ok(()) };
    let gpu = Gpu::get(array.device.index)?;
    let stream = gpu.sync_stream()?;
    // SAFETY: `order_after_event` requires an event of this process that is alive during the call: the interface says so of the
    // event of an array that is not released, and `array` is borrowed.
    unsafe { gpu.order_after_event(event, stream) }?;
    if array.device.is_host() {
        streams::wait(py, gpu, SyncPoint::Stream(stream))?;
    }
    Ok(())
}

/// The source of a column in GPU memory. Its values are ready after the sync stream, which waits for the producer's event.
pub(super) fn gpu_source<'py>(object: &Bound<'py, PyAny>, tensor: Tensor<Owner>) -> Result<Source<'py>> {
    let (device, address) = (tensor.device(), tensor.data() as usize);
    let sync_stream = Gpu::get(device.index)?.sync_stream()?;
    if !tensor.layout().is_empty() {
        let found = device_of_address(address)?;
        // Managed memory moves between GPUs.
        if !found.is_cuda() || (found.kind == DeviceKind::Cuda && found.index != device.index) {
            return Err(fail(
                ErrorKind::InvalidTensor,
                format!("the memory of the column is on {found}, and its producer said {device}"),
                "report this to the library that made the object",
            ));
        }
    }
    // The producer does not tell on which streams it uses the memory next.
    let streams = Streams::new(SyncPoint::Stream(sync_stream), SyncPoint::AllStreams);
    Ok(Source::in_place(object.clone(), "arrow", tensor).with_streams(streams))
}

/// A tensor in GPU memory to be exported without an event: the host waits until its values are complete. Its memory is released
/// after all work that is queued on the GPU then, because consumers do not tell their streams.
pub(super) fn complete(py: Python<'_>, tensor: Tensor<Owner>, from: Streams) -> Result<Tensor<Owner>> {
    let gpu = Gpu::get(tensor.device().index)?;
    // The driver would refuse the wait, and invalidate the capture.
    if gpu.is_captured(from.ready_after)? {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "the host cannot wait for a tensor whose stream is being captured",
            "export the tensor before or after the capture",
        ));
    }
    streams::wait(py, gpu, from.ready_after)?;
    let next_use = from.next_use.thread_independent();
    Ok(owned_tensor::stream_ordered(tensor, gpu, SyncPoint::AllStreams, next_use, [from.owner, None]))
}
