//! Bytes from one plane to another, unchanged: what is left of a copy when no type changes.
//!
//! Three shapes of plane matter. Rows that lie dense on both sides are moved whole. A transpose (dense down
//! the rows in the source, along the rows in the target) goes in blocks of 64 by 64 bytes, `transpose`, so
//! that every cache line is touched once: the naive loop fetches a line for each element. Everything else is
//! a loop over `elements`.

use super::walk::{Axis, Plane};
use super::{elements, stream, transpose};
use std::mem::MaybeUninit;

/// Bytes that are gathered before they are written past the caches.
const GATHERED: usize = 2 << 10;

/// Bytes of a row from which it is worth writing past the caches: its two ends are not whole lines.
const STREAMED_ROW: usize = 1 << 10;
/// Bytes of a run from which it is cut into lanes. In GB/s of 64 MiB on a Xeon: the C library's copy 10 with one thread; line
/// after line past the caches 9.4 with one and 14 with two; in four lanes 12 and 20.
const LONG_RUN: usize = if cfg!(test) { 1 << 10 } else { 64 << 10 };

/// Memory for elements on their way.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; GATHERED]>);

/// Copies a plane of elements of `item` bytes, past the caches if asked to and possible; `stream::finish` then
/// follows.
///
/// # Safety
/// Every element of the plane is readable in the source and writable in the target, and the two do not
/// overlap.
pub(super) unsafe fn plane(item: usize, plane: &Plane, from: *const u8, to: *mut u8, stream: bool) {
    let Plane { rows, cols } = *plane;
    let step = item as isize;
    if (cols.from == step && cols.to == step) || cols.n == 1 {
        // SAFETY: the caller's contract; the elements of a row are neighbours on both sides.
        unsafe { dense_rows(item * cols.n, rows, from, to, stream) }
    } else if rows.from == step && cols.to == step {
        // SAFETY: the caller's contract, and the steps that `transpose` asks for.
        unsafe { transpose::plane(item, plane, from, to, stream) }
    } else if stream && cols.to == step && cols.n * item >= GATHERED && !plane.is_transposed() {
        // SAFETY: the caller's contract, and the target's rows are dense.
        unsafe { gathered(item, plane, from, to) }
    } else {
        // SAFETY: the caller's contract.
        unsafe { elements::plane(item, plane, from, to) }
    }
}

/// Copies `rows` runs of `bytes` bytes.
///
/// # Safety
/// As [`plane`].
unsafe fn dense_rows(bytes: usize, rows: Axis, from: *const u8, to: *mut u8, stream: bool) {
    // Runs as short as an element are elements: no call for each.
    macro_rules! short {
        ($($n:literal)*) => {
            match bytes {
                $($n => {
                    // SAFETY: the caller's contract.
                    unsafe { elements::line::<$n>(rows, from, to) }
                    return;
                })*
                _ => {}
            }
        };
    }
    if rows.n > 1 {
        short!(1 2 3 4 6 8 12 16 24 32);
    }
    let stream = stream && bytes >= STREAMED_ROW;
    let place = |row: usize| (row as isize * rows.from, row as isize * rows.to);
    let together = if stream { rows.n - rows.n % stream::LANES } else { 0 };
    for row in (0..together).step_by(stream::LANES) {
        let places: [_; stream::LANES] = std::array::from_fn(|lane| place(row + lane));
        // SAFETY: the caller vouches for every row of the plane, and that the two do not overlap.
        unsafe {
            stream::copy_lanes(
                places.map(|(at, _)| from.offset(at)),
                places.map(|(_, at)| to.offset(at)),
                bytes,
            )
        }
    }
    for row in together..rows.n {
        // SAFETY: the caller vouches for every row of the plane, and that the two do not overlap.
        unsafe {
            let (from, to) = (from.offset(place(row).0), to.offset(place(row).1));
            if stream { run(from, to, bytes) } else { from.copy_to_nonoverlapping(to, bytes) }
        }
    }
}

