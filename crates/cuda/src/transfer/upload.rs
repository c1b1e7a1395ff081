//! Uploads: tensors from the host to a GPU.
//!
//! The host packs, because it reads every element anyway. Elements cross in the narrower of the two types.

use super::batch;
use super::chunked;
use super::control::TransferControl;
use super::endpoints::{GpuEndpoint, HostEndpoint};
use super::options::RingOptions;
use super::path::{SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES};
use super::pinned::is_pinned;
use super::ring_buffer::RingBuffer;
use crate::convert::DeviceSource;
use crate::driver::Address;
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
    /// # Safety
    /// The source is readable host memory. The target has room for its elements, and nobody else uses it. Both live until
    /// this returns, and with [`RingOptions::batched`] the target lives until the batch that is open on this thread has
    /// ended. The stream belongs to this GPU.
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
        // SAFETY: the caller's contract; scratch memory has room for the elements as they cross.
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
    /// As [`Gpu::upload`].
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
        let from = HostEndpoint { data: data.cast_mut(), dtype, layout, order };
        // SAFETY: the caller's contract; the block has room for the packed source.
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
                let queued = self.driver.upload(to.data, data.cast(), bytes, stream.raw());
                self.wait(SyncPoint::Stream(stream)).and(queued)?;
                control.add(bytes);
                return Ok(());
            }
            let dense = Layout::dense(to.dtype.size(), layout.shape())?;
            let block = HostBlock::new(bytes)?;
            let target = pack::CopyDestination { data: block.data(), dtype: to.dtype, layout: &dense };
            pack::convert(&pack::CopySource { data, dtype, layout, order }, &target, 1)?;
            let queued = self.driver.upload(to.data, block.data().cast(), bytes, stream.raw());
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
