//! GPU memory on its way: who waits for whom, and copies to, from and on a GPU.
//!
//! Each end of a trip queues its work somewhere: on its framework's current stream, or on streams that it does not name.
//! When memory is shared, what the source's end has queued is ordered before what the target's end will queue; when the
//! result dies, the other way round, before the memory goes back to the source's framework, which may hand it out again
//! at once. Nobody waits on the host.

use crate::conversion::streams::Streams;
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{DType, Device, Layout, Tensor};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};

/// Hands memory from one end to the other, in order. Names the side of the other end that was told to wait, unless the
/// memory is known to be ready.
pub(crate) fn share(
    tensor: Tensor<Owner>,
    from: Streams,
    to: Streams,
) -> Result<(Tensor<Owner>, Option<SyncPoint>)> {
    let gpu = Gpu::get(tensor.device().index)?;
    // SAFETY: streams that the frameworks have just named, or ours.
    let waits = unsafe {
        if from.gives == SyncPoint::Nothing || (to.asks && gpu.is_done(from.gives)?) {
            None
        } else {
            gpu.order(from.gives, to.takes)?;
            Some(to.takes)
        }
    };
    if from.takes == to.gives && from.takes.lasting() != SyncPoint::Everything {
        return Ok((tensor, waits));
    }
    let keepers = [from.keeper, to.keeper];
    let (gives, takes) = (to.gives.lasting(), from.takes.lasting());
    // SAFETY: a borrowed owner holds the first one until its own drop.
    Ok((unsafe { tensor.map_owner(|owner| owner.borrowed(gpu, gives, takes, keepers)) }, waits))
}

/// Memory of a tensor that moves to another thread with what keeps it.
pub(crate) struct Held {
    pub(crate) tensor: Tensor<Owner>,
    /// What keeps the streams of both ends.
    _keepers: [Option<Owner>; 2],
}

impl Held {
    pub(crate) fn new(tensor: Tensor<Owner>, keepers: [Option<Owner>; 2]) -> Self {
        Self { tensor, _keepers: keepers }
    }

    fn view(&self) -> DeviceSource<'_> {
        let tensor = &self.tensor;
        DeviceSource {
            data: tensor.data(),
            dtype: tensor.dtype(),
            layout: tensor.layout(),
            order: tensor.order(),
        }
    }
}

