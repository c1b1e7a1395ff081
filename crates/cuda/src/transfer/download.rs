//! Tensors between a GPU and the host, and bytes between GPUs.
//!
//! # What it promises
//!
//! - [`Gpu::fetch`] and [`Gpu::send`] take any layout and type on either side, and move each element over the link once.
//!   Downloads are gathered and cast on the GPU, slab by slab, through scratch memory there: its memory is fifty times as
//!   quick as the link, the host's is not. Uploads are gathered on the host, which reads every element anyway, and cross in
//!   the narrower of the two types.
//! - They wait for the bytes; small uploads inside a [`batch`] are waited for at its end. Whatever happens, nothing that was
//!   queued uses the caller's host memory when they are back.
//!
//! # How
//!
//! There are three roads ([`TransferPath`]). Few bytes are one call of the driver's; on the way up, if there are not very few or many
//! tensors come at once, they are laid into pinned memory first ([`staging`]). Where the host's memory is pinned the GPU copies by itself. All else goes through pinned
//! buffers, on several threads ([`ring_buffer`]).

use crate::convert::DeviceSource;
use crate::driver::Address;
use crate::gpu::Gpu;
use crate::memory::DeviceBlock;
use crate::stream::{Stream, SyncPoint};
use crate::transfer::batch;
use crate::transfer::control::TransferControl;
use crate::transfer::endpoints::{OnGpu, OnHost};
use crate::transfer::pinned::is_pinned;
use crate::transfer::ring_buffer::{self, RingOptions};
use crate::transfer::staging;
use std::time::Instant;
use tensorferry_core::chunks::Chunks;
use tensorferry_core::host::HostBlock;
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_core::{ByteOrder, DType, ErrorKind, Layout, Result, pack};

/// Bytes of a download from which the driver's own copy is not the quickest.
pub(crate) const SMALL: usize = 512 << 10;
/// Bytes of an upload from which it goes through lanes, and not over a [`staging`].
pub const SMALL_UPLOAD_BYTES: usize = staging::BLOCK;
/// Bytes of an upload from which the driver's own copy is not the quickest.
pub const STAGING_THRESHOLD_BYTES: usize = 384 << 10;
/// The smallest slab for which it is worth trying to get scratch memory, and the largest that is asked for. Fresh memory
/// takes the GPU a quarter of the time that the link takes for as many bytes.
const SLABS: (usize, usize) = (8 << 20, 32 << 20);

/// Slabs that may be queued before somebody looks.
const SLABS_AHEAD: usize = 8;

/// How bytes cross between a GPU and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPath {
    /// By one call of the driver's.
    Driver,
    /// By the GPU itself, into or from pinned memory.
    Pinned,
    /// The same into memory that was a result before, which others may still copy from.
    Recycled,
    /// Through pinned buffers, on several threads.
    Ring(RingOptions),
}

/// Host memory to fill.
#[derive(Clone, Copy)]
pub struct HostDestination<'a> {
    /// Where the first element goes.
    pub data: *mut u8,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
}

