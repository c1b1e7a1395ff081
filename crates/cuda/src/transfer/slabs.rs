//! Downloads that need packing or casting, one slab at a time.
//!
//! A slab is the range of the source that is packed and cast into scratch memory on the GPU before it crosses.

use super::control::TransferControl;
use super::path::HostDestination;
use crate::convert::DeviceSource;
use crate::driver::handles::Address;
use crate::gpu::Gpu;
use crate::memory::DeviceBlock;
use crate::stream::{Stream, SyncPoint};
use tensorferry_core::chunks::Chunks;
use tensorferry_core::{ErrorKind, Layout, Result};

/// With less scratch memory than this, the download fails instead of going on in smaller slabs.
const MIN_SLAB_BYTES: usize = 8 << 20;
/// Larger slabs do not pay: allocating fresh memory takes the GPU a quarter of the time that the link needs for as many
/// bytes.
const MAX_SLAB_BYTES: usize = 32 << 20;

/// Slabs that may be queued before the host waits for the stream.
const MAX_QUEUED_SLABS: usize = 8;

impl Gpu {
    /// Packs and casts on the GPU, slab by slab, and passes each slab to `copy_dense`.
    ///
    /// # Safety
    /// Source and destination as for [`Gpu::download`]; the work that fills the source is ordered before the stream's.
    /// `copy_dense` may be given any slab on the GPU and the part of the destination that it belongs to.
    pub(super) unsafe fn download_in_slabs(
        &'static self,
        source: &DeviceSource<'_>,
        to: &HostDestination<'_>,
        stream: Stream,
        control: &TransferControl,
        copy_dense: &dyn Fn(Address, &HostDestination<'_>) -> Result<()>,
    ) -> Result<()> {
        let total_bytes = to.layout.bytes();
        if !to.layout.is_dense()
            && total_bytes > MAX_SLAB_BYTES
            && let Some(halves) = split(source, to)?
        {
            // Neither the source nor the destination is dense, so a slab is a range of one dimension.
            for half in &halves {
                let source = DeviceSource { data: half.source_data, layout: &half.source_layout, ..*source };
                let to =
                    HostDestination { data: half.destination_data, layout: &half.destination_layout, ..*to };
                // SAFETY: `split` cuts both layouts at the same index, so each half lies within the extents of this
                // function's contract, and the halves have the same shape.
                unsafe { self.download_in_slabs(&source, &to, stream, control, copy_dense)? };
            }
            return Ok(());
        }
        let min_bytes = if to.layout.is_dense() { MIN_SLAB_BYTES } else { total_bytes };
        let scratch =
            self.allocate_scratch(total_bytes.min(MAX_SLAB_BYTES.max(min_bytes)), min_bytes, stream)?;
        let slabs = Chunks::new(source.layout, scratch.bytes() / to.dtype.size());
        for index in 0..slabs.count() {
            control.check()?;
            if index % MAX_QUEUED_SLABS == MAX_QUEUED_SLABS - 1 {
                self.wait(SyncPoint::Stream(stream))?;
            }
            let slab = slabs.get(index)?;
            let data = source.data.wrapping_offset(slab.offset as isize);
            let slab_source = DeviceSource { data, layout: &slab.layout, ..*source };
            // SAFETY: the slab lies within the source, which is readable and whose work is ordered before the stream's.
            // `Chunks::new` limits a slab to the elements that fit into the scratch memory, which is aligned for every
            // type. The scratch memory is freed in the order of the stream, which also orders this write after the copy
            // of the slab before.
            unsafe { self.convert(&slab_source, scratch.data(), to.dtype, stream)? };
            if slabs.count() == 1 {
                return copy_dense(scratch.data() as Address, to);
            }
            let layout = Layout::dense(to.dtype.size(), &[slab.layout.count() as i64])?;
            let data = to.data.wrapping_add(slab.first * to.dtype.size());
            copy_dense(
                scratch.data() as Address,
                &HostDestination { data, dtype: to.dtype, layout: &layout },
            )?;
        }
        Ok(())
    }

    /// Scratch memory of `bytes`, or of half as much as often as the GPU is out of memory, down to `min_bytes`.
    fn allocate_scratch(
        &'static self,
        bytes: usize,
        min_bytes: usize,
        stream: Stream,
    ) -> Result<DeviceBlock> {
        let mut attempt = bytes;
        loop {
            match DeviceBlock::new(self, attempt, stream) {
                Err(error)
                    if error.kind() == ErrorKind::OutOfMemory && attempt / 2 >= min_bytes.min(bytes) =>
                {
                    attempt /= 2
                }
                allocated => return allocated,
            }
        }
    }
}

/// One half of a copy.
struct Half {
    source_data: *const u8,
    source_layout: Layout,
    destination_data: *mut u8,
    destination_layout: Layout,
}

/// Splits a copy along the first dimension that is longer than one; `None` if no dimension is.
fn split(source: &DeviceSource<'_>, to: &HostDestination<'_>) -> Result<Option<[Half; 2]>> {
    let Some(axis) = source.layout.shape().iter().position(|&length| length > 1) else { return Ok(None) };
    let length = source.layout.shape()[axis];
    let slice = |layout: &Layout, begin: i64, end: i64| -> Result<(i64, Layout)> {
        let mut shape = layout.shape().to_vec();
        shape[axis] = end - begin;
        let stride = layout.strides()[axis];
        Ok((begin * stride, Layout::strided(layout.item(), &shape, layout.strides())?))
    };
    let half = |begin: i64, end: i64| -> Result<_> {
        let (source_offset, source_layout) = slice(source.layout, begin, end)?;
        let (destination_offset, destination_layout) = slice(to.layout, begin, end)?;
        Ok(Half {
            source_data: source.data.wrapping_offset(source_offset as isize),
            source_layout,
            destination_data: to.data.wrapping_offset(destination_offset as isize),
            destination_layout,
        })
    };
    Ok(Some([half(0, length / 2)?, half(length / 2, length)?]))
}
