//! Copies within one GPU: dense memory by the driver, everything else by our kernels.

use crate::driver::Address;
use crate::gpu::Gpu;
use crate::jobs::{Dense, Gather, MOST, Planes};
use crate::kernels::{Function, Grid, Kernel};
use crate::memory::DeviceBlock;
use crate::stream::Stream;
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result};

/// What is read.
#[derive(Clone, Copy)]
pub struct DeviceSource<'a> {
    /// Where the first element is.
    pub data: *const u8,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// Which end of an element comes first.
    pub order: ByteOrder,
}

/// Threads of a block, in a row.
const THREADS: u32 = 256;
/// The most blocks of a grid over elements: each does several. Sixteen for each of the multiprocessors of a large GPU.
const BLOCKS: u64 = 16 * 160;
/// The most blocks of a grid in its second and third dimension, and half of the most in its first.
const BLOCKS_ACROSS: u64 = 65_535;
const BLOCKS_DOWN: u64 = 1 << 30;

impl Gpu {
    /// Queues a copy of the source into dense row-major memory, as another type where it is one.
    ///
    /// # Errors
    /// When the device fails, or an element is of a size for which there is no kernel.
    ///
    /// # Safety
    /// Both are memory that this GPU reaches, the target has room for the elements and is aligned for them, and both
    /// live until the stream is past the copy. The source's work is ordered before the stream's.
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
        let same = source.dtype == dtype && source.order == ByteOrder::Native;
        let unit = unit(source, &runs);
        // SAFETY: the caller's contract, for all that follows.
        unsafe {
            if unit < item && same {
                return self.gather(source, &in_units(&runs, item, unit), unit, to, stream);
            }
            if unit < item {
                // The cast wants its elements aligned: they are packed first.
                let packed = DeviceBlock::new(self, layout.bytes(), stream)?;
                self.gather(source, &in_units(&runs, item, unit), unit, packed.data(), stream)?;
                return self.cast_packed(source, &packed, to, dtype, stream);
            }
            if !same {
                if source.order == ByteOrder::Native
                    && self.kernel(Kernel::Dense(source.dtype, dtype))?.is_some()
                    && planes(source, &runs, to).is_some()
                    && let Ok(packed) = DeviceBlock::new(self, layout.bytes(), stream)
                    && let Some(planes) = planes(source, &runs, packed.data())
                {
                    // Two passes that go along the memory are quicker than one that does not.
                    self.turn(planes, &runs, source.dtype, stream)?;
                    return self.cast_packed(source, &packed, to, dtype, stream);
                }
                return self.cast(source, &runs, to, dtype, stream);
            }
            if layout.is_dense() {
                return self.driver.copy(to as Address, source.data as Address, layout.bytes(), stream.raw());
            }
            if let Some(planes) = planes(source, &runs, to) {
                return self.turn(planes, &runs, dtype, stream);
            }
            let unit = wide_unit(source, &runs, to);
            self.gather(source, &in_units(&runs, item, unit), unit, to, stream)
        }
    }

    /// Casts the source once it is packed.
    unsafe fn cast_packed(
        &self,
        source: &DeviceSource<'_>,
        packed: &DeviceBlock,
        to: *mut u8,
        dtype: DType,
        stream: Stream,
    ) -> Result<()> {
        let layout = Layout::dense(source.dtype.size(), source.layout.shape())?;
        let source = DeviceSource { data: packed.data(), layout: &layout, ..*source };
        // SAFETY: the caller's contract; the block holds the source's elements.
        unsafe { self.cast(&source, &layout.runs(), to, dtype, stream) }
    }

    unsafe fn gather(
        &self,
        source: &DeviceSource<'_>,
        runs: &[(i64, i64)],
        unit: usize,
        to: *mut u8,
        stream: Stream,
    ) -> Result<()> {
        let mut job = job(source, runs, to);
        let kernel = self.need(Kernel::Gather(unit), source.dtype)?;
        // SAFETY: the caller's contract; the kernel takes one job.
        unsafe { self.launch(kernel, over(job.count), stream, [(&raw mut job).cast()]) }
    }

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
            && let Some(kernel) = self.kernel(Kernel::Dense(source.dtype, dtype))?
        {
            let mut job = Dense { from: source.data, to, count: source.layout.count() as u64 };
            let four = |address: usize, dtype: DType| address.is_multiple_of((4 * dtype.size()).min(16));
            let mut whole = u32::from(four(source.data as usize, source.dtype) && four(to as usize, dtype));
            let grid = over(job.count.div_ceil(4));
            let arguments = [(&raw mut job).cast(), (&raw mut whole).cast()];
            // SAFETY: the caller's contract; the kernel takes a job and a number.
            return unsafe { self.launch(kernel, grid, stream, arguments) };
        }
        let mut job = job(source, runs, to);
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
        // SAFETY: the caller's contract; the kernel takes a job and four numbers.
        unsafe { self.launch(self.need(Kernel::Cast, source.dtype)?, over(job.count), stream, arguments) }
    }

    unsafe fn turn(
        &self,
        mut planes: Planes,
        runs: &[(i64, i64)],
        dtype: DType,
        stream: Stream,
    ) -> Result<()> {
        let item = dtype.size();
        let batch = if runs.len() == 3 { runs[0].0 as u32 } else { 1 };
        let whole = [planes.from as i64, planes.to as i64, planes.from_pitch, planes.to_pitch]
            .into_iter()
            .chain([planes.from_plane, planes.to_plane])
            .all(|number| number % 16 == 0);
        let mut whole = u32::from(whole);
        let (across, down, threads) = tile(item);
        let kernel = self.need(Kernel::Transpose(item), dtype)?;
        // Down the source in pairs of columns of blocks, as many at a time as a grid has.
        let mut left = planes.columns;
        while left > 0 {
            planes.columns = left.min(BLOCKS_ACROSS * 2 * across);
            left -= planes.columns;
            let pairs = planes.columns.div_ceil(2 * across) as u32;
            let blocks = (2 * planes.rows.div_ceil(down) as u32, pairs, batch);
            let grid = Grid { blocks, threads };
            let arguments = [(&raw mut planes).cast(), (&raw mut whole).cast()];
            // SAFETY: the caller's contract; the kernel takes planes and a number.
            unsafe { self.launch(kernel, grid, stream, arguments)? };
            planes.from = planes.from.wrapping_add(planes.columns as usize * item);
            planes.to = planes.to.wrapping_offset((planes.columns as i64 * planes.to_pitch) as isize);
        }
        Ok(())
    }
}

