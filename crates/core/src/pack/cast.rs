//! Casts elements from one type to another by chains of kernels.
//!
//! # Results
//!
//! | from | to | result |
//! |---|---|---|
//! | a type | itself, or the complex type that it is a part of | the same bytes, including NaN payloads and unused bits of a 4-bit number; of a bool 0 or 1 |
//! | integer, bool | integer | wraps modulo 2^bits; `int4` is stored sign-extended in its byte, `uint4` zero-extended |
//! | integer, bool | float | the nearest value, ties to even; out of range as for floats |
//! | float | integer | truncated toward zero; out of range the nearest bound (`int4`: -8 and 7, `uint4`: 0 and 15); NaN is 0 |
//! | float | float | the nearest value, ties to even, rounded once from the exact source; subnormals are kept |
//! | anything | bool | whether it is not zero: NaN is true, -0.0 is false, a complex number is true if either part is |
//! | complex | real | the real part, then as above (bool considers both parts) |
//! | real | complex | the real part as above, the imaginary part +0 |
//!
//! Special values of floats, by target:
//!
//! | target | too large, infinity | NaN | -0.0 |
//! |---|---|---|---|
//! | float64, float32, float16, bfloat16 | infinity | quiet, with its sign and the top of its payload; payload zero from smaller types | -0.0 |
//! | `float8_e3m4`, `float8_e4m3`, `float8_e5m2` | infinity | one quiet NaN, with its sign | -0.0 |
//! | `float8_e4m3fn` | NaN, with the sign | the NaN, with its sign | -0.0 |
//! | `float8_e4m3fnuz`, `float8_e4m3b11fnuz`, `float8_e5m2fnuz` | NaN (0x80) | NaN (0x80) | 0 |
//! | `float8_e8m0fnu` (powers of two; no sign, no zero) | NaN | NaN | NaN, as every zero and every negative number |
//! | `float6_e2m3fn`, `float6_e3m2fn`, `float4_e2m1fn` | the largest finite value, with the sign | zero, of the other sign | -0.0 |
//!
//! Positive numbers below the smallest `float8_e8m0fnu`, 2^-127, become that value. Halfway between two powers of two it
//! rounds up, because of the significands one and two, two is even.
//! From float16, bfloat16 and float32 to every type of eight bits or fewer the results are those of `ml_dtypes` 0.6 bit for
//! bit, except for an error there: just above 2^-127 it takes 2^-126 for the nearest power. From float64 `ml_dtypes` rounds
//! twice, and differs near ties; its NaNs of 16 bits have no payload.
//!
//! A source bool is true if its byte is not zero. Of source types with 4 and 6 bits only the low 4 or 6 bits count.
//!
//! # Implementation
//!
//! A cast is a chain of at most four kernels over dense elements: swap bytes, decode to a native type, convert, encode.
//! Elements that are not dense are gathered into a buffer and scattered from one afterwards, a few kilobytes at a time. The
//! kernels therefore do not depend on strides, alignment or threads: **the same value always gives the same result.** About a
//! hundred kernels serve all 784 pairs.
//!
//! Rejected: a loop for each pair and each kind of stride (two megabytes of code, and loops that may differ); conversion
//! through float64 (64-bit integers do not fit, and rounding twice is incorrect).

use super::cast_kernels::{self, Kernel};
use super::loop_nest::{Axis, Plane, Planes};
use super::{copy, non_temporal};
use crate::dtype::{DType, DTypeKind};
use crate::tensor::ByteOrder;
use std::mem::MaybeUninit;

/// The size of a buffer. Four of them and the source fit in the first-level cache.
const BUFFER_BYTES: usize = 8 << 10;

/// The bytes, of the larger type, that are cast before they are written with non-temporal stores.
///
/// Batches alternate between [`INTERLEAVED_RUNS`] runs of [`RUN_BYTES`] each. The hardware prefetcher works within a page, so
/// a single run stalls at the start of each page. In GB/s for 64 MiB float32 to bfloat16, in a benchmark on a Xeon whose
/// memcpy reaches 9.9: one run 7.8, four runs of 4 KiB 9.9, of 16 KiB 12.1, and of 16 KiB in batches of 2 KiB 9.1. In the
/// engine the gain is smaller.
const NON_TEMPORAL_BATCH_BYTES: usize = 512;
const INTERLEAVED_RUNS: usize = 4;
const RUN_BYTES: usize = 16 << 10;

/// The kernel that copies bools as zero or one; `None` for other types.
pub(super) fn bool_kernel(from: DType, to: DType) -> Option<Kernel> {
    if from == DType::Bool && to == DType::Bool { cast_kernels::to_bool(from) } else { None }
}

