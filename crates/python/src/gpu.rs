//! GPU memory on its way: who waits for whom, and copies to, from and on a GPU.
//!
//! Each end of a trip queues its work somewhere: on its framework's current stream, or on streams that it does not name.
//! When memory is shared, what the source's end has queued is ordered before what the target's end will queue; when the
//! result dies, the other way round, before the memory goes back to the source's framework, which may hand it out again
//! at once. Nobody waits on the host.

use crate::errors::Result;
use crate::owner::Owner;
use crate::settings;
use crate::streams::{Room, Streams};
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor, pack};
use tensorferry_cuda::{DeviceBlock, Gpu, Side, Source, Stream};

/// Hands memory from one end to the other, in order. Names the side of the other end that was told to wait, unless the
/// memory is known to be ready.
pub(crate) fn hand_over(
    tensor: Tensor<Owner>,
    from: Streams,
    to: Streams,
) -> Result<(Tensor<Owner>, Option<Side>)> {
    let gpu = Gpu::get(tensor.device().index)?;
    // SAFETY: streams that the frameworks have just named, or ours.
    let waits = unsafe {
        if from.gives == Side::Nothing || (to.asks && gpu.is_done(from.gives)?) {
            None
        } else {
            gpu.order(from.gives, to.takes)?;
            Some(to.takes)
        }
    };
    if from.takes == to.gives && from.takes != Side::Everything {
        return Ok((tensor, waits));
    }
    let keepers = [from.keeper, to.keeper];
    Ok((tensor.map_owner(|owner| owner.borrowed(gpu, to.gives, from.takes, keepers)), waits))
}

/// The values of GPU memory in host memory of our own.
pub(crate) fn download(
    py: Python<'_>,
    source: &Tensor<Owner>,
    streams: &Streams,
    dtype: DType,
) -> Result<Tensor<Owner>> {
    let gpu = Gpu::get(source.device().index)?;
    let layout = Layout::dense(dtype.size(), source.layout().shape())?;
    let block = HostBlock::new(layout.bytes())?;
    let job = Download {
        gpu,
        source: view(source),
        after: streams.gives,
        to: block.data(),
        dtype,
        bytes: layout.bytes(),
    };
    py.detach(|| job.run())?;
    let data = block.data();
    let owner = Owner::Block(block);
    // SAFETY: the block has as many bytes as the layout, and the owner is the block.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner) }?)
}

/// Brings GPU memory to the host.
struct Download<'a> {
    gpu: &'static Gpu,
    source: Source<'a>,
    after: Side,
    to: *mut u8,
    dtype: DType,
    bytes: usize,
}

// SAFETY: run by the thread that made it; it only has to cross the border of `detach`.
unsafe impl Send for Download<'_> {}

impl Download<'_> {
    fn run(self) -> tensorferry_core::Result<()> {
        let Self { gpu, source, after, to, dtype, bytes } = self;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the source is a checked tensor whose owner the caller holds until this is done, and the target is a
        // block of ours with room for the result.
        unsafe {
            let stream = meet(gpu, after)?;
            let plain =
                source.layout.is_dense() && source.dtype == dtype && source.order == ByteOrder::Native;
            if plain {
                return gpu.download(source.data, to, bytes, stream);
            }
            let packed = DeviceBlock::new(gpu, bytes, stream)?;
            gpu.convert(&source, packed.data(), dtype, stream)?;
            gpu.download(packed.data(), to, bytes, stream)
        }
    }
}

/// A stream that is past what is queued on a side.
///
/// # Safety
/// As [`Gpu::order`].
unsafe fn meet(gpu: &'static Gpu, side: Side) -> tensorferry_core::Result<Stream> {
    match side {
        Side::Stream(stream) => Ok(stream),
        Side::Nothing => Ok(Stream::LEGACY),
        Side::Everything => {
            // SAFETY: the caller's contract.
            unsafe { gpu.order(side, Side::Stream(Stream::LEGACY))? };
            Ok(Stream::LEGACY)
        }
    }
}

