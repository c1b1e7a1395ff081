//! GPU memory in a conversion: ordering of shared memory between streams, and copies to, from and on a GPU.
//!
//! Source and target queue work on the current stream of their framework, or on streams that the framework does not tell.
//! For shared memory, the work that the source has queued is ordered before the work that the target will queue. When the
//! result dies, the order is reversed before the source's framework gets the memory back, because its allocator may reuse
//! the memory at once. The GPU waits in both cases, not the host, if the driver supports it.

use crate::conversion::streams::Streams;
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{DType, Device, Layout, Tensor};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};

/// Orders the target's work after the source's, and reverses the order when the result dies. Returns the sync point of the
/// target that waits, or `None` if the memory is known to be ready.
pub(crate) fn order_sharing(
    tensor: Tensor<Owner>,
    from: Streams,
    to: Streams,
) -> Result<(Tensor<Owner>, Option<SyncPoint>)> {
    let gpu = Gpu::get(tensor.device().index)?;
    let waiting = if from.ready_after == SyncPoint::Complete
        || (to.prefers_ready_memory && gpu.is_done(from.ready_after)?)
    {
        None
    } else {
        gpu.order(from.ready_after, to.next_use)?;
        Some(to.next_use)
    };
    if from.next_use == to.ready_after && from.next_use.thread_independent() != SyncPoint::AllStreams {
        return Ok((tensor, waiting));
    }
    let stream_owners = [from.owner, to.owner];
    let (reusable_after, next_use) =
        (to.ready_after.thread_independent(), from.next_use.thread_independent());
    // SAFETY: a stream-ordered owner holds the first one until its own drop.
    let tensor = unsafe {
        tensor.map_owner(|owner| owner.stream_ordered(gpu, reusable_after, next_use, stream_owners))
    };
    Ok((tensor, waiting))
}

/// A tensor that moves to another thread, and the owners of the streams that its copy uses.
pub(crate) struct HeldTensor {
    pub(crate) tensor: Tensor<Owner>,
    _stream_owner: Option<Owner>,
}

impl HeldTensor {
    pub(crate) fn new(tensor: Tensor<Owner>) -> Self {
        Self { tensor, _stream_owner: None }
    }

    fn with_stream_owner(tensor: Tensor<Owner>, owner: Option<Owner>) -> Self {
        Self { tensor, _stream_owner: owner }
    }

    fn as_source(&self) -> DeviceSource<'_> {
        let tensor = &self.tensor;
        DeviceSource {
            data: tensor.data(),
            dtype: tensor.dtype(),
            layout: tensor.layout(),
            order: tensor.order(),
        }
    }
}

