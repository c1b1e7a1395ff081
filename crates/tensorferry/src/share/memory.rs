//! Shared memory: tensors in it, and where the memory of a tensor is.

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::{Tensor, dense_layout};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor as CoreTensor};
use tensorferry_share::{ArenaBlock, PublishedTensor, SharedMemory, find_arena};

impl Tensor {
    /// A tensor of zeros in shared host memory, which is published without a copy.
    ///
    /// ```
    /// use tensorferry::share::{PublishOptions, publish};
    /// use tensorferry::{DType, Tensor};
    ///
    /// let mut tensor = Tensor::zeros_shared(DType::Float32, &[4])?;
    /// tensor.as_mut_slice::<f32>()?.fill(1.0);
    /// let publication = publish(&tensor, &PublishOptions::new())?;
    /// assert!(tensor.as_mut_slice::<f32>().is_err(), "consumers may read it");
    /// drop(publication);
    /// tensor.as_mut_slice::<f32>()?.fill(2.0);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the size overflows, or the system has no shared memory or no descriptor left.
    pub fn zeros_shared(dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = dense_layout(dtype, shape)?;
        let block = ArenaBlock::new(layout.bytes()).map_err(Error::from_core)?;
        // A recycled block has the bytes of an earlier tensor. A fresh one has zeros and no pages: the write reserves them, as the
        // writes of the caller would.
        // SAFETY: the block has this many bytes, and is new: only `block` refers to them. An arena of this process is writable.
        unsafe { block.data().write_bytes(0, layout.bytes()) };
        // SAFETY: every byte was written above, and the block has the size of the layout.
        unsafe { over_block(block, dtype, layout, ByteOrder::Native) }
    }
}

/// A tensor over a new block of shared memory.
///
/// # Safety
/// The layout has no negative strides, its extent is in the block, and its elements have values.
pub(crate) unsafe fn over_block(
    block: ArenaBlock,
    dtype: DType,
    layout: Layout,
    order: ByteOrder,
) -> Result<Tensor> {
    let (data, owner) = (block.data(), Memory::other(block));
    // SAFETY: the extent of the layout is in the block by the contract of this function. An arena of this process is writable,
    // and the owner keeps it.
    let tensor = unsafe {
        CoreTensor::new(data, dtype, layout, Device::CPU, order, Access::ReadWrite, owner)
            .map_err(Error::from_core)?
    };
    // SAFETY: the elements have values by the contract of this function. No other allocation overlaps the block, which is the
    // contract of `ArenaBlock`.
    Ok(unsafe { Tensor::from_parts(tensor) })
}

/// The tensor in shared memory without a copy; `None` if its memory is not shared, or consumers cannot have this access.
pub(super) fn find_published(tensor: &Tensor, access: Access) -> Option<PublishedTensor> {
    let core = tensor.core();
    let (dtype, layout) = (core.dtype(), core.layout().clone());
    if core.order() != ByteOrder::Native || layout.is_empty() {
        return None;
    }
    let (low, high) = layout.extent();
    let (first, bytes) = (core.data().wrapping_offset(low as isize), (high - low) as usize);
    let (memory, first) = if tensor.device().is_host() {
        let (arena, offset) = find_arena(first, bytes)?;
        (SharedMemory::Host(arena), offset)
    } else {
        find_on_gpu(first, bytes)?
    };
    let is_allowed = match access {
        Access::ReadOnly => memory.can_be_read_only(),
        Access::ReadWrite => memory.access() == Access::ReadWrite && tensor.is_writable(),
    };
    let offset = first.wrapping_add_signed(low.wrapping_neg() as isize);
    is_allowed.then_some(PublishedTensor { memory, offset, dtype, layout })
}

/// A copy of the tensor in new shared memory on its device.
pub(super) fn copy_published(tensor: &Tensor) -> Result<PublishedTensor> {
    if !tensor.device().is_host() {
        return copy_on_gpu(tensor);
    }
    let dtype = tensor.dtype();
    let layout = dense_layout(dtype, tensor.shape())?;
    let block = ArenaBlock::new(layout.bytes()).map_err(Error::from_core)?;
    // SAFETY: the tensor is in host memory, which was compared above. The block is new, so that nothing else uses it, and has
    // the size of the dense layout.
    unsafe { tensor.convert_into(block.data(), dtype, &layout)? };
    let (memory, offset) = (SharedMemory::Host(block.arena().clone()), block.offset());
    Ok(PublishedTensor { memory, offset, dtype, layout })
}

#[cfg(feature = "cuda")]
fn find_on_gpu(first: *const u8, bytes: usize) -> Option<(SharedMemory, usize)> {
    let (arena, offset) = tensorferry_cuda::ipc::find(first, bytes)?;
    Some((SharedMemory::Gpu(arena), offset))
}

#[cfg(not(feature = "cuda"))]
fn find_on_gpu(_first: *const u8, _bytes: usize) -> Option<(SharedMemory, usize)> {
    None
}

#[cfg(feature = "cuda")]
fn copy_on_gpu(tensor: &Tensor) -> Result<PublishedTensor> {
    use tensorferry_cuda::ipc::GpuArenaBlock;
    use tensorferry_cuda::{DeviceSource, Gpu, SyncPoint};

    let device = tensor.device();
    if !device.is_cuda() {
        return Err(unsupported_device(device));
    }
    let (core, dtype) = (tensor.core(), tensor.dtype());
    let gpu = Gpu::get(device.index).map_err(Error::from_core)?;
    let layout = dense_layout(dtype, tensor.shape())?;
    let block = GpuArenaBlock::new(gpu, layout.bytes()).map_err(Error::from_core)?;
    let stream = gpu.sync_stream().map_err(Error::from_core)?;
    let source = DeviceSource { data: core.data(), dtype, layout: core.layout(), order: core.order() };
    // SAFETY: the source is memory of this GPU over the extent of its layout, whose work is complete, by the invariant of
    // `Tensor`. The block is new, aligned to 512 bytes, and has the size of the dense layout. `tensor` and `block` live until
    // `wait` returns.
    unsafe { gpu.convert(&source, block.data(), dtype, stream).map_err(Error::from_core)? };
    gpu.wait(SyncPoint::Stream(stream)).map_err(Error::from_core)?;
    let (memory, offset) = (SharedMemory::Gpu(block.arena().clone()), block.offset());
    Ok(PublishedTensor { memory, offset, dtype, layout })
}

#[cfg(not(feature = "cuda"))]
fn copy_on_gpu(tensor: &Tensor) -> Result<PublishedTensor> {
    Err(unsupported_device(tensor.device()))
}

/// Memory of this device cannot be used here.
pub(super) fn unsupported_device(device: Device) -> Error {
    let hint = if cfg!(feature = "cuda") {
        "share tensors in host memory or on CUDA GPUs"
    } else {
        "share tensors in host memory, or enable the feature `cuda` of the crate tensorferry"
    };
    Error::new(ErrorKind::UnsupportedDevice, format!("the tensor is on {device}"), hint)
}
