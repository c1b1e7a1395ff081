//! Copies planes element by element, for layouts without a faster loop.
//!
//! Elements are byte arrays, `[u8; N]`, which have no alignment and which the compiler still copies with one instruction. A
//! plane whose source has a smaller stride down the rows than along them is copied in tiles.

use super::loop_nest::{Axis, Plane};
use super::strided;

/// The side of a tile in elements, for transposed planes that are not dense.
const TILE_ELEMENTS: usize = 32;

/// Copies elements of `item` bytes one by one.
///
/// # Safety
/// Every element of the plane is readable in the source and writable in the target, and the two do not overlap. `item` is the
/// size of a [`DType`](crate::DType).
pub(super) unsafe fn copy_plane(item: usize, plane: &Plane, from: *const u8, to: *mut u8) {
    // SAFETY: every element of the plane is readable and writable, and source and target do not overlap (the contract of this
    // function, and of each arm). Elements have 1, 2, 4, 8 or 16 bytes, the sizes of `DType`.
    unsafe {
        match item {
            1 => copy_plane_of::<1>(plane, from, to),
            2 => copy_plane_of::<2>(plane, from, to),
            4 => copy_plane_of::<4>(plane, from, to),
            8 => copy_plane_of::<8>(plane, from, to),
            _ => copy_plane_of::<16>(plane, from, to),
        }
    }
}

/// [`copy_plane`] for elements of `N` bytes.
///
/// # Safety
/// As [`copy_plane`].
unsafe fn copy_plane_of<const N: usize>(plane: &Plane, from: *const u8, to: *mut u8) {
    let Plane { rows, cols } = *plane;
    if cols.to == N as isize && cols.from % N as isize == 0 && !plane.is_transposed() {
        let step = cols.from / N as isize;
        let is_done = (0..rows.n as isize).all(|row| {
            // SAFETY: the row is one of `rows.n`, and its `cols.n` elements are readable and writable (the contract of this
            // function). They are `step` elements of `N` bytes apart in the source, and contiguous in the target, which the
            // condition checks.
            unsafe {
                strided::copy_line(N, step, from.offset(row * rows.from), to.offset(row * rows.to), cols.n)
            }
        });
        if is_done {
            return;
        }
    }
    let (tile_rows, tile_cols) =
        if plane.is_transposed() { (TILE_ELEMENTS, TILE_ELEMENTS) } else { (rows.n, cols.n) };
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
            // SAFETY: `top + height` is at most `rows.n`, and `left + width` at most `cols.n`, so every element of the tile is
            // one of the plane. Those are readable in the source and writable in the target (the contract of this function).
            unsafe {
                let from = from.offset(top * rows.from + left * cols.from);
                let to = to.offset(top * rows.to + left * cols.to);
                for index in 0..outer.n as isize {
                    copy_line::<N>(inner, from.offset(index * outer.from), to.offset(index * outer.to));
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
pub(super) unsafe fn copy_line<const N: usize>(axis: Axis, from: *const u8, to: *mut u8) {
    for i in 0..axis.n as isize {
        // SAFETY: element `i` is below `axis.n`, so it is readable in the source and writable in the target (the contract of
        // this function). Byte arrays have an alignment of one.
        unsafe {
            to.offset(i * axis.to)
                .cast::<[u8; N]>()
                .write(from.offset(i * axis.from).cast::<[u8; N]>().read());
        }
    }
}
