//! Copies on GPUs: packing and casting within one GPU, and byte copies between two.
//!
//! The driver copies dense memory. The kernels of this crate gather, transpose and cast.

use crate::driver::handles::Address;
use crate::gpu::Gpu;
use crate::jobs::{Dense, Gather, MOST as MAX_GATHER_DIMENSIONS, Planes};
use crate::kernels::{Grid, Kernel, KernelFunction};
use crate::memory::DeviceBlock;
use crate::stream::Stream;
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result};

/// A tensor that is read, on the GPU or, for uploads, on the host.
#[derive(Clone, Copy)]
pub struct DeviceSource<'a> {
    /// The first element.
    pub data: *const u8,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// Byte order of the elements.
    pub order: ByteOrder,
}

/// Threads of a block in the kernels that loop over elements.
const BLOCK_THREADS: u32 = 256;
/// Blocks of a grid that loops over elements: sixteen for each multiprocessor of a large GPU. Threads loop.
const MAX_LOOP_BLOCKS: u64 = 16 * 160;
/// CUDA's limit on the blocks of a grid in its second and third dimension.
const MAX_GRID_YZ_BLOCKS: u64 = 65_535;
/// Half of CUDA's limit on the blocks of a grid in its first dimension.
const MAX_GRID_X_BLOCK_PAIRS: u64 = 1 << 30;

impl Gpu {
    /// Queues a copy of the source into dense row-major memory, cast to `dtype`.
    ///
    /// # Errors
    /// When the device fails, or elements have a size that no kernel supports.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceSource, Gpu, Stream};
    /// # use tensorferry_core::{ByteOrder, DType, Layout, Result};
    /// fn convert(gpu: &'static Gpu, source: &DeviceSource<'_>, to: *mut u8) -> Result<()> {
    ///     gpu.convert(source, to, DType::Float32, Stream::LEGACY)
    /// }
    /// ```
    ///
    /// # Safety
    /// - The item size of the source's layout is that of its type, and this GPU can read the source over the extent of its
    ///   layout. The work that fills it is ordered before the stream's.
    /// - This GPU can write the target, which has room for as many elements of `dtype` as the source has, is aligned for them
    ///   and does not overlap the source. Nobody else uses it.
    /// - Both live until the stream has passed the copy.
    pub unsafe fn convert(
        &'static self,
        source: &DeviceSource<'_>,
        to: *mut u8,
        dtype: DType,
        stream: Stream,
    ) -> Result<()> {
        let (layout, item) = (source.layout, source.dtype.size());
        if layout.is_empty() {
            return Ok(());
        }
        let _entered = self.enter()?;
        let runs = layout.runs();
        let is_same_type = source.dtype == dtype && source.order == ByteOrder::Native;
        let unit = unit(source, &runs);
        // SAFETY: source and target meet this function's contract, and so those of `gather`, `cast`, `transpose` and of
        // `cuMemcpyDtoDAsync`, which are parts of it. `unit` divides every address of the source, and `vector_unit` those
        // of the target too. `packed` has room for the source's elements, and is aligned for every type; it is freed in
        // the order of the stream, after the kernels that use it.
        unsafe {
            let cast_packed = |packed: &DeviceBlock| {
                let layout = Layout::dense(item, layout.shape())?;
                let source = DeviceSource { data: packed.data(), layout: &layout, ..*source };
                self.cast(&source, &layout.runs(), to, dtype, stream)
            };
            if unit < item && is_same_type {
                return self.gather(source, &in_units(&runs, item, unit), unit, to, stream);
            }
            if unit < item {
                // The cast kernel needs aligned elements, so they are packed first.
                let packed = DeviceBlock::new(self, layout.bytes(), stream)?;
                self.gather(source, &in_units(&runs, item, unit), unit, packed.data(), stream)?;
                return cast_packed(&packed);
            }
            if !is_same_type {
                if source.order == ByteOrder::Native
                    && self.kernels.get(self.driver, Kernel::Dense(source.dtype, dtype))?.is_some()
                    && planes(source, &runs, to).is_some()
                    && let Ok(packed) = DeviceBlock::new(self, layout.bytes(), stream)
                    && let Some(planes) = planes(source, &runs, packed.data())
                {
                    // Two passes with coalesced access are faster than one without.
                    self.transpose(planes, &runs, source.dtype, stream)?;
                    return cast_packed(&packed);
                }
                return self.cast(source, &runs, to, dtype, stream);
            }
            if layout.is_dense() {
                return self.driver.copy(
                    to as Address,
                    source.data as Address,
                    layout.bytes(),
                    stream.pointer(),
                );
            }
            if let Some(planes) = planes(source, &runs, to) {
                return self.transpose(planes, &runs, dtype, stream);
            }
            let unit = vector_unit(source, &runs, to);
            self.gather(source, &in_units(&runs, item, unit), unit, to, stream)
        }
    }