impl Gpu {
    fn need(&self, kernel: Kernel, dtype: DType) -> Result<Function> {
        let missing =
            || Error::new(ErrorKind::UnsupportedDType, format!("no kernel moves elements of {dtype}"));
        self.kernel(kernel)?.ok_or_else(missing)
    }
}

/// What a block of a transposing kernel does: elements along a row of the source, rows, and the threads for it.
fn tile(item: usize) -> (u64, u64, (u32, u32)) {
    // Each thread has a square of sixteen bytes by as many rows as elements in them.
    let square = (16 / item) as u64;
    // Squares of bytes take many registers and much shared memory.
    let wide = if item == 1 { 8 } else { 16 };
    (u64::from(wide) * square, 16 * square, (wide, 16))
}

fn over(count: u64) -> Grid {
    let blocks = count.div_ceil(u64::from(THREADS)).min(BLOCKS) as u32;
    Grid { blocks: (blocks, 1, 1), threads: (THREADS, 1) }
}

/// The largest size, at most an element's, that divides every address of the source: what a kernel may read at once.
fn unit(source: &DeviceSource<'_>, runs: &[(i64, i64)]) -> usize {
    let bits = runs.iter().fold(source.data as usize, |bits, &(_, step)| bits | step.unsigned_abs() as usize);
    source.dtype.align().min(1 << bits.trailing_zeros().min(4))
}

/// The largest size, at least an element's and at most sixteen bytes, in which whole runs of the source may be moved.
fn wide_unit(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> usize {
    let item = source.dtype.size();
    let Some((&(length, step), outer)) = runs.split_last() else { return item };
    if step != item as i64 {
        return item;
    }
    let start = source.data as usize | to as usize | (length as usize * item);
    let bits = outer.iter().fold(start, |bits, &(_, step)| bits | step.unsigned_abs() as usize);
    item.max(1 << bits.trailing_zeros().min(4))
}

/// The loops over elements as loops over units, which are parts of them or several in a run.
fn in_units(runs: &[(i64, i64)], item: usize, unit: usize) -> Vec<(i64, i64)> {
    let mut units = runs.to_vec();
    match units.last_mut() {
        Some(last) if unit > item => *last = (last.0 * item as i64 / unit as i64, unit as i64),
        _ if unit < item => units.push(((item / unit) as i64, unit as i64)),
        _ => {}
    }
    units
}

fn job(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> Gather {
    let mut job = Gather {
        from: source.data,
        to,
        count: runs.iter().map(|&(length, _)| length as u64).product(),
        rank: runs.len() as u64,
        lengths: [1; MOST],
        steps: [0; MOST],
    };
    for (place, &(length, step)) in runs.iter().enumerate().take(MOST) {
        job.lengths[place] = length as u64;
        job.steps[place] = step;
    }
    job
}

/// The source as planes to transpose, if it is that: dense along the last dimension but one.
fn planes(source: &DeviceSource<'_>, runs: &[(i64, i64)], to: *mut u8) -> Option<Planes> {
    let item = source.dtype.size() as i64;
    let (plane, &[(columns, dense), (rows, pitch)]) = match runs {
        [rest @ .., inner, last] => (rest, &[*inner, *last]),
        _ => return None,
    };
    let (batch, from_plane) = match plane {
        [] => (1, 0),
        &[(batch, step)] => (batch, step),
        _ => return None,
    };
    // Planes of few columns that are not aligned are gathered as quickly.
    let narrow = rows.min(columns);
    let fits = (16 % item == 0)
        && dense == item
        && batch as u64 <= BLOCKS_ACROSS
        && (rows as u64).div_ceil(tile(item as usize).1) <= BLOCKS_DOWN
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
