//! Copies planes of elements without a type change.
//!
//! Rows that are dense on both sides are copied as runs. A transpose (dense down the rows in the source, along the rows in
//! the target) is copied in blocks of 64 by 64 bytes by `transpose`, so that every cache line is accessed once; the naive
//! loop fetches a line for each element. Everything else is a loop over `elements`.

use super::loop_nest::{Axis, Plane};
use super::non_temporal::{INTERLEAVED_RUNS, LINE_BYTES};
use super::{elements, non_temporal, transpose};
use std::mem::MaybeUninit;

/// The size of the buffer in which elements are gathered before non-temporal stores.
const GATHER_BUFFER_BYTES: usize = 2 << 10;

/// The row length from which non-temporal stores pay off: both ends of a row are partial lines.
const NON_TEMPORAL_ROW_BYTES: usize = 1 << 10;
/// The length from which a run is copied as several interleaved runs. In GB/s for 64 MiB on a Xeon: the C library's copy 10
/// with one thread; sequential non-temporal stores 9.4 with one and 14 with two; four interleaved runs 12 and 20.
const INTERLEAVE_THRESHOLD_BYTES: usize = if cfg!(test) { 1 << 10 } else { 64 << 10 };

/// A buffer for gathered elements.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; GATHER_BUFFER_BYTES]>);

/// Copies a plane of elements of `item` bytes, with non-temporal stores if requested and possible. The caller then calls
/// `non_temporal::fence`.
///
/// # Safety
/// Every element of the plane is readable in the source and writable in the target, and the two do not overlap. `item` is the
/// size of a [`DType`](crate::DType). If `non_temporal`, [`non_temporal::fence`] follows.
pub(super) unsafe fn copy_plane(
    item: usize,
    plane: &Plane,
    from: *const u8,
    to: *mut u8,
    non_temporal: bool,
) {
    let Plane { rows, cols } = *plane;
    let step = item as isize;
    if (cols.from == step && cols.to == step) || cols.n == 1 {
        // SAFETY: every element of the plane is readable and writable, and the two do not overlap (the contract of this
        // function). The elements of a row are contiguous on both sides, so the row is a run of `item * cols.n` bytes.
        unsafe { copy_rows(item * cols.n, rows, from, to, non_temporal) }
    } else if rows.from == step && cols.to == step {
        // SAFETY: every element of the plane is readable and writable, and the two do not overlap (the contract of this
        // function). `transpose_plane` also requires these two strides, and a power of two of at most 16, as all sizes of
        // `DType` are.
        unsafe { transpose::transpose_plane(item, plane, from, to, non_temporal) }
    } else if non_temporal
        && cols.to == step
        && cols.n * item >= GATHER_BUFFER_BYTES
        && !plane.is_transposed()
    {
        // SAFETY: every element of the plane is readable and writable, and the two do not overlap (the contract of this
        // function). `copy_through_buffer` also requires that `cols.to` is `item`, which the condition checks.
        unsafe { copy_through_buffer(item, plane, from, to) }
    } else {
        // SAFETY: every element of the plane is readable and writable, and the two do not overlap (the contract of both
        // functions).
        unsafe { elements::copy_plane(item, plane, from, to) }
    }
}

/// Copies `rows` runs of `bytes` bytes.
///
/// # Safety
/// Each run is readable in the source and writable in the target, and the two do not overlap. If `non_temporal`,
/// [`non_temporal::fence`] follows.
unsafe fn copy_rows(bytes: usize, rows: Axis, from: *const u8, to: *mut u8, non_temporal: bool) {
    // Short runs are copied like elements, without a call for each.
    macro_rules! copy_short {
        ($($n:literal)*) => {
            match bytes {
                $($n => {
                    // SAFETY: each run, here of as many bytes as an element of the line, is readable and writable, and the two
                    // do not overlap (the contract of this function).
                    unsafe { elements::copy_line::<$n>(rows, from, to) }
                    return;
                })*
                _ => {}
            }
        };
    }
    if rows.n > 1 {
        copy_short!(1 2 3 4 6 8 12 16 24 32);
    }
    let non_temporal = non_temporal && bytes >= NON_TEMPORAL_ROW_BYTES;
    let offsets = |row: usize| (row as isize * rows.from, row as isize * rows.to);
    let interleaved = if non_temporal { rows.n - rows.n % INTERLEAVED_RUNS } else { 0 };
    for row in (0..interleaved).step_by(INTERLEAVED_RUNS) {
        let starts: [_; INTERLEAVED_RUNS] = std::array::from_fn(|run| offsets(row + run));
        // SAFETY: `row + INTERLEAVED_RUNS` is at most `rows.n`, so the runs are readable and writable, and the two do not
        // overlap (the contract of this function, which also promises the fence).
        unsafe {
            non_temporal::copy_interleaved(
                starts.map(|(start, _)| from.offset(start)),
                starts.map(|(_, start)| to.offset(start)),
                bytes,
            )
        }
    }
    for row in interleaved..rows.n {
        // SAFETY: `row` is below `rows.n`, so the run is readable and writable, and the two do not overlap (the contract of
        // this function, which also promises the fence).
        unsafe {
            let (from, to) = (from.offset(offsets(row).0), to.offset(offsets(row).1));
            if non_temporal { copy_run(from, to, bytes) } else { from.copy_to_nonoverlapping(to, bytes) }
        }
    }
}