    /// Queues a copy of the source into dense memory, in units of `unit` bytes. `runs` are the loops over the units.
    ///
    /// # Safety
    /// As [`Gpu::convert`] without a cast. `unit` divides the source's address, every step of `runs`, and the target's
    /// address.
    unsafe fn gather(
        &self,
        source: &DeviceSource<'_>,
        runs: &[(i64, i64)],
        unit: usize,
        to: *mut u8,
        stream: Stream,
    ) -> Result<()> {
        let mut job = gather_job(source, runs, to);
        let kernel = self.require_kernel(Kernel::Gather(unit), source.dtype)?;
        // SAFETY: `gather_N` has one parameter, a `Gather`. It reads the units of the source and writes as many to the
        // target, which meet this function's contract.
        unsafe { kernel.launch(self.driver, loop_grid(job.count), stream, [(&raw mut job).cast()]) }
    }

    /// Queues a copy of the source into dense memory of another type.
    ///
    /// # Safety
    /// As [`Gpu::convert`]. The source's elements are aligned for their type.
    unsafe fn cast(
        &self,
        source: &DeviceSource<'_>,
        runs: &[(i64, i64)],
        to: *mut u8,
        dtype: DType,
        stream: Stream,
    ) -> Result<()> {
        if source.layout.is_dense()
            && source.order == ByteOrder::Native
            && let Some(kernel) = self.kernels.get(self.driver, Kernel::Dense(source.dtype, dtype))?
        {
            let mut job = Dense { from: source.data, to, count: source.layout.count() as u64 };
            let fits_four = |address: usize, dtype: DType| address.is_multiple_of((4 * dtype.size()).min(16));
            let mut is_aligned =
                u32::from(fits_four(source.data as usize, source.dtype) && fits_four(to as usize, dtype));
            let grid = loop_grid(job.count.div_ceil(4));
            let arguments = [(&raw mut job).cast(), (&raw mut is_aligned).cast()];
            // SAFETY: `FROM_to_TO` has two parameters, a `Dense` and a `u32`. It accesses `count` elements of the source
            // and the target, which meet this function's contract, and vectors of four only if both addresses are aligned
            // for them.
            return unsafe { kernel.launch(self.driver, grid, stream, arguments) };
        }
        let mut job = gather_job(source, runs, to);
        let mut from = source.dtype as u32;
        let mut swapped = u32::from(source.order == ByteOrder::Swapped);
        let (mut code, mut size) = (dtype as u32, dtype.size() as u32);
        let arguments = [
            (&raw mut job).cast(),
            (&raw mut from).cast(),
            (&raw mut swapped).cast(),
            (&raw mut code).cast(),
            (&raw mut size).cast(),
        ];
        let kernel = self.require_kernel(Kernel::Cast, source.dtype)?;
        // SAFETY: `cast` has five parameters, a `Gather` and four `u32`. It reads the elements of the source and writes
        // as many to the target, which meet this function's contract.
        unsafe { kernel.launch(self.driver, loop_grid(job.count), stream, arguments) }
    }

