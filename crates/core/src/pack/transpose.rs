//! The transpose of a plane in blocks of one cache line by one cache line.
//!
//! A block is 64 bytes wide on both sides: 16 by 16 elements of four bytes, 64 by 64 of one. Its source lines
//! are read whole, turned in registers into a buffer that stays in the nearest cache, and its target lines
//! are written whole, each once. That holds up where the naive loop and a loop over tiles fall down: with a
//! power of two between rows, the lines of a tile fight for the same few places in the cache.
//!
//! A plane that is larger than the caches is written past them: block by block where the target's rows start at
//! lines, and else some blocks side by side at a time.
//!
//! The turning is log2(n) rounds of interleaving n vectors of n elements, the first half with the second.
//! SSE2, which every x86-64 has, does it (`turn` has a quicker way for the most frequent size); elsewhere a plain
//! loop over the buffer does, with the same result.

use super::elements;
#[cfg(target_arch = "x86_64")]
use super::kernel;
use super::stream::{self, LINE};
#[cfg(target_arch = "x86_64")]
use super::turn;
use super::walk::{Axis, Plane};
use crate::host::HostBlock;
use std::mem::MaybeUninit;

/// Bytes that are turned at once.
const VECTOR: usize = 16;
/// Blocks across and down that are taken together where lines are written through the caches: few enough for
/// their pages to be found at once. (Of six shapes tried with 512 x 512 float32, this was the quickest; the
/// slowest took half as long again.)
const TILE: (usize, usize) = (32, 1);
/// The same where lines are streamed: down the whole length of the source's lines, which the machine then
/// fetches ahead. The writes wait for nothing. (6.1 GB/s where the shape above gives 2.2, one thread.)
const STREAM_TILE: (usize, usize) = (1, usize::MAX / LINE);

/// Blocks side by side that are put together where target rows do not start at lines. (With 4101 x 4101 float32
/// this gives 2.9 GB/s with one thread, a quarter of it 2.5, and blocks written one by one 1.4.)
const STRIP: usize = 32;

type Line = [[u8; VECTOR]; LINE / VECTOR];

/// One block in the order of the target; the largest is 64 lines.
#[repr(align(64))]
struct Block(MaybeUninit<[Line; LINE]>);

/// Copies a plane whose source is dense down the rows and whose target is dense along them.
///
/// # Safety
/// `item` is a power of two of at most 16, `plane.rows.from` and `plane.cols.to` are `item`; every element of
/// the plane is readable in the source and writable in the target, and the two do not overlap.
pub(super) unsafe fn plane(item: usize, plane: &Plane, from: *const u8, to: *mut u8, stream: bool) {
    // SAFETY: the caller's contract, in every arm.
    unsafe {
        match item {
            1 => plane_of::<1>(plane, from, to, stream),
            2 => plane_of::<2>(plane, from, to, stream),
            4 => plane_of::<4>(plane, from, to, stream),
            8 => plane_of::<8>(plane, from, to, stream),
            _ => plane_of::<16>(plane, from, to, stream),
        }
    }
}

