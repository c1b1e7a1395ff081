//! Downloads: tensors from a GPU to the host.
//!
//! The GPU packs and casts before the bytes cross ([`slabs`](super::slabs)): its memory is fifty times as fast as the link,
//! and the host's is not.

use super::chunked;
use super::control::TransferControl;
use super::endpoints::{GpuEndpoint, HostEndpoint};
use super::path::{HostDestination, TransferPath};
use super::ring_buffer::RingBuffer;
use crate::convert::DeviceSource;
use crate::driver::Address;
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_core::{ByteOrder, Layout, Result, pack};

/// Bytes of a chunk of a copy into pinned memory: so many that waiting between chunks does not slow the link.
const PINNED_CHUNK_BYTES: usize = 64 << 20;

impl Gpu {
    /// Copies a tensor to the host, after the work that is queued at `ready_after`, and waits for it.
    ///
    /// # Errors
    /// When the device fails or has no scratch memory, or the transfer is cancelled.
    ///
    /// # Safety
    /// The source is memory of this GPU. The destination is writable and of the same shape, and nobody else uses it. Both
    /// live until this returns. With [`TransferPath::Pinned`] the destination is pinned. As [`Gpu::order`] for
    /// `ready_after`.
    pub unsafe fn download(
        &'static self,
        source: &DeviceSource<'_>,
        to: &HostDestination<'_>,
        ready_after: SyncPoint,
        transfer_path: TransferPath,
        control: &TransferControl,
    ) -> Result<()> {
        if source.layout.is_empty() {
            return Ok(());
        }
        let (_entered, _relaxed) = (self.enter()?, self.relax_capture_mode()?);
        let (bytes, begin) = (to.layout.bytes(), Instant::now());
        let ring = match transfer_path {
            TransferPath::Ring(options) => RingBuffer::take(self, options, bytes)?,
            _ => None,
        };
        let is_dense = to.layout.is_dense();
        let is_direct = matches!(transfer_path, TransferPath::Pinned | TransferPath::Recycled);
        let mut pooled_stream = None;
        // SAFETY: the caller's contract, for every call below.
        unsafe {
            let stream = match (&ring, transfer_path, ready_after) {
                (None, TransferPath::Driver, SyncPoint::Stream(stream)) => stream,
                (Some(ring), ..) => ring.stream.stream(),
                _ => pooled_stream.insert(self.take_stream()?).stream(),
            };
            self.order(ready_after, SyncPoint::Stream(stream))?;
            if transfer_path == TransferPath::Recycled {
                // A framework may have queued a copy from the array that used this memory before, on any GPU.
                self.order_after_all_gpus(stream)?;
            }
            let copy_dense = |from: Address, to: &HostDestination<'_>| -> Result<()> {
                let HostDestination { data, dtype, layout } = *to;
                let from = GpuEndpoint { data: from, dtype };
                match &ring {
                    Some(ring) => {
                        let to = HostEndpoint { data, dtype, layout, order: ByteOrder::Native };
                        chunked::download(self, from, to, SyncPoint::Stream(stream), ring, control)
                    }
                    None if is_direct && is_dense => {
                        self.queue_pinned_copy(from.data, data, layout.bytes(), stream, control)
                    }
                    None if is_dense => {
                        let queued =
                            self.driver.download(data.cast(), from.data, layout.bytes(), stream.raw());
                        self.wait(SyncPoint::Stream(stream)).and(queued)?;
                        control.add(layout.bytes());
                        Ok(())
                    }
                    None => self.download_through_block(from, to, stream, control),
                }
            };
            let copied = if source.is_dense_as(to.dtype) {
                copy_dense(source.data as Address, to)
            } else {
                self.download_in_slabs(source, to, stream, control, &copy_dense)
            };
            // Also after an error: queued copies must not write to memory that the caller frees.
            if is_direct || copied.is_err() {
                self.wait(SyncPoint::Stream(stream)).and(copied)?;
            }
            if let Some(pooled) = pooled_stream.as_ref().or(ring.as_ref().map(|ring| &ring.stream)) {
                pooled.set_idle();
            }
            let kind = if is_direct { TransferKind::Download } else { TransferKind::DownloadThroughBuffers };
            throughput::record(kind, bytes, begin.elapsed());
            Ok(())
        }
    }

    /// Lets the GPU copy into pinned memory. A large copy is split into chunks, so that its progress is visible and it can
    /// be cancelled; a small one is queued and not waited for.
    ///
    /// # Safety
    /// As [`Gpu::download`], and the caller waits for the stream.
    unsafe fn queue_pinned_copy(
        &'static self,
        from: Address,
        to: *mut u8,
        bytes: usize,
        stream: Stream,
        control: &TransferControl,
    ) -> Result<()> {
        if bytes <= PINNED_CHUNK_BYTES {
            control.add(bytes);
            // SAFETY: the caller's contract.
            return unsafe { self.driver.download(to.cast(), from, bytes, stream.raw()) };
        }
        let (mut queued, mut complete) = (0, 0);
        let events = self.events.take_pair(self.driver)?;
        while complete < bytes {
            // Two chunks are in flight.
            while queued < bytes && queued < complete + 2 * PINNED_CHUNK_BYTES {
                control.check()?;
                let chunk = PINNED_CHUNK_BYTES.min(bytes - queued);
                // SAFETY: the caller's contract, for a range of the bytes.
                unsafe {
                    let (to, from) = (to.wrapping_add(queued).cast(), from + queued as Address);
                    self.driver.download(to, from, chunk, stream.raw())?;
                    events.record(queued / PINNED_CHUNK_BYTES, stream)?;
                }
                queued += chunk;
            }
            // SAFETY: the loop above has recorded this event.
            unsafe { events.wait(complete / PINNED_CHUNK_BYTES)? };
            let chunk = PINNED_CHUNK_BYTES.min(bytes - complete);
            complete += chunk;
            control.add(chunk);
        }
        Ok(())
    }

    /// Downloads into a destination that is not dense through a temporary dense block, where no ring buffer is available.
    ///
    /// # Safety
    /// As [`Gpu::download`].
    unsafe fn download_through_block(
        &self,
        from: GpuEndpoint,
        to: &HostDestination<'_>,
        stream: Stream,
        control: &TransferControl,
    ) -> Result<()> {
        let layout = Layout::dense(from.dtype.size(), to.layout.shape())?;
        let block = HostBlock::new(layout.bytes())?;
        let source = pack::CopySource {
            data: block.data(),
            dtype: from.dtype,
            layout: &layout,
            order: ByteOrder::Native,
        };
        let target = pack::CopyDestination { data: to.data, dtype: to.dtype, layout: to.layout };
        // SAFETY: the caller's contract; the block has room for the elements.
        unsafe {
            let queued = self.driver.download(block.data().cast(), from.data, layout.bytes(), stream.raw());
            self.wait(SyncPoint::Stream(stream)).and(queued)?;
            control.add(layout.bytes());
            pack::convert(&source, &target, 1)
        }
    }
}
