//! GPU memory in a conversion: ordering of shared memory between streams, and copies to, from and on a GPU.
//!
//! Source and target queue work on the current stream of their framework, or on streams that the framework does not tell.
//! For shared memory, the work that the source has queued is ordered before the work that the target will queue. When the
//! result dies, the order is reversed before the source's framework gets the memory back, because its allocator may reuse
//! the memory at once. The GPU waits in both cases, not the host, if the driver supports it.

use crate::conversion::host_copy::{SendPtr, internal_error, is_writable_without_overlap, tensor_in_block};
use crate::conversion::streams::Streams;
use crate::errors::Result;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
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
    let tensor = owned_tensor::stream_ordered(tensor, gpu, reusable_after, next_use, stream_owners);
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

/// The GPU whose memory a tensor is.
fn gpu_of(tensor: &Tensor<Owner>) -> tensorferry_core::Result<&'static Gpu> {
    let device = tensor.device();
    if !device.is_cuda() {
        return Err(internal_error("a tensor is not in GPU memory"));
    }
    Gpu::get(device.index)
}

/// Copies GPU memory into new host memory.
pub(crate) fn download(
    source: Tensor<Owner>,
    streams: Streams,
    dtype: DType,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<Tensor<Owner>> + Send {
    let ready_after = streams.ready_after.thread_independent();
    let source = HeldTensor::with_stream_owner(source, streams.owner);
    move |control| {
        let gpu = gpu_of(&source.tensor)?;
        let layout = Layout::dense(dtype.size(), source.tensor.layout().shape())?;
        let (block, transfer_path) = gpu.allocate_download(layout.bytes(), ring)?;
        let to = HostDestination { data: block.data(), dtype, layout: &layout };
        // SAFETY: `download` requires memory of this GPU, as `gpu_of` has checked, and a destination of the same shape that nothing
        // else uses. The block is new and has the bytes of the layout, whose shape is the source's. `source` and `block` live until
        // it returns, and `source` holds the owner of the stream. `allocate_download` chose the path for this block. Then every
        // element is written, as `tensor_in_block` requires.
        unsafe {
            gpu.download(&source.as_source(), &to, ready_after, transfer_path, control)?;
            tensor_in_block(block, dtype, layout)
        }
    }
}

/// Copies GPU memory into host memory of the caller, which is held.
pub(crate) fn download_into(
    source: Tensor<Owner>,
    streams: Streams,
    out: Tensor<Owner>,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send {
    let ready_after = streams.ready_after.thread_independent();
    let (source, out) = (HeldTensor::with_stream_owner(source, streams.owner), HeldTensor::new(out));
    move |control| {
        let gpu = gpu_of(&source.tensor)?;
        let to = &out.tensor;
        let has_same_shape = to.layout().shape() == source.tensor.layout().shape();
        if !(has_same_shape && to.device().is_host() && is_writable_without_overlap(to)) {
            return Err(internal_error("the destination of a download cannot be written"));
        }
        let to = HostDestination { data: to.data(), dtype: to.dtype(), layout: to.layout() };
        let is_dense = to.layout.is_dense();
        let transfer_path = match gpu.transfer_path(to.data, to.layout.bytes(), ring) {
            TransferPath::Pinned if !is_dense => TransferPath::Ring(ring),
            transfer_path => transfer_path,
        };
        // SAFETY: `download` requires memory of this GPU, as `gpu_of` has checked, and a writable destination of the same shape, as
        // was compared above. `source` and `out` hold the memory and the owner of the stream until it returns. `transfer_path`
        // returns `Pinned` only for pinned memory. No safe code of this crate reads or writes through the addresses meanwhile.
        unsafe { gpu.download(&source.as_source(), &to, ready_after, transfer_path, control) }
    }
}

/// A stream on which work runs after `point`.
fn stream_after(gpu: &'static Gpu, point: SyncPoint) -> tensorferry_core::Result<Stream> {
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
    data: SendPtr<u8>,
    dtype: DType,
    layout: Layout,
    device: Device,
    /// The streams on which its framework uses it.
    streams: Streams,
    /// Keeps the memory alive, unless the result does.
    #[expect(dead_code, reason = "held for its drop")]
    owner: Option<Owner>,
}

impl DeviceDestination {
    /// Memory at an address.
    ///
    /// # Safety
    /// The layout is dense. Its bytes from `data` on are writable memory of the GPU `device`, aligned for the type, and nothing else
    /// uses them until the copy into them is done. Until then they live, kept by `owner` or by the caller.
    pub(crate) unsafe fn new(
        data: *mut u8,
        dtype: DType,
        layout: Layout,
        device: Device,
        streams: Streams,
        owner: Option<Owner>,
    ) -> Self {
        Self { data: SendPtr::new(data), dtype, layout, device, streams, owner }
    }

    /// The memory of a dense, writable tensor.
    pub(crate) fn from_tensor(tensor: Tensor<Owner>, streams: Streams) -> tensorferry_core::Result<Self> {
        let (data, dtype, device) = (SendPtr::of(&tensor), tensor.dtype(), tensor.device());
        let is_usable = tensor.layout().is_dense() && is_writable_without_overlap(&tensor);
        if !(is_usable && device.is_cuda()) {
            return Err(internal_error("the destination of a copy to a GPU cannot be written"));
        }
        let layout = tensor.layout().clone();
        Ok(Self { data, dtype, layout, device, streams, owner: Some(tensor.into_owner()) })
    }
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
    move |control| {
        let to = &destination;
        if to.layout.shape() != source.tensor.layout().shape() {
            return Err(internal_error("the destination of a copy to a GPU has another shape"));
        }
        let copy = DeviceCopy {
            gpu: Gpu::get(to.device.index)?,
            source: source.as_source(),
            source_device: source.tensor.device(),
            source_points,
            data: to.data.get(),
            points: SyncPoints::of(&to.streams),
            dtype: to.dtype,
            layout: &to.layout,
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
    layout: &'a Layout,
    ring: RingOptions,
    control: &'a TransferControl,
}

impl DeviceCopy<'_> {
    fn run(self) -> tensorferry_core::Result<()> {
        if self.layout.is_empty() {
            return Ok(());
        }
        // SAFETY: `upload`, `convert` and `copy_from_peer` require a readable source, which the borrowed `Tensor` is. They require
        // a destination for its elements, aligned and unused: the contract of `DeviceDestination` says so, and `copy_to_device` has
        // compared the shapes. Both live until the copy is done: the last call of each arm orders the next use of the memory, also
        // by an allocator, after the stream. The streams are alive by the contract of `Stream::from_handle`, and of the GPU for
        // which their framework named them.
        unsafe {
            let stream = stream_after(self.gpu, self.points.ready_after)?;
            if self.control.is_timed() {
                self.gpu.wait(SyncPoint::Stream(stream))?;
                self.control.set_started();
            }
            let copied = match self.source_points {
                None => {
                    let (source, control) = (&self.source, self.control);
                    let copied = self.gpu.upload(source, self.data, self.dtype, stream, self.ring, control);
                    // A cast on the GPU may still be queued.
                    let is_awaited = control.is_timed() && copied.is_ok();
                    if is_awaited { self.gpu.wait_for_queued(stream) } else { copied }
                }
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
    /// The source is memory of another GPU, and the stream of `ready_after` is one of that GPU and alive. The destination is memory
    /// of this GPU with room for the elements, which nothing else uses, and `stream` is one of this GPU and alive.
    unsafe fn copy_from_peer(&self, ready_after: SyncPoint, stream: Stream) -> tensorferry_core::Result<()> {
        let peer = Gpu::get(self.source_device.index)?;
        let bytes = self.layout.bytes();
        // SAFETY: `convert` and `copy_to` require memory that lives until the peer's stream has passed the copy, with room for the
        // elements. The contract of this function says so of source and destination, the scratch block has `bytes` bytes, and the
        // last line waits for that stream. `wait` on this GPU comes first, so that earlier work does not use the destination.
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