/// [`plane`] for elements of `N` bytes.
///
/// # Safety
/// As [`plane`].
unsafe fn plane_of<const N: usize>(plane: &Plane, from: *const u8, to: *mut u8, stream: bool) {
    let Plane { rows, cols } = *plane;
    let side = LINE / N;
    let aligned = to.addr().is_multiple_of(LINE) && (rows.to as usize).is_multiple_of(LINE);
    let whole_lines = aligned && stream;
    #[cfg(target_arch = "x86_64")]
    let wide = kernel::is_wide();
    let (whole_rows, whole_cols) = (rows.n - rows.n % side, cols.n - cols.n % side);
    let part = |top: usize, height: usize, left: usize, width: usize| {
        if height == 0 || width == 0 {
            // Where an empty part would start, there may be no memory to point to.
            return;
        }
        let rest = Plane { rows: Axis { n: height, ..rows }, cols: Axis { n: width, ..cols } };
        let (top, left) = (top as isize, left as isize);
        // SAFETY: a part of the plane, for which the caller vouches.
        unsafe {
            let (from, to) =
                (from.offset(top * rows.from + left * cols.from), to.offset(top * rows.to + left * cols.to));
            if height == side && width == side {
                #[cfg(target_arch = "x86_64")]
                if N == 4 && wide {
                    return turn::block(from, cols.from, to, rows.to, whole_lines);
                }
                block::<N>(from, cols.from, to, rows.to, whole_lines);
            } else {
                elements::plane(N, &rest, from, to);
            }
        }
    };
    let (across, down) = if whole_lines { STREAM_TILE } else { TILE };
    let (across, down) = (across * side, down * side);
    if stream && !aligned {
        let whole = Plane { rows: Axis { n: whole_rows, ..rows }, cols: Axis { n: whole_cols, ..cols } };
        // SAFETY: a part of the plane, of whole blocks.
        unsafe { strips::<N>(&whole, from, to) }
    } else {
        for far_left in (0..whole_cols).step_by(across) {
            for far_top in (0..whole_rows).step_by(down) {
                for left in (far_left..whole_cols.min(far_left.saturating_add(across))).step_by(side) {
                    for top in (far_top..whole_rows.min(far_top.saturating_add(down))).step_by(side) {
                        if !whole_lines {
                            // The next block's lines are rows apart on both sides, which the machine does not
                            // foresee. (It takes a third off the time of 512 x 512 float32.)
                            let next = top as isize * rows.from + (left + side) as isize * cols.from;
                            let place = top as isize * rows.to + (left + side) as isize * cols.to;
                            for line in 0..side as isize {
                                stream::prefetch(from.wrapping_offset(next + line * cols.from), 1);
                                stream::prefetch_to_write(to.wrapping_offset(place + line * rows.to));
                            }
                        }
                        part(top, side, left, side);
                    }
                }
            }
        }
    }
    part(whole_rows, rows.n - whole_rows, 0, whole_cols);
    part(0, rows.n, whole_cols, cols.n - whole_cols);
}

/// Copies whole blocks past the caches where the target's rows do not start at lines: some blocks side by side
/// are put together in a buffer first, so that most of what is written to a row is whole lines.
///
/// # Safety
/// As [`plane`], and rows and columns are multiples of a block's.
unsafe fn strips<const N: usize>(plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    let side = LINE / N;
    // Not on the stack, which may be small.
    let Ok(buffer) = HostBlock::new(STRIP * LINE * LINE) else {
        // SAFETY: the caller's contract.
        return unsafe { elements::plane(N, plane, from, to) };
    };
    let buffer = buffer.data();
    for left in (0..cols.n).step_by(STRIP * side) {
        let width = (STRIP * side).min(cols.n - left);
        for top in (0..rows.n).step_by(side) {
            let (start, end) = (left as isize, (left + width) as isize);
            // SAFETY: blocks of the plane, for which the caller vouches, and as many places in the buffer,
            // which has room for `STRIP` of them side by side.
            unsafe {
                let from = from.offset(top as isize * rows.from);
                for col in (start..end).step_by(side) {
                    let place = buffer.add((col - start) as usize * N);
                    let from = from.offset(col * cols.from);
                    any_block::<N>(from, cols.from, place, (STRIP * LINE) as isize);
                    for line in 0..side as isize {
                        stream::prefetch(from.wrapping_offset(line * cols.from + LINE as isize), 1);
                    }
                }
                for line in 0..side {
                    let to = to.offset((top + line) as isize * rows.to + start * cols.to);
                    stream::copy(buffer.add(line * STRIP * LINE), to, width * N);
                }
            }
        }
    }
}

/// Copies one block in the quickest way that this machine has, through the caches.
///
/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn any_block<const N: usize>(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    // SAFETY: the caller's contract, and the machine was asked for its features.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if N == 4 && kernel::is_wide() {
            return turn::block(from, from_step, to, to_step, false);
        }
        block::<N>(from, from_step, to, to_step, false);
    }
}