/// Brings the values of GPU memory into a block of our own.
pub(crate) fn download(
    source: Tensor<Owner>,
    streams: Streams,
    dtype: DType,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<HostBlock> + Send {
    let (after, source) = (streams.gives.lasting(), Held::new(source, [streams.keeper, None]));
    move |watch| {
        let gpu = Gpu::get(source.tensor.device().index)?;
        let layout = Layout::dense(dtype.size(), source.tensor.layout().shape())?;
        let (block, transfer_path) = gpu.allocate_download(layout.bytes(), ring)?;
        let to = HostDestination { data: block.data(), dtype, layout: &layout };
        // SAFETY: the source is a checked tensor whose owner is held until this is done, and the target is a block of
        // ours with room for the result.
        unsafe { gpu.fetch(&source.view(), &to, after, transfer_path, watch)? };
        Ok(block)
    }
}

/// Brings the values of GPU memory into host memory of the caller's, which is checked to be writable, and held.
pub(crate) fn download_into(
    source: Tensor<Owner>,
    streams: Streams,
    out: Tensor<Owner>,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send {
    let after = streams.gives.lasting();
    let (source, out) = (Held::new(source, [streams.keeper, None]), Held::new(out, [None, None]));
    move |watch| {
        let gpu = Gpu::get(source.tensor.device().index)?;
        let to = &out.tensor;
        let to = HostDestination { data: to.data(), dtype: to.dtype(), layout: to.layout() };
        let dense = to.layout.is_dense();
        let transfer_path = match gpu.transfer_path(to.data, to.layout.bytes(), ring) {
            TransferPath::Pinned if !dense => TransferPath::Ring(ring),
            transfer_path => transfer_path,
        };
        // SAFETY: as in `download`; the caller has checked the target, and its owner is held.
        unsafe { gpu.fetch(&source.view(), &to, after, transfer_path, watch) }
    }
}

/// A stream that is past what is queued on a side.
///
/// # Safety
/// As [`Gpu::order`].
unsafe fn meet(gpu: &'static Gpu, side: SyncPoint) -> tensorferry_core::Result<Stream> {
    match side {
        SyncPoint::Stream(stream) => Ok(stream),
        side => {
            let meeting = gpu.sync_stream()?;
            // SAFETY: the caller's contract, and a stream of ours.
            unsafe { gpu.order(side, SyncPoint::Stream(meeting))? };
            Ok(meeting)
        }
    }
}

/// Dense GPU memory to fill, and where its framework queues work on it.
pub(crate) struct Target {
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) streams: Streams,
    /// What keeps the memory, where the result does not.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) owner: Option<Owner>,
}

/// Brings a tensor, wherever it is, into memory on a GPU.
pub(crate) fn fill(
    source: Tensor<Owner>,
    streams: Option<Streams>,
    target: Target,
    ring: RingOptions,
) -> impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send {
    let ends = streams.as_ref().map(|streams| (streams.gives.lasting(), streams.takes.lasting()));
    let source = Held::new(source, [streams.and_then(|streams| streams.keeper), None]);
    let target = Sent(target);
    move |watch| {
        let Target { data, dtype, device, streams: Streams { gives, takes, .. }, .. } = &{ &target }.0;
        let (gives, takes) = (gives.lasting(), takes.lasting());
        let job = Fill {
            gpu: Gpu::get(device.index)?,
            from: source.tensor.device(),
            layout: Layout::dense(dtype.size(), source.tensor.layout().shape())?,
            source: source.view(),
            ends,
            to: *data,
            room: (gives, takes),
            dtype: *dtype,
            ring,
            watch,
        };
        job.run()
    }
}

/// Goes to another thread.
struct Sent<T>(T);

// SAFETY: an address of memory that is held beside it or by the result, and facts; owners are let go on any thread.
unsafe impl Send for Sent<Target> {}

/// Brings a tensor into memory on a GPU.
struct Fill<'a> {
    gpu: &'static Gpu,
    source: DeviceSource<'a>,
    from: Device,
    /// Where the source's work is queued, before and after; none for host memory.
    ends: Option<(SyncPoint, SyncPoint)>,
    to: *mut u8,
    /// The same for the target.
    room: (SyncPoint, SyncPoint),
    dtype: DType,
    layout: Layout,
    ring: RingOptions,
    watch: &'a TransferControl,
}

impl Fill<'_> {
    fn run(self) -> tensorferry_core::Result<()> {
        if self.layout.is_empty() {
            return Ok(());
        }
        // SAFETY: the source is a checked tensor whose owner the caller holds until its framework's streams are past the
        // copy; the target is fresh memory of a framework, which it keeps likewise.
        unsafe {
            let stream = meet(self.gpu, self.room.0)?;
            let filled = match self.ends {
                None => self.gpu.send(&self.source, self.to, self.dtype, stream, self.ring, self.watch),
                Some((gives, takes)) if self.from.index == self.gpu.index() => {
                    self.gpu.order(gives, SyncPoint::Stream(stream))?;
                    let copied = self.gpu.convert(&self.source, self.to, self.dtype, stream);
                    // The source may be written, or go, as soon as this is over, also where only a part was queued.
                    self.gpu.order(SyncPoint::Stream(stream), takes).and(copied)
                }
                Some((gives, _)) => self.copy_from_peer(gives, stream),
            };
            // So may the target, if it goes because of an error.
            self.gpu.order(SyncPoint::Stream(stream), self.room.1).and(filled)
        }
    }

    /// From another GPU: packed over there if it has to be. The host waits for both ends, which have no stream in common.
    ///
    /// # Safety
    /// As in `run`.
    unsafe fn copy_from_peer(&self, gives: SyncPoint, stream: Stream) -> tensorferry_core::Result<()> {
        let far = Gpu::get(self.from.index)?;
        let bytes = self.layout.bytes();
        // SAFETY: as in `run`.
        unsafe {
            let there = meet(far, gives)?;
            let mut scratch = None;
            let from = if self.source.is_dense_as(self.dtype) {
                self.source.data
            } else {
                let packed = scratch.insert(DeviceBlock::plain(far, bytes, there)?).data();
                far.convert(&self.source, packed, self.dtype, there)?;
                packed.cast_const()
            };
            self.gpu.wait(SyncPoint::Stream(stream))?;
            let queued = far.copy_to(self.gpu, from, self.to, bytes, there);
            far.wait(SyncPoint::Stream(there)).and(queued)
        }
    }
}
