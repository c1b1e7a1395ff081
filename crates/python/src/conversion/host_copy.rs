//! Copies within host memory. Large ones run without the GIL.

use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor, pack};

/// Copies of at least this many bytes release the GIL. Below it, releasing the GIL costs more than it gains.
pub(crate) const DETACH_THRESHOLD_BYTES: usize = 64 << 10;

/// Copies a dense tensor into a new block.
pub(crate) fn duplicate(tensor: &Tensor<Owner>) -> Result<Tensor<Owner>> {
    let bytes = tensor.layout().bytes();
    let block = HostBlock::new(bytes)?;
    // SAFETY: the source is dense, so its `bytes` bytes are contiguous from `data` on; the
    // block is new and has room for them.
    unsafe { std::ptr::copy_nonoverlapping(tensor.data(), block.data(), bytes) };
    let mut copy = tensor_in_block(
        block,
        tensor.dtype(),
        Layout::dense(tensor.dtype().size(), tensor.layout().shape())?,
    )?;
    copy.set_cpu(tensor.device());
    Ok(copy)
}

/// Copies a tensor into a new block, dense and as `dtype`.
pub(crate) fn copy_packed(py: Python<'_>, source: &Tensor<Owner>, dtype: DType) -> Result<Tensor<Owner>> {
    let layout = Layout::dense(dtype.size(), source.layout().shape())?;
    let block = HostBlock::new(layout.bytes())?;
    copy_values(py, source, block.data(), dtype, &layout)?;
    tensor_in_block(block, dtype, layout)
}

/// A dense tensor in a block that has room for it.
pub(crate) fn tensor_in_block(block: HostBlock, dtype: DType, layout: Layout) -> Result<Tensor<Owner>> {
    let data = block.data();
    let owner = Owner::Block(block);
    // SAFETY: the block has as many bytes as the layout, and the owner is the block.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner) }?)
}

/// A copy that has not run yet.
pub(crate) struct CopyJob<'a>(pack::CopySource<'a>, pack::CopyDestination<'a>);

// SAFETY: the job is run by the thread that made it; it only crosses the boundary of `detach`.
unsafe impl Send for CopyJob<'_> {}

impl CopyJob<'_> {
    pub(crate) fn run(self) -> tensorferry_core::Result<()> {
        // SAFETY: the source is a checked tensor whose owner the caller holds; the destination is memory that the
        // caller has seen to be writable, free of overlap with itself and apart from the source.
        unsafe { pack::convert(&self.0, &self.1, settings::threads()) }
    }
}

/// The job that copies a tensor to an address with room for the layout.
pub(crate) fn copy_job<'a>(
    source: &'a Tensor<Owner>,
    data: *mut u8,
    dtype: DType,
    layout: &'a Layout,
) -> CopyJob<'a> {
    let from = pack::CopySource {
        data: source.data(),
        dtype: source.dtype(),
        layout: source.layout(),
        order: source.order(),
    };
    CopyJob(from, pack::CopyDestination { data, dtype, layout })
}

/// Copies a tensor to an address with room for the layout.
pub(crate) fn copy_values(
    py: Python<'_>,
    source: &Tensor<Owner>,
    data: *mut u8,
    dtype: DType,
    layout: &Layout,
) -> Result<()> {
    let bytes = source.layout().bytes().max(layout.bytes());
    let job = copy_job(source, data, dtype, layout);
    Ok(if bytes < DETACH_THRESHOLD_BYTES { job.run() } else { py.detach(|| job.run()) }?)
}
