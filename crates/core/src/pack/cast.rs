//! From one type to another: which kernels, in which order, over which elements.
//!
//! # What a cast gives
//!
//! | from | to | result |
//! |---|---|---|
//! | a type | itself, or the complex type that it is a part of | the same bytes: NaN payloads, odd bytes in a bool, stray bits above a 4-bit number |
//! | integer, bool | integer | wraps modulo 2^bits; `int4` is stored sign-extended in its byte, `uint4` zero-extended |
//! | integer, bool | float | the nearest value, ties to even; past the range as for floats |
//! | float | integer | cut toward zero; past the range the end of the range (`int4`: -8 and 7, `uint4`: 0 and 15); NaN is 0 |
//! | float | float | the nearest value, ties to even, rounded once from the exact source; subnormals are kept |
//! | anything | bool | whether it is not zero: NaN is true, -0.0 is false, a complex number is true if either part is |
//! | complex | real | the real part, then as above (bool looks at both) |
//! | real | complex | the real part as above, the imaginary part +0 |
//!
//! What floats do at their ends, by target:
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
//! `float8_e8m0fnu` takes positive numbers below its smallest, 2^-127, as that one; halfway between two
//! powers of two it goes up, since of the significands one and two, two is even.
//! From float16, bfloat16 and float32 to every type of eight bits or fewer this is `ml_dtypes` 0.6 bit for bit,
//! but for one slip there: just above 2^-127 it takes 2^-126 for the nearest power. From float64 `ml_dtypes`
//! rounds twice, and differs near ties; its NaNs of 16 bits have no payload.
//!
//! Coming in, a bool is true if its byte is not zero, and of 4 and 6-bit types only the low 4 or 6 bits
//! count.
//!
//! # How
//!
//! A cast is a chain of at most four kernels over dense elements: turn the bytes round, decode to a type that
//! the machine has, convert, encode. Elements that are not dense are gathered into a buffer first and
//! scattered from one afterwards, a few kilobytes at a time, so the arithmetic never sees a stride, an
//! alignment or a thread: **the same value gives the same result wherever it lies.** Kernels for about a
//! hundred steps serve all 784 pairs.
//!
//! Rejected: a loop for each pair and each kind of stride (two megabytes of code, and as many chances for two
//! loops to differ); going through float64 (64-bit integers do not fit, and rounding twice is wrong).

use super::copy;
use super::kernel::{self, Kernel};
use super::stream;
use super::walk::{Axis, Plane, Sweep};
use crate::dtype::{DType, DTypeKind};
use crate::tensor::ByteOrder;
use std::mem::MaybeUninit;

/// Bytes of one buffer. Four of them share the nearest cache with what they are filled from.
const BUFFER: usize = 8 << 10;

/// Bytes, of the larger type, that are cast before they are written past the caches.
///
/// These are taken from [`LANES`] places in turn, each of which is left after [`LANE`] bytes: the machine reads ahead
/// within a page, and with one place at a time it waits at the start of each. In GB/s of 64 MiB float32 to bfloat16,
/// in a loop of its own on a Xeon whose memcpy reaches 9.9: one lane 7.8, four lanes of 4 KiB 9.9, of 16 KiB 12.1, and
/// of 16 KiB with 2 KiB at once 9.1. In the engine the gain is smaller.
const STREAMED: usize = 512;
const LANES: usize = 4;
const LANE: usize = 16 << 10;

/// The kernels that turn one type into another, in order.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    steps: [Option<Kernel>; 4],
    /// Bytes of an element going in, coming out, and at its largest.
    from: usize,
    to: usize,
    largest: usize,
}