/// Copies one run past the caches; a long one in as many pieces at a time as there are lanes.
///
/// # Safety
/// As [`stream::copy`].
unsafe fn run(from: *const u8, to: *mut u8, bytes: usize) {
    let piece = if bytes < LONG_RUN { 0 } else { bytes / stream::LANES / stream::LINE * stream::LINE };
    let places: [usize; stream::LANES] = std::array::from_fn(|lane| lane * piece);
    let done = stream::LANES * piece;
    // SAFETY: pieces of what the caller vouches for.
    unsafe {
        if piece > 0 {
            stream::copy_lanes(places.map(|at| from.add(at)), places.map(|at| to.add(at)), piece);
        }
        stream::copy(from.add(done), to.add(done), bytes - done);
    }
}

/// Copies elements whose target is dense, a few kilobytes at a time, past the caches.
///
/// # Safety
/// As [`plane`], and `plane.cols.to` is `item`.
unsafe fn gathered(item: usize, plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    let mut buffer = Buffer(MaybeUninit::uninit());
    let buffer = buffer.0.as_mut_ptr().cast::<u8>();
    let at_once = GATHERED / item;
    // Where elements lie far apart, asking for all that lies between would be wrong.
    let ahead = at_once * cols.from.unsigned_abs();
    for row in 0..rows.n as isize {
        for left in (0..cols.n).step_by(at_once) {
            let part =
                Plane { rows: Axis { n: 1, ..rows }, cols: Axis { n: at_once.min(cols.n - left), ..cols } };
            // SAFETY: a part of a row, for which the caller vouches, and a buffer that holds it.
            unsafe {
                let start = left as isize;
                let from = from.offset(row * rows.from + start * cols.from);
                elements::plane(item, &part, from, buffer);
                if ahead <= 4 * GATHERED {
                    stream::prefetch(from.wrapping_add(ahead), ahead);
                }
                stream::copy(buffer, to.offset(row * rows.to + start * cols.to), part.cols.n * item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plane over fresh memory, checked against the formula.
    fn check(
        item: usize,
        (rows, cols): (usize, usize),
        from_steps: (isize, isize),
        to_steps: (isize, isize),
    ) {
        let place = |(row_step, col_step): (isize, isize), row: usize, col: usize| {
            row as isize * row_step + col as isize * col_step
        };
        let extent = |steps| {
            let corners =
                [(0, 0), (rows - 1, 0), (0, cols - 1), (rows - 1, cols - 1)].map(|(r, c)| place(steps, r, c));
            let (low, high) = (*corners.iter().min().unwrap(), *corners.iter().max().unwrap());
            (low, (high - low) as usize + item)
        };
        let ((from_low, from_size), (to_low, to_size)) = (extent(from_steps), extent(to_steps));
        // One byte more in front: nothing is aligned.
        let from: Vec<u8> = (0..from_size + 1).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut to = vec![0xee; to_size + 1];
        let mut expected = to.clone();
        for row in 0..rows {
            for col in 0..cols {
                let f = (place(from_steps, row, col) - from_low) as usize + 1;
                let t = (place(to_steps, row, col) - to_low) as usize + 1;
                expected[t..t + item].copy_from_slice(&from[f..f + item]);
            }
        }
        let axes = Plane {
            rows: Axis { n: rows, from: from_steps.0, to: to_steps.0 },
            cols: Axis { n: cols, from: from_steps.1, to: to_steps.1 },
        };
        // Miri knows no stores past the caches.
        for stream in [false, true].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            to.fill(0xee);
            // SAFETY: the vectors were made to span the plane, from its lowest corner.
            unsafe {
                let (from, to) = (from.as_ptr().offset(1 - from_low), to.as_mut_ptr().offset(1 - to_low));
                plane(item, &axes, from, to, stream);
            }
            stream::finish();
            assert!(
                to == expected,
                "{item} bytes, {rows} x {cols}, {from_steps:?} to {to_steps:?}, past the caches: {stream}"
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

    /// Large enough to be written past the caches, with edges that do not divide.
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
        // SAFETY: the source has `cols` lines of `rows` elements, the target `rows` lines of `pitch` bytes
        // after the start.
        unsafe { plane(4, &axes, from.as_ptr().cast(), to.as_mut_ptr().add(start), true) };
        stream::finish();
        for row in 0..rows {
            for col in 0..cols {
                let place = start + row * pitch + col * 4;
                assert_eq!(to[place..place + 4], ((col * rows + row) as u32).to_ne_bytes(), "{row} {col}");
            }
        }
    }
}
