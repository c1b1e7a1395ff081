//! Results in host memory of our own: packed, cast or downloaded, now or on another thread.

use crate::conversion::gpu;
use crate::conversion::host_copy::{job, of_block, packed};
use crate::conversion::read_only::prepare;
use crate::conversion::reading::materialise;
use crate::conversion::source::{Memory, Source, fresh_memory};
use crate::conversion::transfer::PendingTransfer;
use crate::errors::Result;
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{self, ConvertOptions, DTypeRequest, Plan, TargetCapabilities};
use tensorferry_core::{Access, DType, Layout, Tensor};
use tensorferry_cuda::TransferControl;

/// Copies values into a new block, on any thread.
type Fill = Box<dyn FnOnce(&TransferControl) -> tensorferry_core::Result<HostBlock> + Send>;

/// A copy in host memory of our own.
pub(crate) enum Copied {
    /// It is made.
    Done(Tensor<Owner>),
    /// It is still to be made: the number of bytes, the work and the shape.
    Pending(usize, (Fill, Vec<i64>)),
}

/// Copies the source's values into memory of our own, in the type that the plan names. With `is_deferred` the bytes move
/// later, on another thread.
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
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, .. } => {
            let tensor = materialise(&source.object, pending)?;
            if tensor.device().is_host()
                && tensor.access() == Access::ReadWrite
                && fits(&tensor, target, plan.dtype)
            {
                return Ok(Copied::Done(tensor));
            }
            tensor
        }
    };
    let (shape, dtype) = (tensor.layout().shape().to_vec(), plan.dtype);
    let total = tensor.layout().count() * dtype.size();
    match streams {
        Some(streams) if tensor.device().is_cuda() => {
            let work = gpu::download(tensor, streams, dtype, settings::transfer());
            Ok(Copied::Pending(total, (Box::new(work), shape)))
        }
        _ if is_deferred => {
            let held = gpu::Held::new(tensor, [None, None]);
            let work = move |_: &TransferControl| {
                let tensor = &{ &held }.tensor;
                let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
                let block = HostBlock::new(layout.bytes())?;
                job(tensor, block.data(), dtype, &layout).run()?;
                Ok(block)
            };
            Ok(Copied::Pending(total, (Box::new(work), shape)))
        }
        _ => packed(py, &tensor, dtype).map(Copied::Done),
    }
}

/// The transfer that runs a pending copy, and wraps the block as the target's tensor.
pub(crate) fn deliver(
    total: usize,
    (work, shape): (Fill, Vec<i64>),
    plan: &Plan,
    target: Target,
) -> PendingTransfer {
    let (dtype, device, access) = (plan.dtype, plan.device, plan.access);
    PendingTransfer {
        total,
        work: Box::new(move |control| work(control).map(Some)),
        finish: Box::new(move |py, block| {
            let block = block.map_or_else(|| HostBlock::new(0), Ok)?;
            let mut tensor = of_block(block, dtype, Layout::dense(dtype.size(), &shape)?)?;
            prepare(&mut tensor, target.facts(py)?, device, access);
            Ok(target.write(py, tensor)?.unbind())
        }),
    }
}

/// Whether the target can use memory that nobody else uses, as it is.
pub(crate) fn fits(tensor: &Tensor<Owner>, target: &TargetCapabilities, dtype: DType) -> bool {
    let address = tensor.data() as usize;
    let facts = fresh_memory(tensor.dtype(), tensor.layout(), tensor.device());
    let facts = plan::SourceDescription { order: tensor.order(), address, ..facts };
    let options = ConvertOptions { dtype: DTypeRequest::Type(dtype), ..ConvertOptions::NONE };
    plan::decide(&facts, target, &options).is_ok_and(|plan| plan.shares() || plan.target_copies())
}