impl Chain {
    /// The chain from one type to another; `None` where the bytes are right as they are.
    ///
    /// Complex types go only to themselves and to bool: a complex tensor seen as real is another layout, not
    /// another value.
    pub(super) fn new(from: DType, order: ByteOrder, to: DType) -> Option<Self> {
        let mut chain = Self { steps: [None; 4], from: from.size(), to: from.size(), largest: from.size() };
        if order == ByteOrder::Swapped {
            chain.push(kernel::swap(from), from);
        }
        if from != to {
            chain.convert(from, to);
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
        let mut now = from;
        if let Some((kernel, decoded)) = kernel::decode(from) {
            self.push(Some(kernel), decoded);
            now = decoded;
        }
        if now == to {
            return;
        }
        let mut number = |chain: &mut Self, to: DType| {
            chain.push(kernel::wide_number(now, to), to);
            now = to;
        };
        match to {
            DType::Bool => self.push(kernel::truth(now), to),
            DType::Int4 | DType::UInt4 => {
                // A float saturates on the way, an integer wraps.
                let byte = if from.kind() == DTypeKind::Float { DType::Int8 } else { DType::UInt8 };
                number(self, byte);
                self.push(kernel::four_bits(byte, to), to);
            }
            DType::Complex64 | DType::Complex128 => {
                let real = if to == DType::Complex64 { DType::Float32 } else { DType::Float64 };
                number(self, real);
                self.push(kernel::pair(real), to);
            }
            _ => match kernel::encode(to) {
                Some(encode) => {
                    self.push(kernel::odd(now), DType::Float32);
                    self.push(Some(encode), to);
                }
                None => number(self, to),
            },
        }
    }

    /// Runs the chain over `n` dense elements.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `n` elements, they do not overlap, and `n` elements fit in a
    /// buffer unless the chain has one step.
    unsafe fn run(&self, from: *const u8, to: *mut u8, n: usize, between: &mut [Buffer; 2]) {
        let mut input = from;
        for (index, kernel) in self.steps.iter().flatten().enumerate() {
            let last = self.steps.get(index + 1).is_none_or(Option::is_none);
            let output = if last { to } else { between[index % 2].start() };
            // SAFETY: the first input and the last output are the caller's; between them lie the two buffers
            // in turn, which are not the caller's, hold `n` elements by the caller's word, and are never read
            // and written by one step.
            unsafe { kernel(input, output, n) };
            input = output;
        }
    }

    fn is_single(&self) -> bool {
        self.steps[1].is_none()
    }
}

/// Memory for elements on their way.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; BUFFER]>);

impl Buffer {
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Casts every element of a sweep.
///
/// # Safety
/// Every element of the sweep is readable in the source, of the type that the chain takes, and writable in
/// the target; the two do not overlap, and no two elements of the target do.
pub(super) unsafe fn sweep(chain: &Chain, sweep: &Sweep, from: *const u8, to: *mut u8, stream: bool) {
    let mut work = Work {
        chain,
        stream,
        gathered: Buffer::new(),
        between: [Buffer::new(), Buffer::new()],
        done: Buffer::new(),
    };
    let room = BUFFER / chain.largest;
    if sweep.plane.count() * 2 <= room {
        // SAFETY: the caller's contract, and the planes are small.
        unsafe { work.small_planes(sweep, room, from, to) }
    } else {
        for (from_start, to_start) in sweep.starts() {
            // SAFETY: the caller's contract: each plane of the sweep is a part of it.
            unsafe { work.large_plane(&sweep.plane, room, from.offset(from_start), to.offset(to_start)) }
        }
    }
}

struct Work<'a> {
    chain: &'a Chain,
    /// Whether what is dense in the target is written past the caches.
    stream: bool,
    gathered: Buffer,
    between: [Buffer; 2],
    done: Buffer,
}

impl Work<'_> {
    /// Runs the chain over elements that are dense, from the source where it is given and else from `gathered`,
    /// into the target where it is given and else into `done`.
    ///
    /// # Safety
    /// As [`Chain::run`], and `n` elements fit in a buffer unless the target is given and not streamed.
    unsafe fn run(&mut self, from: Option<*const u8>, to: Option<*mut u8>, n: usize) {
        let chain = self.chain;
        let done = self.done.start();
        let from = from.unwrap_or_else(|| self.gathered.start().cast_const());
        // SAFETY: the caller's contract; `done` holds what a buffer does, and is no other buffer.
        unsafe {
            match to {
                Some(to) if self.stream => {
                    chain.run(from, done, n, &mut self.between);
                    stream::prefetch(from.wrapping_add(n * chain.from), n * chain.from);
                    stream::copy(done, to, n * chain.to);
                }
                Some(to) => chain.run(from, to, n, &mut self.between),
                None => chain.run(from, done, n, &mut self.between),
            }
        }
    }

