//! Transfers between the host and CUDA GPUs. The driver is loaded at the first use.

use crate::convert::threads;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::{Tensor, dense_layout};
use std::mem;
use tensorferry_core::{Access, ByteOrder, Device, ErrorKind, Tensor as CoreTensor};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, SyncPoint, TransferControl,
};

/// GPU memory of a tensor. It is freed when all work on the GPU that may use it is complete.
struct GpuBlock {
    gpu: &'static Gpu,
    block: Option<DeviceBlock>,
}

impl Drop for GpuBlock {
    fn drop(&mut self) {
        // A library that imported the tensor may have queued work on any stream before it called the deleter. If a capture
        // forbids to wait for it, the memory is leaked.
        if !self.gpu.settle() {
            mem::forget(self.block.take());
        }
    }
}

/// The number of GPUs that this process sees.
///
/// # Errors
/// When the driver is missing.
pub fn gpu_count() -> Result<usize> {
    Gpu::count().map_err(Error::from_core)
}

impl Tensor {
    /// A dense copy in the memory of the GPU with this index. The transfer is complete when this returns.
    ///
    /// # Errors
    /// When the GPU does not exist, fails or has no memory, or the tensor is on a GPU already.
    pub fn to_gpu(&self, index: usize) -> Result<Self> {
        self.check_host()?;
        let gpu = gpu_of(index)?;
        let stream = gpu.sync_stream().map_err(Error::from_core)?;
        let layout = dense_layout(self.dtype(), self.shape())?;
        let block = DeviceBlock::new(gpu, layout.bytes(), stream).map_err(Error::from_core)?;
        let (data, dtype, core) = (block.data(), self.dtype(), self.core());
        let source = DeviceSource { data: core.data(), dtype, layout: core.layout(), order: core.order() };
        // SAFETY: the source is host memory (`check_host`) that nothing writes while `self` is borrowed, and its layout is that
        // of its type. The block is new, is used in the order of the stream that it was allocated on, and has room for the
        // dense layout. The options do not batch.
        unsafe {
            gpu.upload(&source, data, dtype, stream, ring(), &TransferControl::default())
                .map_err(Error::from_core)?
        };
        gpu.wait(SyncPoint::Stream(stream)).map_err(Error::from_core)?;
        let owner = Memory::other(GpuBlock { gpu, block: Some(block) });
        let device = Device::cuda(gpu.index());
        // SAFETY: the block has the size of the layout and lives as long as the owner.
        let tensor = unsafe {
            CoreTensor::new(data, dtype, layout, device, ByteOrder::Native, Access::ReadWrite, owner)
                .map_err(Error::from_core)?
        };
        // SAFETY: `wait` has completed the upload, and nothing else has the address of the block.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// A dense copy in host memory. The transfer is complete when this returns.
    ///
    /// # Errors
    /// When the tensor is on the host or on a device that is not CUDA's, the GPU fails, or memory runs out.
    pub fn to_host(&self) -> Result<Self> {
        let core = self.core();
        if !self.device().is_cuda() {
            return Err(Error::new(
                ErrorKind::UnsupportedDevice,
                format!("the tensor is on {}, and to_host downloads from CUDA GPUs", self.device()),
                "use the tensor as it is, or copy it with pack()",
            ));
        }
        let gpu = Gpu::get(self.device().index).map_err(Error::from_core)?;
        let (dtype, layout) = (self.dtype(), dense_layout(self.dtype(), self.shape())?);
        let (block, path) = gpu.allocate_download(layout.bytes(), ring()).map_err(Error::from_core)?;
        let source = DeviceSource { data: core.data(), dtype, layout: core.layout(), order: core.order() };
        let destination = HostDestination { data: block.data(), dtype, layout: &layout };
        // SAFETY: the source is memory of this GPU, and the work that fills it is complete: `to_gpu` waits for it, and
        // `from_dlpack` requires it. The block is new and has the size of the dense layout, and `allocate_download` chose the
        // path for it. Both live until the call returns.
        unsafe {
            gpu.download(&source, &destination, SyncPoint::Complete, path, &TransferControl::default())
                .map_err(Error::from_core)?;
        }
        // SAFETY: the download has written every byte of the dense layout.
        unsafe { Self::from_block(block, dtype, layout, ByteOrder::Native) }
    }
}

fn gpu_of(index: usize) -> Result<&'static Gpu> {
    // An index that does not fit is one that no GPU has.
    Gpu::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(Error::from_core)
}

fn ring() -> RingOptions {
    RingOptions::with_defaults(threads(), None, None)
}
