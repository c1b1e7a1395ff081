//! Copies between two places of host memory: one call of `core::pack`, without the GIL when it is large.

use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor, pack};

/// Copies of at least this many bytes let other Python threads run; below it, giving up the GIL costs more.
pub(crate) const DETACH_FROM: usize = 64 << 10;

/// The same bytes in a block of ours. The tensor is dense.
pub(crate) fn duplicate(tensor: &Tensor<Owner>) -> Result<Tensor<Owner>> {
    let bytes = tensor.layout().bytes();
    let block = HostBlock::new(bytes)?;
    // SAFETY: the source is dense, so its `bytes` bytes lie one after the other from `data` on; the
    // block is new and has room for them.
    unsafe { std::ptr::copy_nonoverlapping(tensor.data(), block.data(), bytes) };
    let mut made =
        of_block(block, tensor.dtype(), Layout::dense(tensor.dtype().size(), tensor.layout().shape())?)?;
    made.set_cpu(tensor.device());
    Ok(made)
}

/// A dense copy as `dtype` in a block of ours.
pub(crate) fn packed(py: Python<'_>, source: &Tensor<Owner>, dtype: DType) -> Result<Tensor<Owner>> {
    let layout = Layout::dense(dtype.size(), source.layout().shape())?;
    let block = HostBlock::new(layout.bytes())?;
    convert(py, source, block.data(), dtype, &layout)?;
    of_block(block, dtype, layout)
}

/// A dense tensor in a block of ours, which has room for it.
pub(crate) fn of_block(block: HostBlock, dtype: DType, layout: Layout) -> Result<Tensor<Owner>> {
    let data = block.data();
    let owner = Owner::Block(block);
    // SAFETY: the block has as many bytes as the layout, and the owner is the block.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner) }?)
}

/// A copy that is still to be done.
pub(crate) struct Job<'a>(pack::CopySource<'a>, pack::CopyDestination<'a>);

// SAFETY: the job is run by the thread that made it; it only has to cross the border of `detach`.
unsafe impl Send for Job<'_> {}

impl Job<'_> {
    pub(crate) fn run(self) -> tensorferry_core::Result<()> {
        // SAFETY: the source is a checked tensor whose owner the caller holds; the destination is memory that the
        // caller has seen to be writable, free of overlap with itself and apart from the source.
        unsafe { pack::convert(&self.0, &self.1, settings::threads()) }
    }
}

/// The copy of a tensor to a place that has room for the layout.
pub(crate) fn job<'a>(source: &'a Tensor<Owner>, data: *mut u8, dtype: DType, layout: &'a Layout) -> Job<'a> {
    let from = pack::CopySource {
        data: source.data(),
        dtype: source.dtype(),
        layout: source.layout(),
        order: source.order(),
    };
    Job(from, pack::CopyDestination { data, dtype, layout })
}

/// Copies a tensor to a place that has room for the layout.
pub(crate) fn convert(
    py: Python<'_>,
    source: &Tensor<Owner>,
    data: *mut u8,
    dtype: DType,
    layout: &Layout,
) -> Result<()> {
    let bytes = source.layout().bytes().max(layout.bytes());
    let job = job(source, data, dtype, layout);
    Ok(if bytes < DETACH_FROM { job.run() } else { py.detach(|| job.run()) }?)
}
