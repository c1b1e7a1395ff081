//! Transposes planes in blocks of one cache line by one cache line.
//!
//! A block is 64 bytes wide on both sides: 16 by 16 elements of four bytes, or 64 by 64 of one. Its source lines are read
//! whole, transposed in registers into a buffer in the first-level cache, and its target lines are written whole, each once.
//! This avoids the cache conflicts of a naive or tiled loop: with a power of two between rows, the lines of a tile map to the
//! same few cache sets.
//!
//! A plane that is larger than the caches is written with non-temporal stores: block by block if the rows of the target start
//! at cache lines, and otherwise several adjacent blocks at a time.
//!
//! A block is transposed in log2(n) rounds that interleave the first half of n vectors with the second. SSE2, which every
//! x86-64 has, does that; `transpose_avx2` has a faster method for elements of four bytes. On other processors a portable
//! loop gives the same result.

#[cfg(target_arch = "x86_64")]
use super::cpu_features;
use super::elements;
use super::loop_nest::{Axis, Plane};
use super::non_temporal::{self, LINE_BYTES};
#[cfg(target_arch = "x86_64")]
use super::transpose_avx2;
use crate::host::HostBlock;
use std::mem::MaybeUninit;

/// The size of a vector register.
const VECTOR_BYTES: usize = 16;
/// Blocks across and down of a tile for ordinary stores: few enough for their pages to fit in the TLB. (Of six shapes
/// measured with 512 x 512 float32, this was the fastest; the slowest took half as long again.)
const TILE_BLOCKS: (usize, usize) = (32, 1);
/// The same for non-temporal stores: down the whole length of the source's lines, which the hardware then prefetches. (6.1
/// GB/s with one thread, where the shape above gives 2.2.)
const NON_TEMPORAL_TILE_BLOCKS: (usize, usize) = (1, usize::MAX / LINE_BYTES);

/// The number of adjacent blocks that are buffered if rows of the target do not start at cache lines. (With 4101 x 4101
/// float32 this gives 2.9 GB/s with one thread, a quarter of it 2.5, and single blocks 1.4.)
const STRIP_BLOCKS: usize = 32;

type Line = [[u8; VECTOR_BYTES]; LINE_BYTES / VECTOR_BYTES];

/// A buffer for one block in the order of the target; the largest has 64 lines.
#[repr(align(64))]
struct BlockBuffer(MaybeUninit<[Line; LINE_BYTES]>);

/// Transposes a plane whose source is dense down the rows and whose target is dense along them.
///
/// # Safety
/// `item` is a power of two of at most 16, and `plane.rows.from` and `plane.cols.to` are `item`. Every element of the plane is
/// readable in the source and writable in the target, and the two do not overlap. If `non_temporal`, [`non_temporal::fence`]
/// follows.
pub(super) unsafe fn transpose_plane(
    item: usize,
    plane: &Plane,
    from: *const u8,
    to: *mut u8,
    non_temporal: bool,
) {
    // SAFETY: `transpose_plane_of` requires planes of elements of its size, readable and writable, that do not overlap. This
    // function's contract says so for `item`, which the arms match with that size; the last arm is 16.
    unsafe {
        match item {
            1 => transpose_plane_of::<1>(plane, from, to, non_temporal),
            2 => transpose_plane_of::<2>(plane, from, to, non_temporal),
            4 => transpose_plane_of::<4>(plane, from, to, non_temporal),
            8 => transpose_plane_of::<8>(plane, from, to, non_temporal),
            _ => transpose_plane_of::<16>(plane, from, to, non_temporal),
        }
    }
}