impl Gpu {
    /// Brings a tensor to the host, after what is queued on a side, and waits for it.
    ///
    /// # Errors
    /// When the device fails or has no scratch memory, or the transfer is called off.
    ///
    /// # Safety
    /// The source is memory of this GPU, the destination is writable, of the same shape, and nobody else's; both live until
    /// this is back. With [`TransferPath::Pinned`] the driver knows the destination's memory. As [`Gpu::order`] for the side.
    pub unsafe fn fetch(
        &'static self,
        source: &DeviceSource<'_>,
        to: &HostDestination<'_>,
        after: SyncPoint,
        transfer_path: TransferPath,
        watch: &TransferControl,
    ) -> Result<()> {
        if source.layout.is_empty() {
            return Ok(());
        }
        let (_entered, _relaxed) = (self.enter()?, self.relaxed()?);
        let (bytes, begin) = (to.layout.bytes(), Instant::now());
        let buffers = match transfer_path {
            TransferPath::Ring(ring) => ring_buffer::buffers(self, ring, bytes)?,
            _ => None,
        };
        let plain = to.layout.is_dense();
        let mut own = None;
        // SAFETY: the caller's contract, for all that follows.
        unsafe {
            let stream = match (&buffers, transfer_path, after) {
                (None, TransferPath::Driver, SyncPoint::Stream(stream)) => stream,
                (Some(buffers), ..) => buffers.own.stream(),
                _ => own.insert(self.own_stream()?).stream(),
            };
            self.order(after, SyncPoint::Stream(stream))?;
            if transfer_path == TransferPath::Recycled {
                // Pinned memory is copied from without our knowing: an array that went, and whose memory this was, may still
                // be on its way somewhere.
                self.after_all(stream)?;
            }
            let bring = |from: Address, to: &HostDestination<'_>| -> Result<()> {
                let HostDestination { data, dtype, layout } = *to;
                let from = OnGpu { data: from, dtype };
                match (&buffers, transfer_path) {
                    (Some(buffers), _) => {
                        let to = OnHost { data, dtype, layout, order: ByteOrder::Native };
                        ring_buffer::download(self, from, to, SyncPoint::Stream(stream), buffers, watch)
                    }
                    (None, TransferPath::Pinned | TransferPath::Recycled) if plain => {
                        self.bring_by_itself(from.data, data, layout.bytes(), stream, watch)
                    }
                    _ if plain => {
                        let queued =
                            self.driver.download(data.cast(), from.data, layout.bytes(), stream.raw());
                        self.wait(SyncPoint::Stream(stream)).and(queued)?;
                        watch.add(layout.bytes());
                        Ok(())
                    }
                    _ => self.bring_by_a_block(from, to, stream, watch),
                }
            };
            let brought = if source.is_dense_as(to.dtype) {
                bring(source.data as Address, to)
            } else {
                self.bring_in_slabs(source, to, stream, watch, &bring)
            };
            let by_itself = matches!(transfer_path, TransferPath::Pinned | TransferPath::Recycled);
            // Whatever was queued before a failure must not write to memory that is given back.
            if by_itself || brought.is_err() {
                self.wait(SyncPoint::Stream(stream)).and(brought)?;
            }
            // Nothing is left on a stream of ours.
            if let Some(own) = own.as_ref().or(buffers.as_ref().map(|buffers| &buffers.own)) {
                own.settle();
            }
            let link = if by_itself { TransferKind::Download } else { TransferKind::DownloadThroughBuffers };
            throughput::record(link, bytes, begin.elapsed());
            Ok(())
        }
    }

    /// Lets the GPU copy into pinned memory: much of it a part at a time, so that somebody may see how far it is, and stop it.
    /// Little is queued and not waited for.
    ///
    /// # Safety
    /// As [`Gpu::fetch`], and the caller waits for the stream.
    unsafe fn bring_by_itself(
        &'static self,
        from: Address,
        to: *mut u8,
        bytes: usize,
        stream: Stream,
        watch: &TransferControl,
    ) -> Result<()> {
        /// So much that the link does not notice that somebody waits.
        const PART: usize = 64 << 20;
        if bytes <= PART {
            watch.add(bytes);
            // SAFETY: the caller's contract.
            return unsafe { self.driver.download(to.cast(), from, bytes, stream.raw()) };
        }
        let (mut queued, mut over) = (0, 0);
        let parts = self.marks()?;
        while over < bytes {
            // Two parts are on their way, where there are as many.
            while queued < bytes && queued < over + 2 * PART {
                watch.check()?;
                let part = PART.min(bytes - queued);
                // SAFETY: the caller's contract, a part of the bytes.
                unsafe {
                    let (to, from) = (to.wrapping_add(queued).cast(), from + queued as Address);
                    self.driver.download(to, from, part, stream.raw())?;
                    parts.mark(queued / PART, stream)?;
                }
                queued += part;
            }
            // SAFETY: an event that was recorded above.
            unsafe { parts.wait(over / PART)? };
            let part = PART.min(bytes - over);
            over += part;
            watch.add(part);
        }
        Ok(())
    }

    /// Packs and casts on the GPU, slab by slab, and brings each.
    ///
    /// # Safety
    /// As [`Gpu::fetch`].
    unsafe fn bring_in_slabs(
        &'static self,
        source: &DeviceSource<'_>,
        to: &HostDestination<'_>,
        stream: Stream,
        watch: &TransferControl,
        bring: &dyn Fn(Address, &HostDestination<'_>) -> Result<()>,
    ) -> Result<()> {
        let (least, most) = SLABS;
        let whole = to.layout.bytes();
        if !to.layout.is_dense()
            && whole > most
            && let Some(halves) = halves(source, to)?
        {
            // Where both sides have gaps, a slab is a part of one dimension.
            for ((data, layout), (place, room)) in &halves {
                let source = DeviceSource { data: *data, layout, ..*source };
                let to = HostDestination { data: *place, layout: room, ..*to };
                // SAFETY: the caller's contract, for a part of both.
                unsafe { self.bring_in_slabs(&source, &to, stream, watch, bring)? };
            }
            return Ok(());
        }
        let least = if to.layout.is_dense() { least } else { whole };
        let scratch = self.scratch(whole.min(most.max(least)), least, stream)?;
        let pieces = Chunks::new(source.layout, scratch.bytes() / to.dtype.size());
        for number in 0..pieces.count() {
            watch.check()?;
            if number % SLABS_AHEAD == SLABS_AHEAD - 1 {
                // SAFETY: the caller's contract.
                unsafe { self.wait(SyncPoint::Stream(stream))? };
            }
            let piece = pieces.get(number)?;
            let data = source.data.wrapping_offset(piece.offset as isize);
            let part = DeviceSource { data, layout: &piece.layout, ..*source };
            // SAFETY: the caller's contract; the scratch memory has room for a piece.
            unsafe { self.convert(&part, scratch.data(), to.dtype, stream)? };
            if pieces.count() == 1 {
                return bring(scratch.data() as Address, to);
            }
            let layout = Layout::dense(to.dtype.size(), &[piece.layout.count() as i64])?;
            let data = to.data.wrapping_add(piece.first * to.dtype.size());
            bring(scratch.data() as Address, &HostDestination { data, dtype: to.dtype, layout: &layout })?;
        }
        Ok(())
    }

    /// As much scratch memory as there is, up to the whole, and down to the least.
    fn scratch(&'static self, whole: usize, least: usize, stream: Stream) -> Result<DeviceBlock> {
        let mut bytes = whole;
        loop {
            match DeviceBlock::new(self, bytes, stream) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory && bytes / 2 >= least.min(whole) => {
                    bytes /= 2
                }
                made => return made,
            }
        }
    }

    /// Bytes that do not stay one after the other, where there are no buffers.
    ///
    /// # Safety
    /// As [`Gpu::fetch`].
    unsafe fn bring_by_a_block(
        &self,
        from: OnGpu,
        to: &HostDestination<'_>,
        stream: Stream,
        watch: &TransferControl,
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
            watch.add(layout.bytes());
            pack::convert(&source, &target, 1)
        }
    }

    /// Brings a tensor from the host into dense memory of this GPU, and waits until the source is read. What the stream does
    /// after that finds the values.
    ///
    /// # Errors
    /// When the device fails or has no scratch memory, or the transfer is called off.
    ///
    /// # Safety
    /// The source is readable host memory, the target has room for its elements and is nobody else's; both live until this
    /// is back, and with [`RingOptions::batched`] the target until the batch that is open on this thread has ended. The stream is of
    /// this GPU.
    pub unsafe fn send(
        &'static self,
        source: &DeviceSource<'_>,
        to: *mut u8,
        dtype: DType,
        stream: Stream,
        ring: RingOptions,
        watch: &TransferControl,
    ) -> Result<()> {
        if source.layout.is_empty() {
            return Ok(());
        }
        let (_entered, _relaxed) = (self.enter()?, self.relaxed()?);
        let begin = Instant::now();
        // A cast on the GPU takes memory there.
        let wire = if ring.spares { dtype } else { narrower(source.dtype, dtype, source.order) };
        // SAFETY: the caller's contract; scratch memory has room for the elements as they cross.
        unsafe {
            if wire == dtype {
                self.bring_here(source, OnGpu { data: to as Address, dtype }, stream, ring, watch)?;
                let bytes = source.layout.count() * dtype.size();
                // Fewer may not have been waited for.
                if bytes >= SMALL_UPLOAD_BYTES {
                    throughput::record(TransferKind::Upload, bytes, begin.elapsed());
                }
                return Ok(());
            }
            let layout = Layout::dense(wire.size(), source.layout.shape())?;
            let scratch = DeviceBlock::new(self, layout.bytes(), stream)?;
            let there = OnGpu { data: scratch.data() as Address, dtype: wire };
            self.bring_here(source, there, stream, ring, watch)?;
            let packed =
                DeviceSource { data: scratch.data(), dtype: wire, layout: &layout, order: ByteOrder::Native };
            self.convert(&packed, to, dtype, stream)
        }
    }

    /// # Safety
    /// As [`Gpu::send`].
    unsafe fn bring_here(
        &'static self,
        source: &DeviceSource<'_>,
        to: OnGpu,
        stream: Stream,
        ring: RingOptions,
        watch: &TransferControl,
    ) -> Result<()> {
        let bytes = source.layout.count() * to.dtype.size();
        let ring = ring.for_upload(bytes);
        let DeviceSource { data, dtype, layout, order } = *source;
        let plain = source.is_dense_as(to.dtype);
        // SAFETY: the caller's contract; the block has room for the packed source.
        unsafe {
            if bytes >= SMALL_UPLOAD_BYTES
                && !(plain && is_pinned(data, bytes))
                && let Some(buffers) = ring_buffer::buffers(self, ring, bytes)?
            {
                let from = OnHost { data: data.cast_mut(), dtype, layout, order };
                return ring_buffer::upload(self, from, to, SyncPoint::Stream(stream), &buffers, watch);
            }
            let is_staged = bytes < SMALL_UPLOAD_BYTES && (bytes >= STAGING_THRESHOLD_BYTES || ring.batched);
            if is_staged
                && !ring.spares
                && !(plain && bytes >= STAGING_THRESHOLD_BYTES && is_pinned(data, bytes))
            {
                let from = OnHost { data: data.cast_mut(), dtype, layout, order };
                if batch::on_stage(self, ring.batched, |stage| stage.upload(from, to, stream, ring.threads))?
                {
                    watch.add(bytes);
                    return Ok(());
                }
            }
            if plain {
                let queued = self.driver.upload(to.data, data.cast(), bytes, stream.raw());
                self.wait(SyncPoint::Stream(stream)).and(queued)?;
                watch.add(bytes);
                return Ok(());
            }
            let dense = Layout::dense(to.dtype.size(), layout.shape())?;
            let block = HostBlock::new(bytes)?;
            let target = pack::CopyDestination { data: block.data(), dtype: to.dtype, layout: &dense };
            pack::convert(&pack::CopySource { data, dtype, layout, order }, &target, 1)?;
            let queued = self.driver.upload(to.data, block.data().cast(), bytes, stream.raw());
            self.wait(SyncPoint::Stream(stream)).and(queued)?;
            watch.add(bytes);
            Ok(())
        }
    }

    /// Queues a copy of bytes from this GPU to another, or to itself.
    ///
    /// # Errors
    /// When a device fails.
    ///
    /// # Safety
    /// So many bytes are readable here and writable there, and live until the stream, one of this GPU, is past the copy.
    pub unsafe fn copy_to(
        &self,
        other: &Gpu,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let _entered = self.enter()?;
        let (from, to) = (from as Address, to as Address);
        // SAFETY: the caller's contract.
        unsafe { self.driver.copy_to_peer(to, other.context, from, self.context, bytes, stream.raw()) }
    }
}