/// The kernels that convert one type to another, in order.
#[derive(Clone, Copy)]
pub(super) struct CastChain {
    steps: [Option<Kernel>; 4],
    /// The element size of the source in bytes.
    from: usize,
    /// The element size of the target in bytes.
    to: usize,
    /// The largest element size of all steps in bytes.
    largest: usize,
}

impl CastChain {
    /// The chain from one type to another; `None` if the bytes need no change.
    ///
    /// Complex types are converted only to bool: other conversions view a complex tensor as a real one with another layout.
    pub(super) fn new(from: DType, order: ByteOrder, to: DType) -> Option<Self> {
        let mut chain = Self { steps: [None; 4], from: from.size(), to: from.size(), largest: from.size() };
        if order == ByteOrder::Swapped {
            chain.push(cast_kernels::swap_bytes(from), from);
        }
        if from != to {
            chain.convert(from, to);
        } else {
            chain.push(bool_kernel(from, to), to);
        }
        chain.steps[0].map(|_| chain)
    }

    fn push(&mut self, kernel: Option<Kernel>, to: DType) {
        let free = self.steps.iter_mut().find(|step| step.is_none());
        if let (Some(kernel), Some(free)) = (kernel, free) {
            *free = Some(kernel);
            self.to = to.size();
            self.largest = self.largest.max(to.size());
        }
    }

    fn convert(&mut self, from: DType, to: DType) {
        let mut current = from;
        if let Some((kernel, decoded)) = cast_kernels::decode(from) {
            self.push(Some(kernel), decoded);
            current = decoded;
        }
        if current == to {
            return;
        }
        let mut convert_number = |chain: &mut Self, to: DType| {
            chain.push(cast_kernels::convert_number(current, to), to);
            current = to;
        };
        match to {
            DType::Bool => self.push(cast_kernels::to_bool(current), to),
            DType::Int4 | DType::UInt4 => {
                // A float saturates in this step, an integer wraps.
                let byte = if from.kind() == DTypeKind::Float { DType::Int8 } else { DType::UInt8 };
                convert_number(self, byte);
                self.push(cast_kernels::to_four_bits(byte, to), to);
            }
            DType::Complex64 | DType::Complex128 => {
                let real = if to == DType::Complex64 { DType::Float32 } else { DType::Float64 };
                convert_number(self, real);
                self.push(cast_kernels::to_complex(real), to);
            }
            _ => match cast_kernels::encode(to) {
                Some(encode) => {
                    self.push(cast_kernels::round_to_odd(current), DType::Float32);
                    self.push(Some(encode), to);
                }
                None => convert_number(self, to),
            },
        }
    }

    /// Runs the chain over `n` dense elements.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `n` elements of their types. They do not overlap, and neither is in
    /// `intermediate`. `n` elements of the largest type fit in a buffer unless the chain has one step.
    unsafe fn run(&self, from: *const u8, to: *mut u8, n: usize, intermediate: &mut [Buffer; 2]) {
        let mut input = from;
        for (index, kernel) in self.steps.iter().flatten().enumerate() {
            let is_last = self.steps.get(index + 1).is_none_or(Option::is_none);
            let output = if is_last { to } else { intermediate[index % 2].start() };
            // SAFETY: the first input is readable and the last output writable for `n` elements, and they do not overlap. The
            // other outputs alternate between two buffers, which are borrowed mutably, so they overlap neither those nor each
            // other. They have room for `n` elements of any step (all by the contract of this function), and each step writes
            // its output before the next reads it.
            unsafe { kernel(input, output, n) };
            input = output;
        }
    }

    fn is_single(&self) -> bool {
        self.steps[1].is_none()
    }
}

/// A buffer for elements between two steps.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; BUFFER_BYTES]>);

impl Buffer {
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Casts every element of the planes.
///
/// # Safety
/// Every element of the planes is readable in the source as the source type of the chain, and writable in the target as its
/// target type. The two do not overlap, and no two elements of the target do. If `non_temporal`, [`non_temporal::fence`]
/// follows.
pub(super) unsafe fn cast_planes(
    chain: &CastChain,
    planes: &Planes,
    from: *const u8,
    to: *mut u8,
    non_temporal: bool,
) {
    let mut caster = Caster {
        chain,
        non_temporal,
        gathered: Buffer::new(),
        intermediate: [Buffer::new(), Buffer::new()],
        results: Buffer::new(),
    };
    let capacity = BUFFER_BYTES / chain.largest;
    if planes.plane.count() * 2 <= capacity {
        // SAFETY: the elements of the planes are readable and writable, and do not overlap (the contract of this function). A
        // buffer has `capacity` elements of the largest type, which is at least the count of a plane by the condition.
        unsafe { caster.cast_small_planes(planes, capacity, from, to) }
    } else {
        for (from_start, to_start) in planes.offsets() {
            // SAFETY: the offsets are those of one of the planes, whose elements are readable and writable, and do not overlap
            // (the contract of this function). A buffer has `capacity` elements of the largest type.
            unsafe {
                caster.cast_large_plane(&planes.plane, capacity, from.offset(from_start), to.offset(to_start))
            }
        }
    }
}

/// A chain with the buffers that it needs.
struct Caster<'a> {
    chain: &'a CastChain,
    /// Whether dense runs of the target are written with non-temporal stores.
    non_temporal: bool,
    gathered: Buffer,
    intermediate: [Buffer; 2],
    results: Buffer,
}

