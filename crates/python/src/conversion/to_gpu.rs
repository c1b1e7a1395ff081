//! Results in GPU memory: shared, or copied into memory of the target's own.

use crate::conversion::gpu;
use crate::conversion::reading::materialise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{Memory, Source};
use crate::conversion::streams::{NamedStream, Room, Streams, check_named_stream};
use crate::conversion::to_host::fits;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::{Result, fail};
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use tensorferry_core::plan::{Plan, SupportedDevices, TargetCapabilities};
use tensorferry_core::{Device, ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, RingOptions};

/// Shares GPU memory, and orders the work on the streams of source and target.
#[cold]
pub(crate) fn share_gpu<'py>(
    py: Python<'py>,
    tensor: Tensor<Owner>,
    from: Streams,
    target: Target,
    stream: Option<&NamedStream>,
) -> Result<Bound<'py, PyAny>> {
    let framework = target.builtin()?;
    check_named_stream(framework.has_named_streams(), target.facts(py)?, stream)?;
    let to = match stream {
        Some(asked) => Streams::on(asked.stream).kept_by(asked.object.bind(py).clone()),
        None => framework.streams(py, Gpu::get(tensor.device().index)?)?,
    };
    let (tensor, waits) = gpu::share(tensor, from, to)?;
    framework.write_gpu(py, tensor, waits)
}

/// The GPU of a result.
pub(crate) fn gpu_of(target: &TargetCapabilities, device: Device) -> Result<&'static Gpu> {
    let lost = || target.devices == SupportedDevices::Cuda && Gpu::count().unwrap_or(0) == 0;
    Gpu::get(device.index).map_err(|error| match error.kind() {
        ErrorKind::UnsupportedDevice if lost() => fail(
            ErrorKind::UnsupportedDevice,
            format!("{} holds GPU memory only, and {}", target.title, error.fact()),
            "convert to numpy or torch, which hold host memory",
        ),
        _ => error.into(),
    })
}

/// Copies into memory of the target's own on a GPU.
pub(crate) fn copy_to_gpu<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<Started<'py>> {
    let framework = request.target.builtin()?;
    check_named_stream(framework.has_named_streams(), target, request.stream.as_ref())?;
    let mut source = source;
    let streams = source.take_streams();
    let tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, .. } => {
            let tensor = materialise(&source.object, pending)?;
            if tensor.device().is_same_memory_as(plan.device)
                && fits(&tensor, target, plan.dtype)
                && let Some(streams) = streams
            {
                return share_gpu(py, tensor, streams, request.target, request.stream.as_ref())
                    .map(Started::Done);
            }
            tensor
        }
    };
    let streams = if tensor.device().is_host() { None } else { streams };
    let target_gpu = gpu_of(target, plan.device)?;
    // Allocated on the stream where it will be used, because the allocator reuses memory in the order of that stream.
    let stream = request.stream.as_ref().map(|asked| asked.stream);
    let room = framework.allocate(py, plan.dtype, tensor.layout().shape(), target_gpu, stream)?;
    let Room { object, data, streams: target_streams } = room;
    let total = tensor.layout().count() * plan.dtype.size();
    let destination =
        gpu::Target { data, dtype: plan.dtype, device: plan.device, streams: target_streams, owner: None };
    let ring = RingOptions { batched: request.batched.get(), ..settings::transfer() };
    let work = gpu::fill(tensor, streams, destination, ring);
    let result = object.unbind();
    Ok(Started::Transfer(PendingTransfer {
        total,
        work: Box::new(move |control| work(control).map(|()| None)),
        finish: Box::new(move |_, _| Ok(result)),
    }))
}