    /// Queues a transpose of planes, the elements of which have this type.
    ///
    /// # Safety
    /// As [`Gpu::convert`] without a cast, for the memory that [`planes`] has taken from the source and the target.
    unsafe fn transpose(
        &self,
        mut planes: Planes,
        runs: &[(i64, i64)],
        dtype: DType,
        stream: Stream,
    ) -> Result<()> {
        let item = dtype.size();
        let batch = if runs.len() == 3 { runs[0].0 as u32 } else { 1 };
        let is_aligned = [planes.from as i64, planes.to as i64, planes.from_pitch, planes.to_pitch]
            .into_iter()
            .chain([planes.from_plane, planes.to_plane])
            .all(|number| number % 16 == 0);
        let mut is_aligned = u32::from(is_aligned);
        let (tile_columns, tile_rows, threads) = tile(item);
        let kernel = self.require_kernel(Kernel::Transpose(item), dtype)?;
        // Each launch covers as many pairs of block columns as a grid allows.
        let mut remaining = planes.columns;
        while remaining > 0 {
            planes.columns = remaining.min(MAX_GRID_YZ_BLOCKS * 2 * tile_columns);
            remaining -= planes.columns;
            let pairs = planes.columns.div_ceil(2 * tile_columns) as u32;
            let blocks = (2 * planes.rows.div_ceil(tile_rows) as u32, pairs, batch);
            let grid = Grid { blocks, threads };
            let arguments = [(&raw mut planes).cast(), (&raw mut is_aligned).cast()];
            // SAFETY: `transpose_N` has two parameters, a `Planes` and a `u32`. It accesses `columns` columns of the
            // planes, which lie within the memory of this function's contract: the launches split the columns and do not
            // exceed them.
            unsafe { kernel.launch(self.driver, grid, stream, arguments)? };
            planes.from = planes.from.wrapping_add(planes.columns as usize * item);
            planes.to = planes.to.wrapping_offset((planes.columns as i64 * planes.to_pitch) as isize);
        }
        Ok(())
    }

    fn require_kernel(&self, kernel: Kernel, dtype: DType) -> Result<KernelFunction> {
        let missing = || {
            Error::new(ErrorKind::UnsupportedDType, format!("no CUDA kernel copies elements of type {dtype}"))
        };
        self.kernels.get(self.driver, kernel)?.ok_or_else(missing)
    }

    /// Queues a copy of bytes from this GPU to another, or to itself.
    ///
    /// # Errors
    /// When a device fails.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{Gpu, Stream};
    /// fn copy(gpu: &Gpu, from: *const u8, to: *mut u8) -> tensorferry_core::Result<()> {
    ///     gpu.copy_to(gpu, from, to, 8, Stream::LEGACY)
    /// }
    /// ```
    ///
    /// # Safety
    /// `bytes` are readable at `from` on this GPU, and writable at `to` on the other, where nobody else uses them. Both
    /// live until the stream has passed the copy.
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
        let (here, there) = (self.context.pointer(), other.context.pointer());
        // SAFETY: `cuMemcpyPeerAsync` needs `bytes` on both sides until the stream has passed the copy, which is this
        // function's contract. Primary contexts are never released, and the stream is alive (`Stream::from_handle`).
        unsafe { self.driver.copy_to_peer(to, there, from, here, bytes, stream.pointer()) }
    }
}

impl DeviceSource<'_> {
    /// Whether its bytes are those of a dense tensor of this type.
    pub fn is_dense_as(&self, dtype: DType) -> bool {
        self.dtype == dtype && self.order == ByteOrder::Native && self.layout.is_dense()
    }
}

/// The tile of one block of a transpose kernel: columns and rows of the source, and the threads of the block.
fn tile(item: usize) -> (u64, u64, (u32, u32)) {
    // Each thread transposes a square: sixteen bytes of a row, by as many rows as those bytes have elements.
    let square = (16 / item) as u64;
    // Squares of one-byte elements need many registers and much shared memory.
    let threads_x = if item == 1 { 8 } else { 16 };
    (u64::from(threads_x) * square, 16 * square, (threads_x, 16))
}

