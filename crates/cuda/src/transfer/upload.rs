//! Uploads: tensors from the host to a GPU.
//!
//! The host packs, because it reads every element anyway. Elements cross in the narrower of the two types.

use super::batch;
use super::chunked;
use super::control::TransferControl;
use super::endpoints::{GpuEndpoint, HostEndpoint, SharedPointer};
use super::options::RingOptions;
use super::path::{SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES};
use super::pinned::is_pinned;
use super::ring_buffer::RingBuffer;
use crate::convert::DeviceSource;
use crate::driver::handles::Address;
use crate::gpu::Gpu;
use crate::memory::DeviceBlock;
use crate::stream::{Stream, SyncPoint};
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_core::{ByteOrder, DType, Layout, Result, pack};

impl Gpu {
    /// Copies a tensor from the host into dense memory of this GPU, and waits until the source is read. Work that the
    /// stream is given after that sees the values.
    ///
    /// # Errors
    /// When the device fails or has no scratch memory, or the transfer is cancelled.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceSource, Gpu, RingOptions, Stream, TransferControl};
    /// # use tensorferry_core::DType;
    /// fn upload(gpu: &'static Gpu, source: &DeviceSource<'_>, to: *mut u8, ring: RingOptions) -> tensorferry_core::Result<()> {
    ///     gpu.upload(source, to, DType::Float32, Stream::LEGACY, ring, &TransferControl::default())
    /// }
    /// ```
    ///
    /// # Safety
    /// - The source is host memory, readable over the extent of its layout, and nobody writes to it. The item size of the
    ///   layout is that of its type.
    /// - The target is memory that this GPU can write, with room for as many elements of `dtype` as the source has, and
    ///   aligned for them. Nobody else uses it; earlier uses are ordered before the stream's work.
    /// - Both live until this returns. With [`RingOptions::batched`] the target lives until the batch that is open on this
    ///   thread has ended: until the [`TransferBatch`](crate::TransferBatch) is finished or dropped, or for ever if it is
    ///   leaked.
    pub unsafe fn upload(
        &'static self,
        source: &DeviceSource<'_>,
        to: *mut u8,
        dtype: DType,
        stream: Stream,
        ring: RingOptions,
        control: &TransferControl,
    ) -> Result<()> {
        if source.layout.is_empty() {
            return Ok(());
        }
        let (_entered, _relaxed) = (self.enter()?, self.relax_capture_mode()?);
        let begin = Instant::now();
        // A cast on the GPU needs scratch memory there.
        let link_dtype = if ring.saves_memory { dtype } else { narrower(source.dtype, dtype, source.order) };
        // SAFETY: the source is readable and the target has room for the elements by this function's contract. `scratch`
        // has room for them in the type in which they cross (`layout.bytes()`), is aligned for every type, and is freed
        // in the order of the stream on which `upload_dense` fills it and `convert` reads it.
        unsafe {
            if link_dtype == dtype {
                let to = GpuEndpoint { data: to as Address, dtype };
                self.upload_dense(source, to, stream, ring, control)?;
                let bytes = source.layout.count() * dtype.size();
                // Smaller uploads may not be complete yet.
                if bytes >= SMALL_UPLOAD_BYTES {
                    throughput::record(TransferKind::Upload, bytes, begin.elapsed());
                }
                return Ok(());
            }
            let layout = Layout::dense(link_dtype.size(), source.layout.shape())?;
            let scratch = DeviceBlock::new(self, layout.bytes(), stream)?;
            let uncast = GpuEndpoint { data: scratch.data() as Address, dtype: link_dtype };
            self.upload_dense(source, uncast, stream, ring, control)?;
            let packed = DeviceSource {
                data: scratch.data(),
                dtype: link_dtype,
                layout: &layout,
                order: ByteOrder::Native,
            };
            self.convert(&packed, to, dtype, stream)
        }
    }

    /// Uploads with no cast on the GPU, on the path that the size and the source's memory select.
    ///
    /// # Safety
    /// As [`Gpu::upload`], with the elements of `to`.
    unsafe fn upload_dense(
        &'static self,
        source: &DeviceSource<'_>,
        to: GpuEndpoint,
        stream: Stream,
        ring: RingOptions,
        control: &TransferControl,
    ) -> Result<()> {
        let bytes = source.layout.count() * to.dtype.size();
        let ring = ring.for_upload(bytes);
        let DeviceSource { data, dtype, layout, order } = *source;
        let is_dense = source.is_dense_as(to.dtype);
        let from = HostEndpoint { data: SharedPointer::new(data.cast_mut()), dtype, layout, order };
        // SAFETY: source and target meet this function's contract, for every path.
        // - `chunked::upload` and the copies by the driver are complete when they or `wait` return, after an error too.
        // - `StagingBuffer::upload` needs at most a block of bytes, which `bytes < SMALL_UPLOAD_BYTES` checks. The buffer is
        //   settled when `with_staging_buffer` returns, or at the end of the batch, until which the target lives.
        // - `HostBlock::new` allocated `bytes`, which are those of the dense layout that `convert` writes.
        unsafe {
            if bytes >= SMALL_UPLOAD_BYTES
                && !(is_dense && is_pinned(data, bytes))
                && let Some(ring) = RingBuffer::take(self, ring, bytes)?
            {
                return chunked::upload(self, from, to, SyncPoint::Stream(stream), &ring, control);
            }
            let is_staged = bytes < SMALL_UPLOAD_BYTES && (bytes >= STAGING_THRESHOLD_BYTES || ring.batched);
            if is_staged
                && !ring.saves_memory
                && !(is_dense && bytes >= STAGING_THRESHOLD_BYTES && is_pinned(data, bytes))
                && batch::with_staging_buffer(self, ring.batched, |staging| {
                    staging.upload(from, to, stream, ring.threads)
                })?
            {
                control.add(bytes);
                return Ok(());
            }
            if is_dense {
                let queued = self.driver.upload(to.data, data.cast(), bytes, stream.pointer());
                self.wait(SyncPoint::Stream(stream)).and(queued)?;
                control.add(bytes);
                return Ok(());
            }
            let dense = Layout::dense(to.dtype.size(), layout.shape())?;
            let block = HostBlock::new(bytes)?;
            let target = pack::CopyDestination { data: block.data(), dtype: to.dtype, layout: &dense };
            pack::convert(&pack::CopySource { data, dtype, layout, order }, &target, 1)?;
            let queued = self.driver.upload(to.data, block.data().cast(), bytes, stream.pointer());
            self.wait(SyncPoint::Stream(stream)).and(queued)?;
            control.add(bytes);
            Ok(())
        }
    }
}

/// The type in which elements cross the link: the narrower one. Elements with swapped bytes are converted on the host.
fn narrower(from: DType, to: DType, order: ByteOrder) -> DType {
    if from.size() < to.size() && order == ByteOrder::Native { from } else { to }
}