/// [`transpose_plane`] for elements of `N` bytes.
///
/// # Safety
/// As [`transpose_plane`].
unsafe fn transpose_plane_of<const N: usize>(
    plane: &Plane,
    from: *const u8,
    to: *mut u8,
    non_temporal: bool,
) {
    let Plane { rows, cols } = *plane;
    let side = LINE_BYTES / N;
    let is_aligned = to.addr().is_multiple_of(LINE_BYTES) && (rows.to as usize).is_multiple_of(LINE_BYTES);
    let writes_lines = is_aligned && non_temporal;
    #[cfg(target_arch = "x86_64")]
    let has_avx2 = cpu_features::has_avx2();
    let (block_rows, block_cols) = (rows.n - rows.n % side, cols.n - cols.n % side);
    let transpose_part = |top: usize, height: usize, left: usize, width: usize| {
        if height == 0 || width == 0 {
            // The start of an empty part may be outside the memory.
            return;
        }
        let rest = Plane { rows: Axis { n: height, ..rows }, cols: Axis { n: width, ..cols } };
        let (top, left) = (top as isize, left as isize);
        // SAFETY: the calls below pass parts with `top + height <= rows.n` and `left + width <= cols.n`, so every element is
        // one of the plane. Those are readable and writable, and the two do not overlap (the contract of this function). A
        // block of `side` by `side` elements has lines of 64 bytes on both sides, as `rows.from` and `cols.to` are `N`. With
        // `writes_lines` those of the target are aligned, because the start, the row stride and the column of a block are
        // multiples of a line.
        unsafe {
            let (from, to) =
                (from.offset(top * rows.from + left * cols.from), to.offset(top * rows.to + left * cols.to));
            if height == side && width == side {
                #[cfg(target_arch = "x86_64")]
                if N == 4 && has_avx2 {
                    return transpose_avx2::transpose_block(from, cols.from, to, rows.to, writes_lines);
                }
                transpose_block::<N>(from, cols.from, to, rows.to, writes_lines);
            } else {
                elements::copy_plane(N, &rest, from, to);
            }
        }
    };
    let (across, down) = if writes_lines { NON_TEMPORAL_TILE_BLOCKS } else { TILE_BLOCKS };
    let (across, down) = (across * side, down * side);
    if non_temporal && !is_aligned {
        let blocks = Plane { rows: Axis { n: block_rows, ..rows }, cols: Axis { n: block_cols, ..cols } };
        // SAFETY: a part of the plane, whose elements are readable and writable (the contract of this function). `block_rows`
        // and `block_cols` are rounded down to multiples of `side`.
        unsafe { transpose_in_strips::<N>(&blocks, from, to) }
    } else {
        for far_left in (0..block_cols).step_by(across) {
            for far_top in (0..block_rows).step_by(down) {
                for left in (far_left..block_cols.min(far_left.saturating_add(across))).step_by(side) {
                    for top in (far_top..block_rows.min(far_top.saturating_add(down))).step_by(side) {
                        if !writes_lines {
                            // The lines of the next block are rows apart on both sides, which the hardware does not
                            // prefetch. (This saves a third of the time of 512 x 512 float32.)
                            let next_from = top as isize * rows.from + (left + side) as isize * cols.from;
                            let next_to = top as isize * rows.to + (left + side) as isize * cols.to;
                            for line in 0..side as isize {
                                non_temporal::prefetch(from.wrapping_offset(next_from + line * cols.from), 1);
                                non_temporal::prefetch_to_write(to.wrapping_offset(next_to + line * rows.to));
                            }
                        }
                        transpose_part(top, side, left, side);
                    }
                }
            }
        }
    }
    transpose_part(block_rows, rows.n - block_rows, 0, block_cols);
    transpose_part(0, rows.n, block_cols, cols.n - block_cols);
}

/// Transposes whole blocks with non-temporal stores if the rows of the target do not start at cache lines. Adjacent blocks
/// are collected in a buffer first, so that most stores to a row fill whole lines.
///
/// # Safety
/// As [`transpose_plane`], and rows and columns are multiples of the side of a block.
unsafe fn transpose_in_strips<const N: usize>(plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    let side = LINE_BYTES / N;
    // On the heap, because the stack may be small.
    let Ok(buffer) = HostBlock::new(STRIP_BLOCKS * LINE_BYTES * LINE_BYTES) else {
        // SAFETY: every element of the plane is readable and writable, and the two do not overlap (the contract of this
        // function).
        return unsafe { elements::copy_plane(N, plane, from, to) };
    };
    let buffer = buffer.data();
    for left in (0..cols.n).step_by(STRIP_BLOCKS * side) {
        let width = (STRIP_BLOCKS * side).min(cols.n - left);
        for top in (0..rows.n).step_by(side) {
            let (start, end) = (left as isize, (left + width) as isize);
            // SAFETY: `top + side` is at most `rows.n`, and `col + side` at most `cols.n`, as both are multiples of `side`. So
            // the blocks are readable and their targets writable (the contract of this function). The buffer has at least 64
            // lines of `STRIP_BLOCKS` blocks side by side, of which `width` elements are used, and nothing else uses it.
            unsafe {
                let from = from.offset(top as isize * rows.from);
                for col in (start..end).step_by(side) {
                    let target = buffer.add((col - start) as usize * N);
                    let from = from.offset(col * cols.from);
                    transpose_block_cached::<N>(
                        from,
                        cols.from,
                        target,
                        (STRIP_BLOCKS * LINE_BYTES) as isize,
                    );
                    for line in 0..side as isize {
                        non_temporal::prefetch(
                            from.wrapping_offset(line * cols.from + LINE_BYTES as isize),
                            1,
                        );
                    }
                }
                for line in 0..side {
                    let to = to.offset((top + line) as isize * rows.to + start * cols.to);
                    non_temporal::copy(buffer.add(line * STRIP_BLOCKS * LINE_BYTES), to, width * N);
                }
            }
        }
    }
}

/// Transposes one block by the fastest method of this processor, with ordinary stores.
///
/// # Safety
/// As [`transpose_block`].
#[inline(always)]
unsafe fn transpose_block_cached<const N: usize>(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
) {
    // SAFETY: the lines are readable and writable (the contract of this function), and ordinary stores need no alignment.
    // `transpose_avx2::transpose_block` has sixteen lines, which `64 / N` is for `N == 4`, and needs AVX2, which was detected.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if N == 4 && cpu_features::has_avx2() {
            return transpose_avx2::transpose_block(from, from_step, to, to_step, false);
        }
        transpose_block::<N>(from, from_step, to, to_step, false);
    }
}

