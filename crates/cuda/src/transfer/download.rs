//! Downloads: tensors from a GPU to the host.
//!
//! The GPU packs and casts before the bytes cross ([`slabs`](super::slabs)): its memory is fifty times as fast as the link,
//! and the host's is not.

use super::chunked;
use super::control::TransferControl;
use super::endpoints::{GpuEndpoint, HostEndpoint, SharedPointer};
use super::path::{HostDestination, TransferPath};
use super::ring_buffer::RingBuffer;
use crate::convert::DeviceSource;
use crate::driver::handles::Address;
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_core::{ByteOrder, Layout, Result, pack};

/// Bytes of a chunk of a copy into pinned memory: enough that waiting between chunks does not slow the link.
const PINNED_CHUNK_BYTES: usize = 64 << 20;

impl Gpu {
    /// Copies a tensor to the host, after the work that is queued at `ready_after`, and waits for it.
    ///
    /// # Errors
    /// When the device fails or has no scratch memory, or the transfer is cancelled.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceSource, Gpu, HostDestination, SyncPoint, TransferControl, TransferPath};
    /// fn download(gpu: &'static Gpu, source: &DeviceSource<'_>, to: &HostDestination<'_>) -> tensorferry_core::Result<()> {
    ///     gpu.download(source, to, SyncPoint::Complete, TransferPath::Driver, &TransferControl::default())
    /// }
    /// ```
    ///
    /// # Safety
    /// - The item size of each layout is that of its type.
    /// - The source is memory that this GPU can read over the extent of its layout. The work that fills it is queued at
    ///   `ready_after`.
    /// - The destination has the shape of the source. It is writable over the extent of its layout, no two indices of which
    ///   reach the same byte, and nobody else uses it.
    /// - Both live until this returns. With [`TransferPath::Pinned`] and [`TransferPath::Recycled`] the destination is
    ///   pinned.
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
            // SAFETY: `from` is the source itself if that is dense in the destination's type, or a slab that
            // `download_in_slabs` has packed. Either way the GPU has as many elements of `dtype` as `to` has, and the
            // work that fills them is ordered before the stream's. `to` is the caller's destination, or a part of it.
            // Nothing uses the destination after the wait for the stream below, and the caller keeps it until this
            // function returns.
            unsafe {
                match &ring {
                    Some(ring) => {
                        let data = SharedPointer::new(data);
                        let to = HostEndpoint { data, dtype, layout, order: ByteOrder::Native };
                        chunked::download(self, from, to, SyncPoint::Stream(stream), ring, control)
                    }
                    None if is_direct && is_dense => {
                        self.queue_pinned_copy(from.data, data, layout.bytes(), stream, control)
                    }
                    None if is_dense => {
                        let queued =
                            self.driver.download(data.cast(), from.data, layout.bytes(), stream.pointer());
                        self.wait(SyncPoint::Stream(stream)).and(queued)?;
                        control.add(layout.bytes());
                        Ok(())
                    }
                    None => self.download_through_block(from, to, stream, control),
                }
            }
        };
        let copied = if source.is_dense_as(to.dtype) {
            copy_dense(source.data as Address, to)
        } else {
            // SAFETY: both memories meet this function's contract. `order` has queued the source's work before the stream's.
            unsafe { self.download_in_slabs(source, to, stream, control, &copy_dense) }
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

    /// Lets the GPU copy into pinned memory. A large copy is split into chunks, so that its progress is visible and it can
    /// be cancelled; a small one is queued and not waited for.
    ///
    /// # Safety
    /// The GPU can read `bytes` at `from`, and `bytes` at `to` are pinned and writable. Both live, and nobody else uses `to`,
    /// until the stream has passed the copy, for which the caller waits after an error too.
    unsafe fn queue_pinned_copy(
        &'static self,
        from: Address,
        to: *mut u8,
        bytes: usize,
        stream: Stream,
        control: &TransferControl,
    ) -> Result<()> {
        let queue = |offset: usize, chunk: usize| {
            let (to, from) = (to.wrapping_add(offset).cast(), from + offset as Address);
            // SAFETY: `cuMemcpyDtoHAsync` needs `chunk` bytes on both sides until the stream has passed the copy. They are a
            // range of the `bytes` of this function's contract: `offset + chunk` is at most `bytes`.
            unsafe { self.driver.download(to, from, chunk, stream.pointer()) }
        };
        if bytes <= PINNED_CHUNK_BYTES {
            control.add(bytes);
            return queue(0, bytes);
        }
        let (mut queued, mut complete) = (0, 0);
        let events = self.events.take_pair(self.driver)?;
        while complete < bytes {
            // Two chunks are in flight.
            while queued < bytes && queued < complete + 2 * PINNED_CHUNK_BYTES {
                control.check()?;
                let chunk = PINNED_CHUNK_BYTES.min(bytes - queued);
                queue(queued, chunk)?;
                events.record(queued / PINNED_CHUNK_BYTES, stream)?;
                queued += chunk;
            }
            events.wait(complete / PINNED_CHUNK_BYTES)?;
            let chunk = PINNED_CHUNK_BYTES.min(bytes - complete);
            complete += chunk;
            control.add(chunk);
        }
        Ok(())
    }

    /// Downloads into a destination that is not dense through a temporary dense block, where no ring buffer is available.
    ///
    /// # Safety
    /// `from` has as many elements as `to`, filled by work that is ordered before the stream's. `to` meets the clause of
    /// [`Gpu::download`] on the destination. Both live until this returns.
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
        // SAFETY: `HostBlock::new` allocated the bytes of `layout`, which is dense and has the elements of `from`. The
        // copy has passed when `convert` reads the block, and when the block is dropped: `wait` comes first, after an
        // error too. `to` is writable with disjoint indices by this function's contract, and does not overlap a new
        // block.
        unsafe {
            let queued =
                self.driver.download(block.data().cast(), from.data, layout.bytes(), stream.pointer());
            self.wait(SyncPoint::Stream(stream)).and(queued)?;
            control.add(layout.bytes());
            pack::convert(&source, &target, 1)
        }
    }
}