/// Copies one block.
///
/// # Safety
/// `64 / N` lines of 64 bytes are readable every `from_step` bytes and writable every `to_step` bytes; those
/// are aligned to 64 bytes if they are to be streamed, and [`finish`] follows.
#[inline(always)]
unsafe fn block<const N: usize>(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
    stream: bool,
) {
    let side = LINE / N;
    let lanes = VECTOR / N;
    let mut turned = Block(MaybeUninit::uninit());
    let turned = turned.0.as_mut_ptr().cast::<Line>();
    for group in 0..side / lanes {
        for part in 0..LINE / VECTOR {
            let mut vectors = [[0u8; VECTOR]; VECTOR];
            for (lane, vector) in vectors.iter_mut().enumerate().take(lanes) {
                let line = (group * lanes + lane) as isize;
                // SAFETY: sixteen bytes of a source line that the caller vouches for; byte arrays have no
                // alignment.
                *vector = unsafe { from.offset(line * from_step).cast::<[u8; VECTOR]>().add(part).read() };
            }
            turn_vectors::<N>(&mut vectors);
            for (lane, vector) in vectors.iter().enumerate().take(lanes) {
                // SAFETY: line and group lie within the block: there are `side` lines and `LINE / VECTOR`
                // groups.
                unsafe { turned.add(part * lanes + lane).cast::<[u8; VECTOR]>().add(group).write(*vector) }
            }
        }
    }
    for line in 0..side {
        // SAFETY: a target line that the caller vouches for, aligned if it is to be streamed, and one of the
        // `side` lines of the buffer, all of which were filled above.
        unsafe {
            let (source, target) = (turned.add(line), to.offset(line as isize * to_step).cast::<Line>());
            if stream {
                stream::line(source.cast(), target.cast())
            } else {
                source.copy_to_nonoverlapping(target, 1)
            }
        }
    }
}

/// Transposes the first `16 / N` vectors as a square of elements of `N` bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turn_vectors<const N: usize>(vectors: &mut [[u8; VECTOR]; VECTOR]) {
    use std::arch::x86_64::*;
    let lanes = VECTOR / N;
    // SAFETY: SSE2 is part of x86-64; loads and stores are unaligned ones of whole vectors.
    unsafe {
        let mut now = [_mm_setzero_si128(); VECTOR];
        for (register, vector) in now.iter_mut().zip(vectors.iter()).take(lanes) {
            *register = _mm_loadu_si128(vector.as_ptr().cast());
        }
        for _ in 0..lanes.trailing_zeros() {
            let before = now;
            for i in 0..lanes / 2 {
                let (a, b) = (before[i], before[i + lanes / 2]);
                (now[2 * i], now[2 * i + 1]) = match N {
                    1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                    2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                    4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                    _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
                };
            }
        }
        for (register, vector) in now.iter().zip(vectors.iter_mut()).take(lanes) {
            _mm_storeu_si128(vector.as_mut_ptr().cast(), *register);
        }
    }
}

/// Transposes the first `16 / N` vectors as a square of elements of `N` bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn turn_vectors<const N: usize>(vectors: &mut [[u8; VECTOR]; VECTOR]) {
    plain_turn::<N>(vectors);
}

/// [`turn_vectors`] without instructions of a machine.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn plain_turn<const N: usize>(vectors: &mut [[u8; VECTOR]; VECTOR]) {
    let before = *vectors;
    let lanes = VECTOR / N;
    for row in 0..lanes {
        for col in 0..lanes {
            vectors[row][col * N..(col + 1) * N].copy_from_slice(&before[col][row * N..(row + 1) * N]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns_alike<const N: usize>() {
        let start: [[u8; VECTOR]; VECTOR] =
            std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u8));
        let (mut quick, mut plain) = (start, start);
        turn_vectors::<N>(&mut quick);
        plain_turn::<N>(&mut plain);
        let lanes = VECTOR / N;
        assert_eq!(quick[..lanes], plain[..lanes]);
        plain_turn::<N>(&mut plain);
        assert_eq!(plain, start);
    }

    #[test]
    fn both_ways_of_turning_agree() {
        turns_alike::<1>();
        turns_alike::<2>();
        turns_alike::<4>();
        turns_alike::<8>();
        turns_alike::<16>();
    }
}