/// Copies GPU memory into a new host block.
pub(crate) fn download(
    source: Tensor<Owner>,
    streams: Streams,
    dtype: DType,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<HostBlock> + Send {
    let ready_after = streams.ready_after.thread_independent();
    let source = HeldTensor::with_stream_owner(source, streams.owner);
    move |control| {
        let gpu = Gpu::get(source.tensor.device().index)?;
        let layout = Layout::dense(dtype.size(), source.tensor.layout().shape())?;
        let (block, transfer_path) = gpu.allocate_download(layout.bytes(), ring)?;
        let to = HostDestination { data: block.data(), dtype, layout: &layout };
        // SAFETY: the source is a checked tensor whose owner is held until this is done, and the target is a block of
        // ours with room for the result.
        unsafe { gpu.download(&source.as_source(), &to, ready_after, transfer_path, control)? };
        Ok(block)
    }
}

/// Copies GPU memory into host memory of the caller, which is checked to be writable, and held.
pub(crate) fn download_into(
    source: Tensor<Owner>,
    streams: Streams,
    out: Tensor<Owner>,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send {
    let ready_after = streams.ready_after.thread_independent();
    let (source, out) = (HeldTensor::with_stream_owner(source, streams.owner), HeldTensor::new(out));
    move |control| {
        let gpu = Gpu::get(source.tensor.device().index)?;
        let to = &out.tensor;
        let to = HostDestination { data: to.data(), dtype: to.dtype(), layout: to.layout() };
        let is_dense = to.layout.is_dense();
        let transfer_path = match gpu.transfer_path(to.data, to.layout.bytes(), ring) {
            TransferPath::Pinned if !is_dense => TransferPath::Ring(ring),
            transfer_path => transfer_path,
        };
        // SAFETY: as in `download`; the caller has checked the target, and its owner is held.
        unsafe { gpu.download(&source.as_source(), &to, ready_after, transfer_path, control) }
    }
}

/// A stream on which work runs after `point`.
///
/// # Safety
/// As [`Gpu::order`].
unsafe fn stream_after(gpu: &'static Gpu, point: SyncPoint) -> tensorferry_core::Result<Stream> {
    match point {
        SyncPoint::Stream(stream) => Ok(stream),
        point => {
            let stream = gpu.sync_stream()?;
            gpu.order(point, SyncPoint::Stream(stream))?;
            Ok(stream)
        }
    }
}

/// Dense GPU memory to fill.
pub(crate) struct DeviceDestination {
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    /// The streams on which its framework uses it.
    pub(crate) streams: Streams,
    /// Keeps the memory alive, unless the result does.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) owner: Option<Owner>,
}

/// Copies a tensor on any device into GPU memory. `streams` are those of the source, if it is on a GPU.
pub(crate) fn copy_to_device(
    source: Tensor<Owner>,
    streams: Option<Streams>,
    destination: DeviceDestination,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send {
    let source_points = streams.as_ref().map(SyncPoints::of);
    let source = HeldTensor::with_stream_owner(source, streams.and_then(|streams| streams.owner));
    let destination = AssertSend(destination);
    move |control| {
        let to = &{ &destination }.0;
        let copy = DeviceCopy {
            gpu: Gpu::get(to.device.index)?,
            source: source.as_source(),
            source_device: source.tensor.device(),
            source_points,
            data: to.data,
            points: SyncPoints::of(&to.streams),
            dtype: to.dtype,
            layout: Layout::dense(to.dtype.size(), source.tensor.layout().shape())?,
            ring,
            control,
        };
        copy.run()
    }
}

/// The sync points of [`Streams`], valid on any thread.
#[derive(Clone, Copy)]
struct SyncPoints {
    ready_after: SyncPoint,
    next_use: SyncPoint,
}

impl SyncPoints {
    fn of(streams: &Streams) -> Self {
        Self {
            ready_after: streams.ready_after.thread_independent(),
            next_use: streams.next_use.thread_independent(),
        }
    }
}

/// A value that moves to another thread.
struct AssertSend<T>(T);

// SAFETY: an address of memory that is held beside it or by the result, and plain values; owners are dropped on any thread.
unsafe impl Send for AssertSend<DeviceDestination> {}

/// One copy into GPU memory.
struct DeviceCopy<'a> {
    gpu: &'static Gpu,
    source: DeviceSource<'a>,
    source_device: Device,
    /// `None` for host memory.
    source_points: Option<SyncPoints>,
    /// The destination.
    data: *mut u8,
    points: SyncPoints,
    dtype: DType,
    layout: Layout,
    ring: RingOptions,
    control: &'a TransferControl,
}

impl DeviceCopy<'_> {
    fn run(self) -> tensorferry_core::Result<()> {
        if self.layout.is_empty() {
            return Ok(());
        }
        // SAFETY: the source is a checked tensor whose owner the caller holds until its framework's streams are past the
        // copy; the target is fresh memory of a framework, which it keeps likewise.
        unsafe {
            let stream = stream_after(self.gpu, self.points.ready_after)?;
            let copied = match self.source_points {
                None => self.gpu.upload(&self.source, self.data, self.dtype, stream, self.ring, self.control),
                Some(points) if self.source_device.index == self.gpu.index() => {
                    self.gpu.order(points.ready_after, SyncPoint::Stream(stream))?;
                    let copied = self.gpu.convert(&self.source, self.data, self.dtype, stream);
                    // The source may be written or freed as soon as this returns, also if the copy was queued only in part.
                    self.gpu.order(SyncPoint::Stream(stream), points.next_use).and(copied)
                }
                Some(points) => self.copy_from_peer(points.ready_after, stream),
            };
            // The destination may be freed too, after an error.
            self.gpu.order(SyncPoint::Stream(stream), self.points.next_use).and(copied)
        }
    }

    /// Copies from another GPU, which packs the values first if they are not dense. The host waits for both GPUs, because
    /// they have no stream in common.
    ///
    /// # Safety
    /// As in `run`.
    unsafe fn copy_from_peer(&self, ready_after: SyncPoint, stream: Stream) -> tensorferry_core::Result<()> {
        let peer = Gpu::get(self.source_device.index)?;
        let bytes = self.layout.bytes();
        // SAFETY: as in `run`.
        unsafe {
            let peer_stream = stream_after(peer, ready_after)?;
            let mut scratch = None;
            let from = if self.source.is_dense_as(self.dtype) {
                self.source.data
            } else {
                let packed = scratch.insert(DeviceBlock::new_exportable(peer, bytes, peer_stream)?).data();
                peer.convert(&self.source, packed, self.dtype, peer_stream)?;
                packed.cast_const()
            };
            self.gpu.wait(SyncPoint::Stream(stream))?;
            let queued = peer.copy_to(self.gpu, from, self.data, bytes, peer_stream);
            peer.wait(SyncPoint::Stream(peer_stream)).and(queued)
        }
    }
}