impl DeviceSource<'_> {
    /// Whether its bytes are, one after the other, those of dense elements of this type.
    pub fn is_dense_as(&self, dtype: DType) -> bool {
        self.dtype == dtype && self.order == ByteOrder::Native && self.layout.is_dense()
    }
}

/// Where something begins, and its layout.
type Place<P> = (P, Layout);

/// The two halves of a copy, cut through the first dimension that has several; none where there is no such.
#[expect(clippy::type_complexity, reason = "two of two")]
fn halves(
    source: &DeviceSource<'_>,
    to: &HostDestination<'_>,
) -> Result<Option<[(Place<*const u8>, Place<*mut u8>); 2]>> {
    let Some(axis) = source.layout.shape().iter().position(|&length| length > 1) else { return Ok(None) };
    let length = source.layout.shape()[axis];
    let cut = |layout: &Layout, from: i64, to: i64| -> Result<(i64, Layout)> {
        let mut shape = layout.shape().to_vec();
        shape[axis] = to - from;
        let stride = layout.strides()[axis];
        Ok((from * stride, Layout::strided(layout.item(), &shape, layout.strides())?))
    };
    let half = |from: i64, end: i64| -> Result<_> {
        let (there, layout) = cut(source.layout, from, end)?;
        let (here, room) = cut(to.layout, from, end)?;
        let data = source.data.wrapping_offset(there as isize);
        Ok(((data, layout), (to.data.wrapping_offset(here as isize), room)))
    };
    Ok(Some([half(0, length / 2)?, half(length / 2, length)?]))
}

/// The type in which elements cross the link: the narrower, cast on the side that has it. Elements whose bytes are the
/// other way round are turned before they go.
fn narrower(from: DType, to: DType, order: ByteOrder) -> DType {
    if from.size() < to.size() && order == ByteOrder::Native { from } else { to }
}
