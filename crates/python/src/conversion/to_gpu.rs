//! Results in GPU memory: shared, or copied into memory that the target allocates.

use crate::conversion::gpu_transfer;
use crate::conversion::host_copy::SendPtr;
use crate::conversion::reading::materialise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::{DeviceAllocation, NamedStream, Streams, check_named_stream};
use crate::conversion::to_host::fits;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::{Result, fail};
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use std::sync::Arc;
use tensorferry_core::plan::{Plan, SupportedDevices, TargetCapabilities};
use tensorferry_core::{Access, ByteOrder, Device, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Gpu, RingOptions, StreamMemory, SyncPoint};

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
    check_named_stream(framework.has_named_streams(), target.capabilities(py)?, stream)?;
    let to = match stream {
        Some(named) => Streams::on(named.stream).with_owner(named.object.bind(py).clone()),
        None => framework.streams(py, Gpu::get(tensor.device().index)?)?,
    };
    let (tensor, waiting) = gpu_transfer::order_sharing(tensor, from, to)?;
    framework.write_gpu(py, tensor, waiting)
}

/// The GPU of a result.
pub(crate) fn gpu_of(target: &TargetCapabilities, device: Device) -> Result<&'static Gpu> {
    let has_no_gpu = || target.devices == SupportedDevices::Cuda && Gpu::count().unwrap_or(0) == 0;
    Gpu::get(device.index).map_err(|error| match error.kind() {
        ErrorKind::UnsupportedDevice if has_no_gpu() => fail(
            ErrorKind::UnsupportedDevice,
            format!("{} holds GPU memory only, and {}", target.title, error.fact()),
            "convert to numpy or torch, which hold host memory",
        ),
        _ => error.into(),
    })
}

/// Copies into new GPU memory of the target.
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
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { .. } => {
            let tensor = materialise(&source.object, &source.memory, plan.dtype)?;
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
    let epoch_memory = request.epoch_memory.as_ref().filter(|_| tensor.device().is_host());
    let mut tensor = tensor;
    if let Some(memory) = epoch_memory
        && framework.accepts_epoch_memory()
    {
        match upload_to_block(tensor, plan, &memory.on(target_gpu)?, request.target)? {
            Ok(pending) => return Ok(Started::Transfer(pending)),
            Err(unchanged) => tensor = unchanged,
        }
    }
    // The allocator must use the stream on which the result is used, because it reuses memory in the order of that stream.
    let of_epoch = epoch_memory.filter(|_| framework.has_named_streams());
    let of_epoch = of_epoch.map(|memory| memory.stream(target_gpu)).transpose()?;
    let stream = request.stream.as_ref().map(|named| named.stream).or(of_epoch);
    let allocation = framework.allocate(py, plan.dtype, tensor.layout().shape(), target_gpu, stream)?;
    let DeviceAllocation { object, data, streams: target_streams } = allocation;
    let total = tensor.layout().count() * plan.dtype.size();
    let layout = Layout::dense(plan.dtype.size(), tensor.layout().shape())?;
    // SAFETY: `DeviceDestination::new` requires GPU memory of this layout that lives until the copy is done, and that nothing else
    // uses. `allocate` has just created a tensor of this type and shape, and `finish` below holds it.
    let destination = unsafe {
        gpu_transfer::DeviceDestination::new(data, plan.dtype, layout, plan.device, target_streams, None)
    };
    let ring = RingOptions { batched: request.batched.get(), ..settings::ring_options() };
    let work = gpu_transfer::copy_to_device(tensor, streams, destination, ring);
    let result = object.unbind();
    Ok(Started::Transfer(PendingTransfer {
        total,
        block: None,
        work: Box::new(move |control| work(control).map(|()| None)),
        finish: Box::new(move |_, _| Ok(result)),
    }))
}

/// Uploads into a block of ours, and shares it with the target. Returns the tensor if the block cannot be allocated: the
/// target's allocator may have reserved it.
fn upload_to_block(
    tensor: Tensor<Owner>,
    plan: &Plan,
    memory: &Arc<StreamMemory>,
    target: Target,
) -> Result<std::result::Result<PendingTransfer, Tensor<Owner>>> {
    let (dtype, device) = (plan.dtype, plan.device);
    let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
    let block = match memory.allocate(layout.bytes()) {
        Ok(block) => block,
        Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(Err(tensor)),
        Err(error) => return Err(error.into()),
    };
    let (total, stream, data) = (layout.bytes(), block.stream(), SendPtr::new(block.data()));
    // SAFETY: `DeviceDestination::new` requires GPU memory of this layout that lives until the copy is done, and that nothing else
    // uses. `allocate` returned a block of these bytes, whose earlier users are ordered before work on `stream`, and `finish`
    // below holds it.
    let destination = unsafe {
        gpu_transfer::DeviceDestination::new(
            data.get(),
            dtype,
            layout.clone(),
            device,
            Streams::on(stream),
            None,
        )
    };
    let work = gpu_transfer::copy_to_device(tensor, None, destination, settings::ring_options());
    Ok(Ok(PendingTransfer {
        total,
        block: Some((data.get() as usize, stream)),
        work: Box::new(move |control| work(control).map(|()| None)),
        finish: Box::new(move |py, _| {
            let owner = Owner::Device(Box::new(block));
            // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives: the block has these bytes.
            let tensor = unsafe {
                Tensor::new(data.get(), dtype, layout, device, ByteOrder::Native, Access::ReadWrite, owner)
            }?;
            // The host has waited for the upload.
            let from = Streams::new(SyncPoint::Complete, SyncPoint::Stream(stream));
            let named = NamedStream { stream, object: py.None() };
            let named = target.builtin()?.has_named_streams().then_some(&named);
            Ok(share_gpu(py, tensor, from, target, named)?.unbind())
        }),
    }))
}