    /// Casts elements that are dense on both sides, past the caches.
    ///
    /// # Safety
    /// As [`sweep`] for these elements.
    unsafe fn streamed(&mut self, from: *const u8, to: *mut u8, n: usize) {
        let chain = self.chain;
        let (at_once, lane) = (STREAMED / chain.largest, LANE / chain.largest);
        // Up to the first whole line of the target, so that all that follows is whole lines.
        let lead = (to.align_offset(stream::LINE) / chain.to).min(n);
        let together = (n - lead) / (LANES * lane) * (LANES * lane);
        let mut part = |start: usize, n: usize| {
            // SAFETY: a part of what the caller vouches for, no more than a buffer holds.
            unsafe { self.run(Some(from.add(start * chain.from)), Some(to.add(start * chain.to)), n) }
        };
        part(0, lead);
        for block in (lead..lead + together).step_by(LANES * lane) {
            for start in (block..block + lane).step_by(at_once) {
                (0..LANES).for_each(|place| part(start + place * lane, at_once));
            }
        }
        for start in (lead + together..n).step_by(at_once) {
            part(start, at_once.min(n - start));
        }
    }

    /// Casts planes of which several fit in a buffer, as many at a time as do.
    ///
    /// # Safety
    /// As [`sweep`], and `room`, the elements that a buffer holds, is no less than a plane has.
    unsafe fn small_planes(&mut self, sweep: &Sweep, room: usize, from: *const u8, to: *mut u8) {
        let chain = self.chain;
        let count = sweep.plane.count();
        let at_once = room / count;
        let (direct_in, direct_out) = (sweep.is_dense_from(chain.from), sweep.is_dense_to(chain.to));
        let (gather, scatter) =
            (sweep.plane.with_dense_target(chain.from), sweep.plane.with_dense_source(chain.to));
        let mut starts = sweep.starts();
        loop {
            let batch = starts.clone();
            let mut planes = 0;
            for (from_start, _) in starts.by_ref().take(at_once) {
                if !direct_in {
                    // SAFETY: a plane of the sweep, and a place in the buffer, which has room for `at_once`
                    // planes.
                    unsafe {
                        let place = self.gathered.start().add(planes * count * chain.from);
                        copy::plane(chain.from, &gather, from.offset(from_start), place, false);
                    }
                }
                planes += 1;
            }
            let Some((from_start, to_start)) = batch.clone().next() else { return };
            // SAFETY: where the sweep is dense, its planes lie one after the other from the first of the
            // batch; where not, the buffers hold them so.
            unsafe {
                let input = direct_in.then(|| from.offset(from_start));
                let output = direct_out.then(|| to.offset(to_start));
                self.run(input, output, planes * count);
            }
            if !direct_out {
                for (index, (_, to_start)) in batch.take(planes).enumerate() {
                    // SAFETY: the plane that was gathered at this place in the batch.
                    unsafe {
                        let place = self.done.start().add(index * count * chain.to);
                        copy::plane(chain.to, &scatter, place, to.offset(to_start), false);
                    }
                }
            }
        }
    }

    /// Casts a plane in tiles that fit in a buffer.
    ///
    /// # Safety
    /// As [`sweep`] for one plane, which starts at `from` and `to`; `room` is what a buffer holds.
    unsafe fn large_plane(&mut self, plane: &Plane, room: usize, from: *const u8, to: *mut u8) {
        let chain = self.chain;
        let Plane { rows, cols } = *plane;
        let rows_dense_in = cols.from == chain.from as isize || cols.n == 1;
        let rows_dense_out = cols.to == chain.to as isize || cols.n == 1;
        if rows_dense_in && rows_dense_out && cols.n >= 64 && (self.stream || chain.is_single()) {
            for row in 0..rows.n as isize {
                // SAFETY: a row of the plane, dense on both sides; without streaming the chain has one kernel, which
                // needs no buffer.
                unsafe {
                    let (from, to) = (from.offset(row * rows.from), to.offset(row * rows.to));
                    if self.stream {
                        self.streamed(from, to, cols.n);
                    } else {
                        self.run(Some(from), Some(to), cols.n);
                    }
                }
            }
            return;
        }
        // A transposed tile is as high as a cache line of the source is long, or somewhat more; others are as
        // wide as can be.
        let high = if plane.is_transposed() { (64 / chain.from).max(16).min(rows.n) } else { 1 };
        let width = (room / high).min(cols.n);
        let height = (room / width).min(rows.n);
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
                // SAFETY: the tile is a part of the plane, and its elements fit in a buffer: height times
                // width is at most `room`. Where it is dense it is used in place.
                unsafe {
                    let from = from.offset(top * rows.from + left * cols.from);
                    let to = to.offset(top * rows.to + left * cols.to);
                    if !direct_in {
                        copy::plane(
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
                        let done = self.done.start();
                        copy::plane(chain.to, &tile.with_dense_source(chain.to), done, to, false);
                    }
                }
            }
        }
    }
}