impl Caster<'_> {
    /// Runs the chain over dense elements, from the source if it is given and otherwise from `gathered`, into the target if
    /// it is given and otherwise into `results`.
    ///
    /// # Safety
    /// The source, if it is given, is readable and the target writable for `n` elements, and they do not overlap; otherwise the
    /// first `n` elements of `gathered` are written. `n` elements of the largest type fit in a buffer, unless both are given,
    /// stores are ordinary and the chain has one step. After non-temporal stores, [`non_temporal::fence`] follows.
    unsafe fn run(&mut self, from: Option<*const u8>, to: Option<*mut u8>, n: usize) {
        let chain = self.chain;
        let results = self.results.start();
        let from = from.unwrap_or_else(|| self.gathered.start().cast_const());
        // SAFETY: `from` and `to` are readable and writable for `n` elements, or are the buffers `gathered` and `results`, in
        // which `n` elements fit (the contract of this function). The buffers are four fields of this value, so neither
        // overlaps the other, the caller's memory or `intermediate`.
        unsafe {
            match to {
                Some(to) if self.non_temporal => {
                    chain.run(from, results, n, &mut self.intermediate);
                    non_temporal::prefetch(from.wrapping_add(n * chain.from), n * chain.from);
                    non_temporal::copy(results, to, n * chain.to);
                }
                Some(to) => chain.run(from, to, n, &mut self.intermediate),
                None => chain.run(from, results, n, &mut self.intermediate),
            }
        }
    }

    /// Casts elements that are dense on both sides, with non-temporal stores.
    ///
    /// # Safety
    /// The `n` elements are contiguous, readable in the source and writable in the target, and the two do not overlap.
    /// [`non_temporal::fence`] follows.
    unsafe fn cast_run(&mut self, from: *const u8, to: *mut u8, n: usize) {
        let chain = self.chain;
        let (batch, run) = (NON_TEMPORAL_BATCH_BYTES / chain.largest, RUN_BYTES / chain.largest);
        // The elements before the first whole line of the target, so that the rest fills whole lines.
        let lead = (to.align_offset(non_temporal::LINE_BYTES) / chain.to).min(n);
        let interleaved = (n - lead) / (INTERLEAVED_RUNS * run) * (INTERLEAVED_RUNS * run);
        let mut cast = |start: usize, n: usize| {
            // SAFETY: the calls below pass ranges of the `n` elements, which are readable and writable (the contract of this
            // function). They have at most `batch` elements, or at most 63 before the first whole line, which fit in a buffer.
            unsafe { self.run(Some(from.add(start * chain.from)), Some(to.add(start * chain.to)), n) }
        };
        cast(0, lead);
        for block in (lead..lead + interleaved).step_by(INTERLEAVED_RUNS * run) {
            for start in (block..block + run).step_by(batch) {
                (0..INTERLEAVED_RUNS).for_each(|index| cast(start + index * run, batch));
            }
        }
        for start in (lead + interleaved..n).step_by(batch) {
            cast(start, batch.min(n - start));
        }
    }

    /// Casts planes of which several fit in a buffer, as many as fit at a time.
    ///
    /// # Safety
    /// As [`cast_planes`]. `capacity` is the number of elements of the largest type that fit in a buffer, at least the count of
    /// a plane.
    unsafe fn cast_small_planes(&mut self, planes: &Planes, capacity: usize, from: *const u8, to: *mut u8) {
        let chain = self.chain;
        let count = planes.plane.count();
        let batch_planes = capacity / count;
        let (direct_in, direct_out) = (planes.is_source_dense(chain.from), planes.is_target_dense(chain.to));
        let (gather, scatter) =
            (planes.plane.with_dense_target(chain.from), planes.plane.with_dense_source(chain.to));
        let mut offsets = planes.offsets();
        loop {
            let batch = offsets.clone();
            let mut gathered_planes = 0;
            for (from_start, _) in offsets.by_ref().take(batch_planes) {
                if !direct_in {
                    // SAFETY: the plane is one of `planes`, so its elements are readable (the contract of this function).
                    // `take` stops at `batch_planes` planes, which fit in `gathered`: their count times `batch_planes` is at
                    // most `capacity`.
                    unsafe {
                        let target = self.gathered.start().add(gathered_planes * count * chain.from);
                        copy::copy_plane(chain.from, &gather, from.offset(from_start), target, false);
                    }
                }
                gathered_planes += 1;
            }
            let Some((from_start, to_start)) = batch.clone().next() else { return };
            // SAFETY: if the planes are dense, their elements are contiguous in memory from the first of the batch on, readable
            // in the source and writable in the target. Otherwise the loop has written them to `gathered`, and `run` writes to
            // `results`. The elements of at most `batch_planes` planes fit in a buffer.
            unsafe {
                let input = direct_in.then(|| from.offset(from_start));
                let output = direct_out.then(|| to.offset(to_start));
                self.run(input, output, gathered_planes * count);
            }
            if !direct_out {
                for (index, (_, to_start)) in batch.take(gathered_planes).enumerate() {
                    // SAFETY: `run` has written the elements of `gathered_planes` planes to `results`, and the index is below
                    // that. The plane is one of `planes`, so its target is writable (the contract of this function).
                    unsafe {
                        let source = self.results.start().add(index * count * chain.to);
                        copy::copy_plane(chain.to, &scatter, source, to.offset(to_start), false);
                    }
                }
            }
        }
    }

    /// Casts a plane in tiles that fit in a buffer.
    ///
    /// # Safety
    /// As [`cast_planes`] for one plane, which starts at `from` and `to`. `capacity` is the number of elements of the largest
    /// type that fit in a buffer.
    unsafe fn cast_large_plane(&mut self, plane: &Plane, capacity: usize, from: *const u8, to: *mut u8) {
        let chain = self.chain;
        let Plane { rows, cols } = *plane;
        let rows_dense_in = cols.from == chain.from as isize || cols.n == 1;
        let rows_dense_out = cols.to == chain.to as isize || cols.n == 1;
        if rows_dense_in && rows_dense_out && cols.n >= 64 && (self.non_temporal || chain.is_single()) {
            for row in 0..rows.n as isize {
                // SAFETY: the row is one of `rows.n`, so its elements are readable and writable (the contract of this
                // function), and they are contiguous on both sides. With ordinary stores the chain has one step, so it needs no
                // buffer.
                unsafe {
                    let (from, to) = (from.offset(row * rows.from), to.offset(row * rows.to));
                    if self.non_temporal {
                        self.cast_run(from, to, cols.n);
                    } else {
                        self.run(Some(from), Some(to), cols.n);
                    }
                }
            }
            return;
        }
        // A transposed tile covers at least a cache line of the source down the rows; others are as wide as possible.
        let min_height = if plane.is_transposed() { (64 / chain.from).max(16).min(rows.n) } else { 1 };
        let width = (capacity / min_height).min(cols.n);
        let height = (capacity / width).min(rows.n);
        for top in (0..rows.n).step_by(height) {
            for left in (0..cols.n).step_by(width) {
                let tile = Plane {
                    rows: Axis { n: height.min(rows.n - top), ..rows },
                    cols: Axis { n: width.min(cols.n - left), ..cols },
                };
                let direct_in = rows_dense_in
                    && (tile.rows.n == 1 || tile.rows.from == tile.cols.n as isize * chain.from as isize);
                let direct_out = rows_dense_out
                    && (tile.rows.n == 1 || tile.rows.to == tile.cols.n as isize * chain.to as isize);
                let (top, left) = (top as isize, left as isize);
                // SAFETY: `top + tile.rows.n` is at most `rows.n`, and `left + tile.cols.n` at most `cols.n`, so the elements
                // are readable and writable (the contract of this function). They fit in a buffer: height times width is at
                // most `capacity`. If they are not contiguous in the source, they are gathered first, and if not in the target,
                // `run` writes them to `results`, from which they are scattered.
                unsafe {
                    let from = from.offset(top * rows.from + left * cols.from);
                    let to = to.offset(top * rows.to + left * cols.to);
                    if !direct_in {
                        copy::copy_plane(
                            chain.from,
                            &tile.with_dense_target(chain.from),
                            from,
                            self.gathered.start(),
                            false,
                        );
                    }
                    let input = direct_in.then_some(from);
                    self.run(input, direct_out.then_some(to), tile.count());
                    if !direct_out {
                        let results = self.results.start();
                        copy::copy_plane(chain.to, &tile.with_dense_source(chain.to), results, to, false);
                    }
                }
            }
        }
    }
}