/// Copies one run with non-temporal stores, a long one as several interleaved runs.
///
/// # Safety
/// As [`non_temporal::copy`].
unsafe fn copy_run(from: *const u8, to: *mut u8, bytes: usize) {
    let run_bytes = if bytes < INTERLEAVE_THRESHOLD_BYTES {
        0
    } else {
        bytes / INTERLEAVED_RUNS / LINE_BYTES * LINE_BYTES
    };
    let starts: [usize; INTERLEAVED_RUNS] = std::array::from_fn(|run| run * run_bytes);
    let copied = INTERLEAVED_RUNS * run_bytes;
    // SAFETY: the interleaved runs are the first `copied` bytes, and the last copy the rest. Both are within the `bytes` bytes
    // that are readable and writable and do not overlap (the contract of `non_temporal::copy`, which this function has).
    unsafe {
        if run_bytes > 0 {
            non_temporal::copy_interleaved(
                starts.map(|start| from.add(start)),
                starts.map(|start| to.add(start)),
                run_bytes,
            );
        }
        non_temporal::copy(from.add(copied), to.add(copied), bytes - copied);
    }
}

/// Copies elements to a dense target through a buffer, with non-temporal stores.
///
/// # Safety
/// As [`copy_plane`], and `plane.cols.to` is `item`.
unsafe fn copy_through_buffer(item: usize, plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    let mut buffer = Buffer(MaybeUninit::uninit());
    let buffer = buffer.0.as_mut_ptr().cast::<u8>();
    let batch = GATHER_BUFFER_BYTES / item;
    // Elements that are far apart are not prefetched, because most of the memory between them is not needed.
    let batch_extent = batch * cols.from.unsigned_abs();
    for row in 0..rows.n as isize {
        for left in (0..cols.n).step_by(batch) {
            let part =
                Plane { rows: Axis { n: 1, ..rows }, cols: Axis { n: batch.min(cols.n - left), ..cols } };
            // SAFETY: `left + part.cols.n` is at most `cols.n`, so the elements are readable and their targets writable, and
            // the two do not overlap (the contract of this function). The buffer is a local variable of at least `batch`
            // elements, so the part fits. The elements of a row are contiguous in the target, as `cols.to` is `item`.
            unsafe {
                let start = left as isize;
                let from = from.offset(row * rows.from + start * cols.from);
                elements::copy_plane(item, &part, from, buffer);
                if batch_extent <= 4 * GATHER_BUFFER_BYTES {
                    non_temporal::prefetch(from.wrapping_add(batch_extent), batch_extent);
                }
                non_temporal::copy(buffer, to.offset(row * rows.to + start * cols.to), part.cols.n * item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a plane and compares it with a loop over indices.
    fn check(
        item: usize,
        (rows, cols): (usize, usize),
        from_steps: (isize, isize),
        to_steps: (isize, isize),
    ) {
        let offset = |(row_step, col_step): (isize, isize), row: usize, col: usize| {
            row as isize * row_step + col as isize * col_step
        };
        let extent = |steps| {
            let corners = [(0, 0), (rows - 1, 0), (0, cols - 1), (rows - 1, cols - 1)]
                .map(|(r, c)| offset(steps, r, c));
            let (low, high) = (*corners.iter().min().unwrap(), *corners.iter().max().unwrap());
            (low, (high - low) as usize + item)
        };
        let ((from_low, from_size), (to_low, to_size)) = (extent(from_steps), extent(to_steps));
        // One additional byte in front, so that nothing is aligned.
        let from: Vec<u8> = (0..from_size + 1).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut to = vec![0xee; to_size + 1];
        let mut expected = to.clone();
        for row in 0..rows {
            for col in 0..cols {
                let f = (offset(from_steps, row, col) - from_low) as usize + 1;
                let t = (offset(to_steps, row, col) - to_low) as usize + 1;
                expected[t..t + item].copy_from_slice(&from[f..f + item]);
            }
        }
        let axes = Plane {
            rows: Axis { n: rows, from: from_steps.0, to: to_steps.0 },
            cols: Axis { n: cols, from: from_steps.1, to: to_steps.1 },
        };
        // Miri does not support non-temporal stores.
        for non_temporal in [false, true].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            to.fill(0xee);
            // SAFETY: the vectors have one byte and the extent of the plane, and the pointers are those of its first element:
            // one byte after the start minus the lowest offset. They do not overlap, and `fence` follows.
            unsafe {
                let (from, to) = (from.as_ptr().offset(1 - from_low), to.as_mut_ptr().offset(1 - to_low));
                copy_plane(item, &axes, from, to, non_temporal);
            }
            non_temporal::fence();
            assert!(
                to == expected,
                "{item} bytes, {rows} x {cols}, {from_steps:?} to {to_steps:?}, non-temporal: {non_temporal}"
            );
        }
    }

    #[test]
    fn planes_of_every_kind() {
        let sizes: &[(usize, usize)] = if cfg!(miri) {
            &[(1, 1), (5, 3), (4, 9)]
        } else {
            &[
                (1, 1),
                (1, 9),
                (7, 1),
                (5, 3),
                (3, 70),
                (70, 3),
                (64, 64),
                (65, 130),
                (33, 16),
                (129, 67),
                (20, 2100),
            ]
        };
        for &item in &[1usize, 2, 4, 8, 16] {
            for &(rows, cols) in sizes {
                let (i, r, c) = (item as isize, rows as isize, cols as isize);
                let dense = (c * i, i);
                let transposed = (i, r * i);
                check(item, (rows, cols), dense, dense);
                check(item, (rows, cols), transposed, dense);
                check(item, (rows, cols), (i, r * i + 5), (c * i + 3, i));
                check(item, (rows, cols), (-i, r * i), dense);
                check(item, (rows, cols), (i, -r * i), dense);
                check(item, (rows, cols), (2 * i, 2 * r * i), dense);
                check(item, (rows, cols), dense, (3 * c * i, 3 * i));
                check(item, (rows, cols), (0, 0), dense);
                check(item, (rows, cols), (c * (i + 1), i + 1), ((c + 1) * (i + 1), i + 1));
                check(item, (rows, cols), (0, -i), (c * i + 1, i));
            }
        }
    }

    /// Large enough for non-temporal stores, with partial blocks at the edges.
    #[test]
    fn a_large_transpose() {
        if cfg!(miri) {
            return;
        }
        let (rows, cols) = (1037, 1091);
        let pitch = (cols * 4usize).next_multiple_of(64);
        let from: Vec<u32> = (0..rows * cols).map(|i| i as u32).collect();
        let mut to = vec![0u8; rows * pitch + 64];
        let start = to.as_ptr().align_offset(64);
        let axes = Plane {
            rows: Axis { n: rows, from: 4, to: pitch as isize },
            cols: Axis { n: cols, from: rows as isize * 4, to: 4 },
        };
        // SAFETY: the source has `cols` lines of `rows` elements. The target has `rows` lines of `pitch` bytes and 64 more, of
        // which `align_offset` skips at most 63. They do not overlap, and `fence` follows.
        unsafe { copy_plane(4, &axes, from.as_ptr().cast(), to.as_mut_ptr().add(start), true) };
        non_temporal::fence();
        for row in 0..rows {
            for col in 0..cols {
                let at = start + row * pitch + col * 4;
                assert_eq!(to[at..at + 4], ((col * rows + row) as u32).to_ne_bytes(), "{row} {col}");
            }
        }
    }
}