/// Fills memory of a framework's own with the values of a tensor, wherever that is.
pub(crate) fn fill(
    py: Python<'_>,
    source: &Tensor<Owner>,
    streams: Option<&Streams>,
    room: &Room<'_>,
    dtype: DType,
    device: Device,
) -> Result<()> {
    let gpu = Gpu::get(device.index)?;
    let layout = Layout::dense(dtype.size(), source.layout().shape())?;
    let job = Fill {
        gpu,
        source: view(source),
        from: source.device(),
        ends: streams.map(|streams| (streams.gives, streams.takes)),
        to: room.data,
        room: (room.streams.gives, room.streams.takes),
        dtype,
        layout,
    };
    Ok(py.detach(|| job.run())?)
}

/// Brings a tensor into memory on a GPU.
struct Fill<'a> {
    gpu: &'static Gpu,
    source: Source<'a>,
    from: Device,
    /// Where the source's work is queued, before and after; none for host memory.
    ends: Option<(Side, Side)>,
    to: *mut u8,
    /// The same for the target.
    room: (Side, Side),
    dtype: DType,
    layout: Layout,
}

// SAFETY: as for `Download`.
unsafe impl Send for Fill<'_> {}

impl Fill<'_> {
    fn run(self) -> tensorferry_core::Result<()> {
        if self.layout.is_empty() {
            return Ok(());
        }
        // SAFETY: the source is a checked tensor whose owner the caller holds until its framework's streams are past the
        // copy; the target is fresh memory of a framework, which it keeps likewise.
        unsafe {
            let stream = meet(self.gpu, self.room.0)?;
            match self.ends {
                None => self.upload(stream)?,
                Some((gives, takes)) if self.from.index == self.gpu.index() => {
                    self.gpu.order(gives, Side::Stream(stream))?;
                    self.gpu.convert(&self.source, self.to, self.dtype, stream)?;
                    // The source may be written, or go, as soon as this is over.
                    self.gpu.order(Side::Stream(stream), takes)?;
                }
                Some((gives, _)) => self.copy_from_peer(gives, stream)?,
            }
            self.gpu.order(Side::Stream(stream), self.room.1)?;
        }
        Ok(())
    }

    /// # Safety
    /// As in `run`.
    unsafe fn upload(&self, stream: Stream) -> tensorferry_core::Result<()> {
        let bytes = self.layout.bytes();
        let Source { data, dtype, layout, order } = self.source;
        // SAFETY: as in `run`; the block has room for the packed source.
        unsafe {
            if layout.is_dense() && dtype == self.dtype && order == ByteOrder::Native {
                return self.gpu.upload(data, self.to, bytes, stream);
            }
            let block = HostBlock::new(bytes)?;
            let target = pack::Destination { data: block.data(), dtype: self.dtype, layout: &self.layout };
            pack::convert(&pack::Source { data, dtype, layout, order }, &target, settings::threads())?;
            self.gpu.upload(block.data(), self.to, bytes, stream)
        }
    }

    /// From another GPU: packed over there. The host waits for both ends, which have no stream in common.
    ///
    /// # Safety
    /// As in `run`.
    unsafe fn copy_from_peer(&self, gives: Side, stream: Stream) -> tensorferry_core::Result<()> {
        let far = Gpu::get(self.from.index)?;
        let bytes = self.layout.bytes();
        // SAFETY: as in `run`.
        unsafe {
            let there = meet(far, gives)?;
            let packed = DeviceBlock::plain(far, bytes, there)?;
            far.convert(&self.source, packed.data(), self.dtype, there)?;
            self.gpu.wait(Side::Stream(stream))?;
            far.copy_to(self.gpu, packed.data(), self.to, bytes, there)?;
            far.wait(Side::Stream(there))
        }
    }
}

fn view(tensor: &Tensor<Owner>) -> Source<'_> {
    Source { data: tensor.data(), dtype: tensor.dtype(), layout: tensor.layout(), order: tensor.order() }
}
