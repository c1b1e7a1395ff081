//! Results in new host memory: packed, cast or downloaded, on this thread or another.

use crate::conversion::gpu_transfer;
use crate::conversion::host_copy::{copy_packed, copy_packed_detached};
use crate::conversion::read_only::prepare;
use crate::conversion::reading::materialise;
use crate::conversion::source::{Source, SourceMemory, fresh_memory};
use crate::conversion::transfer::{PendingTransfer, no_result};
use crate::errors::Result;
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use tensorferry_core::plan::{self, ConvertOptions, DTypeRequest, Plan, TargetCapabilities};
use tensorferry_core::{Access, DType, Tensor};
use tensorferry_cuda::TransferControl;

/// Work that copies values into new host memory, on any thread.
type CopyWork = Box<dyn FnOnce(&TransferControl) -> tensorferry_core::Result<Tensor<Owner>> + Send>;

/// A copy in new host memory.
pub(crate) enum Copied {
    /// The copy is complete.
    Done(Tensor<Owner>),
    /// The copy has not run yet: the number of bytes, and the work.
    Pending(usize, CopyWork),
}

/// Copies the source into new host memory, in the element type of the plan. With `is_deferred` the copy is returned as work
/// for another thread.
pub(crate) fn copy(
    py: Python<'_>,
    source: Source<'_>,
    target: &TargetCapabilities,
    plan: &Plan,
    is_deferred: bool,
) -> Result<Copied> {
    let mut source = source;
    let streams = source.take_streams();
    let tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { .. } => {
            let tensor = materialise(&source.object, &source.memory, plan.dtype)?;
            if tensor.device().is_host()
                && tensor.access() == Access::ReadWrite
                && fits(&tensor, target, plan.dtype)
            {
                return Ok(Copied::Done(tensor));
            }
            tensor
        }
    };
    let dtype = plan.dtype;
    let total = tensor.layout().count() * dtype.size();
    match streams {
        Some(streams) if tensor.device().is_cuda() => {
            let work = gpu_transfer::download(tensor, streams, dtype, settings::ring_options());
            Ok(Copied::Pending(total, Box::new(work)))
        }
        _ if is_deferred => {
            let held = gpu_transfer::HeldTensor::new(tensor);
            let work = move |_: &TransferControl| copy_packed_detached(&{ &held }.tensor, dtype);
            Ok(Copied::Pending(total, Box::new(work)))
        }
        _ => copy_packed(py, &tensor, dtype).map(Copied::Done),
    }
}

/// The transfer that runs a pending copy and wraps its memory as the target's tensor.
pub(crate) fn deliver(total: usize, work: CopyWork, plan: &Plan, target: Target) -> PendingTransfer {
    let (device, access) = (plan.device, plan.access);
    PendingTransfer {
        total,
        block: None,
        work: Box::new(move |control| work(control).map(Some)),
        finish: Box::new(move |py, moved| {
            let mut tensor = moved.map_or_else(no_result, Ok)?;
            prepare(&mut tensor, target.capabilities(py)?, device, access);
            Ok(target.write(py, tensor)?.unbind())
        }),
    }
}

/// Whether the target can use this memory, which nothing else uses, without a copy of ours.
pub(crate) fn fits(tensor: &Tensor<Owner>, target: &TargetCapabilities, dtype: DType) -> bool {
    let address = tensor.data() as usize;
    let description = fresh_memory(tensor.dtype(), tensor.layout(), tensor.device());
    let description = plan::SourceDescription { order: tensor.order(), address, ..description };
    let options = ConvertOptions { dtype: DTypeRequest::Type(dtype), ..ConvertOptions::NONE };
    plan::decide(&description, target, &options).is_ok_and(|plan| plan.shares() || plan.target_copies())
}