/// Transposes one block.
///
/// # Safety
/// `64 / N` lines of 64 bytes are readable every `from_step` bytes and writable every `to_step` bytes; those
/// are aligned to 64 bytes if `non_temporal`, and [`non_temporal::fence`] follows.
#[inline(always)]
unsafe fn transpose_block<const N: usize>(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
    non_temporal: bool,
) {
    let side = LINE_BYTES / N;
    let per_vector = VECTOR_BYTES / N;
    let mut transposed = BlockBuffer(MaybeUninit::uninit());
    let transposed = transposed.0.as_mut_ptr().cast::<Line>();
    for group in 0..side / per_vector {
        for part in 0..LINE_BYTES / VECTOR_BYTES {
            let mut vectors = [[0u8; VECTOR_BYTES]; VECTOR_BYTES];
            for (index, vector) in vectors.iter_mut().enumerate().take(per_vector) {
                let line = (group * per_vector + index) as isize;
                // SAFETY: `line` is below `side`, the number of lines of 64 bytes that are readable (the contract of this
                // function), and `part` is below the four parts of a line. Byte arrays have an alignment of one.
                *vector =
                    unsafe { from.offset(line * from_step).cast::<[u8; VECTOR_BYTES]>().add(part).read() };
            }
            transpose_vectors::<N>(&mut vectors);
            for (index, vector) in vectors.iter().enumerate().take(per_vector) {
                // SAFETY: the buffer is a local variable of 64 lines of four vectors. `part * per_vector + index` is below
                // `4 * per_vector`, which is `side`, at most 64, and `group` is below `side / per_vector`, which is four.
                unsafe {
                    transposed
                        .add(part * per_vector + index)
                        .cast::<[u8; VECTOR_BYTES]>()
                        .add(group)
                        .write(*vector)
                }
            }
        }
    }
    for line in 0..side {
        // SAFETY: the loops over groups and parts have written the first `side` lines of the buffer. `line` is below `side`,
        // the number of target lines that are writable, and aligned if `non_temporal` (the contract of this function, which
        // also promises the fence). The buffer is a local variable, so it does not overlap the target.
        unsafe {
            let (source, target) = (transposed.add(line), to.offset(line as isize * to_step).cast::<Line>());
            if non_temporal {
                non_temporal::copy_line(source.cast(), target.cast())
            } else {
                source.copy_to_nonoverlapping(target, 1)
            }
        }
    }
}

/// Transposes the first `16 / N` vectors as a square of elements of `N` bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose_vectors<const N: usize>(vectors: &mut [[u8; VECTOR_BYTES]; VECTOR_BYTES]) {
    use std::arch::x86_64::*;
    let per_vector = VECTOR_BYTES / N;
    // SAFETY: the intrinsics require SSE2, which is part of x86-64. The loads and stores access the sixteen bytes of an array,
    // and need no alignment.
    unsafe {
        let mut now = [_mm_setzero_si128(); VECTOR_BYTES];
        for (register, vector) in now.iter_mut().zip(vectors.iter()).take(per_vector) {
            *register = _mm_loadu_si128(vector.as_ptr().cast());
        }
        for _ in 0..per_vector.trailing_zeros() {
            let before = now;
            for i in 0..per_vector / 2 {
                let (a, b) = (before[i], before[i + per_vector / 2]);
                (now[2 * i], now[2 * i + 1]) = match N {
                    1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                    2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                    4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                    _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
                };
            }
        }
        for (register, vector) in now.iter().zip(vectors.iter_mut()).take(per_vector) {
            _mm_storeu_si128(vector.as_mut_ptr().cast(), *register);
        }
    }
}

/// Transposes the first `16 / N` vectors as a square of elements of `N` bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn transpose_vectors<const N: usize>(vectors: &mut [[u8; VECTOR_BYTES]; VECTOR_BYTES]) {
    transpose_vectors_portable::<N>(vectors);
}

/// [`transpose_vectors`] without vector instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn transpose_vectors_portable<const N: usize>(vectors: &mut [[u8; VECTOR_BYTES]; VECTOR_BYTES]) {
    let before = *vectors;
    let per_vector = VECTOR_BYTES / N;
    for row in 0..per_vector {
        for col in 0..per_vector {
            vectors[row][col * N..(col + 1) * N].copy_from_slice(&before[col][row * N..(row + 1) * N]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_methods_agree<const N: usize>() {
        let start: [[u8; VECTOR_BYTES]; VECTOR_BYTES] =
            std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u8));
        let (mut vectorised, mut portable) = (start, start);
        transpose_vectors::<N>(&mut vectorised);
        transpose_vectors_portable::<N>(&mut portable);
        let per_vector = VECTOR_BYTES / N;
        assert_eq!(vectorised[..per_vector], portable[..per_vector]);
        transpose_vectors_portable::<N>(&mut portable);
        assert_eq!(portable, start);
    }

    #[test]
    fn both_methods_agree() {
        check_methods_agree::<1>();
        check_methods_agree::<2>();
        check_methods_agree::<4>();
        check_methods_agree::<8>();
        check_methods_agree::<16>();
    }
}