/// The grid of a kernel that loops over elements.
fn loop_grid(count: u64) -> Grid {
    let blocks = count.div_ceil(u64::from(BLOCK_THREADS)).min(MAX_LOOP_BLOCKS) as u32;
    Grid { blocks: (blocks, 1, 1), threads: (BLOCK_THREADS, 1) }
}

/// The bytes that a kernel may read at once: the largest size, at most an element's, that divides every address of the
/// source.
fn unit(source: &DeviceSource<'_>, runs: &[(i64, i64)]) -> usize {
    let bits = runs.iter().fold(source.data as usize, |bits, &(_, step)| bits | step.unsigned_abs() as usize);
    source.dtype.align().min(1 << bits.trailing_zeros().min(4))
}

/// The bytes that a kernel may copy at once along whole runs of the source: at least an element's, at most sixteen.
fn vector_unit(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> usize {
    let item = source.dtype.size();
    let Some((&(length, step), outer)) = runs.split_last() else { return item };
    if step != item as i64 {
        return item;
    }
    let start = source.data as usize | to as usize | (length as usize * item);
    let bits = outer.iter().fold(start, |bits, &(_, step)| bits | step.unsigned_abs() as usize);
    item.max(1 << bits.trailing_zeros().min(4))
}

/// The loops over elements as loops over units, each a fraction of an element or several elements of a run.
fn in_units(runs: &[(i64, i64)], item: usize, unit: usize) -> Vec<(i64, i64)> {
    let mut units = runs.to_vec();
    match units.last_mut() {
        Some(last) if unit > item => *last = (last.0 * item as i64 / unit as i64, unit as i64),
        _ if unit < item => units.push(((item / unit) as i64, unit as i64)),
        _ => {}
    }
    units
}

/// The argument of a gather. Its arrays are long enough: each loop has two steps or more, and a layout has fewer than 2^63
/// elements, so there are at most 62 loops over elements, and one more over the units of an element.
fn gather_job(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> Gather {
    let mut job = Gather {
        from: source.data,
        to,
        count: runs.iter().map(|&(length, _)| length as u64).product(),
        rank: runs.len() as u64,
        lengths: [1; MAX_GATHER_DIMENSIONS],
        steps: [0; MAX_GATHER_DIMENSIONS],
    };
    for (axis, &(length, step)) in runs.iter().enumerate().take(MAX_GATHER_DIMENSIONS) {
        job.lengths[axis] = length as u64;
        job.steps[axis] = step;
    }
    job
}

/// The source as planes to transpose, if its last dimension but one is dense and the transpose kernel is faster than a
/// gather.
fn planes(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> Option<Planes> {
    let item = source.dtype.size() as i64;
    let (outer, &[(columns, column_step), (rows, pitch)]) = match runs {
        [outer @ .., inner, last] => (outer, &[*inner, *last]),
        _ => return None,
    };
    let (batch, from_plane) = match outer {
        [] => (1, 0),
        &[(batch, step)] => (batch, step),
        _ => return None,
    };
    // Narrow planes that are not aligned are gathered as fast.
    let narrow = rows.min(columns);
    let fits = (16 % item == 0)
        && column_step == item
        && batch as u64 <= MAX_GRID_YZ_BLOCKS
        && (rows as u64).div_ceil(tile(item as usize).1) <= MAX_GRID_X_BLOCK_PAIRS
        && narrow * item >= 16
        && (narrow >= 16
            || [source.data as i64, to as i64, pitch, rows * item].iter().all(|number| number % 16 == 0));
    fits.then_some(Planes {
        from: source.data,
        to,
        rows: rows as u64,
        columns: columns as u64,
        from_pitch: pitch,
        to_pitch: rows * item,
        from_plane,
        to_plane: rows * columns * item,
    })
}
