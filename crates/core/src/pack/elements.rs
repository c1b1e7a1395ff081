//! Elements one by one, from anywhere to anywhere: what is left when no better way fits.
//!
//! They are arrays of bytes, `[u8; N]`: any alignment is right, and the compiler still moves each in one go. Where
//! the source is closer together down the rows than along them, the plane goes in tiles.

use super::strided;
use super::walk::{Axis, Plane};

/// Elements along each side of a tile, where a plane is transposed but not dense.
const TILE: usize = 32;

/// Copies elements of `item` bytes one by one.
///
/// # Safety
/// Every element of the plane is readable in the source and writable in the target, and the two do not overlap.
pub(super) unsafe fn plane(item: usize, plane: &Plane, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's contract, in every arm.
    unsafe {
        match item {
            1 => plane_of::<1>(plane, from, to),
            2 => plane_of::<2>(plane, from, to),
            4 => plane_of::<4>(plane, from, to),
            8 => plane_of::<8>(plane, from, to),
            _ => plane_of::<16>(plane, from, to),
        }
    }
}

/// [`plane`] for elements of `N` bytes.
///
/// # Safety
/// As [`plane`].
unsafe fn plane_of<const N: usize>(plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    if cols.to == N as isize && cols.from % N as isize == 0 && !plane.is_transposed() {
        let step = cols.from / N as isize;
        let done = (0..rows.n as isize).all(|row| {
            // SAFETY: a row of the plane, for which the caller vouches; its target is dense.
            unsafe { strided::line(N, step, from.offset(row * rows.from), to.offset(row * rows.to), cols.n) }
        });
        if done {
            return;
        }
    }
    let (tile_rows, tile_cols) = if plane.is_transposed() { (TILE, TILE) } else { (rows.n, cols.n) };
    for top in (0..rows.n).step_by(tile_rows) {
        for left in (0..cols.n).step_by(tile_cols) {
            let height = tile_rows.min(rows.n - top);
            let width = tile_cols.min(cols.n - left);
            // The longer side is the inner loop.
            let (outer, inner) = if width >= height {
                (Axis { n: height, ..rows }, Axis { n: width, ..cols })
            } else {
                (Axis { n: width, ..cols }, Axis { n: height, ..rows })
            };
            let (top, left) = (top as isize, left as isize);
            // SAFETY: the tile lies within the plane, for which the caller vouches.
            unsafe {
                let from = from.offset(top * rows.from + left * cols.from);
                let to = to.offset(top * rows.to + left * cols.to);
                for turn in 0..outer.n as isize {
                    line::<N>(inner, from.offset(turn * outer.from), to.offset(turn * outer.to));
                }
            }
        }
    }
}

/// Copies a line of elements of `N` bytes.
///
/// # Safety
/// Every element of the line is readable in the source and writable in the target, and the two do not
/// overlap.
#[inline(always)]
pub(super) unsafe fn line<const N: usize>(axis: Axis, from: *const u8, to: *mut u8) {
    for i in 0..axis.n as isize {
        // SAFETY: element `i` is one that the caller vouches for; byte arrays have no alignment.
        unsafe {
            to.offset(i * axis.to)
                .cast::<[u8; N]>()
                .write(from.offset(i * axis.from).cast::<[u8; N]>().read());
        }
    }
}
