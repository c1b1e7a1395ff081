//! Gathers elements into dense blocks, and expands blocks to the coordinates of their elements.

use super::index::{Axis, Index, common_count};
use super::order::{SortedOrder, sort_by_axes};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fallible;
use crate::pack::add::{Sum, dispatch_sum};
use std::mem::MaybeUninit;

/// Writes the row and the column of every element of the blocks, block by block and row by row within each, and so every number
/// of both arrays.
///
/// # Panics
/// When the arrays do not have `height * width` numbers for each block, or that product overflows.
pub fn expand<I: Index>(
    block_rows: &[I],
    block_columns: &[I],
    [height, width]: [usize; 2],
    rows: &mut [MaybeUninit<i64>],
    columns: &mut [MaybeUninit<i64>],
) {
    let blocks = block_rows.len().min(block_columns.len());
    let count = height.checked_mul(width).and_then(|size| size.checked_mul(blocks));
    assert!(count == Some(rows.len()) && count == Some(columns.len()));
    if count == Some(0) {
        return;
    }
    let elements = rows.chunks_exact_mut(width).zip(columns.chunks_exact_mut(width));
    let block_lines = block_rows
        .iter()
        .zip(block_columns)
        .flat_map(|(row, column)| (0..height as i64).map(move |down| (row, column, down)));
    for ((rows, columns), (row, column, down)) in elements.zip(block_lines) {
        let (line, left) = (row.to_i64() * height as i64 + down, column.to_i64() * width as i64);
        rows.fill(MaybeUninit::new(line));
        for (column, right) in columns.iter_mut().zip(left..) {
            column.write(right);
        }
    }
}

/// The blocks that contain the elements of a matrix, sorted.
#[derive(Debug)]
pub struct Blocks {
    order: SortedOrder,
    size: [usize; 2],
    /// The row and the column of each block.
    coordinates: Vec<[i64; 2]>,
}

impl Blocks {
    /// Finds the blocks of elements whose coordinates are within the shape.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn of<I: Index>(
        axes: &[Axis<'_, I>; 2],
        shape: [i64; 2],
        size: [usize; 2],
        threads: usize,
    ) -> Result<Self> {
        let count = common_count(axes);
        let mut block_coordinates = [Vec::new(), Vec::new()];
        for ((coordinates, axis), size) in block_coordinates.iter_mut().zip(axes).zip(size) {
            fallible::try_reserve(coordinates, count)?;
            coordinates.extend(axis.range(0, count).map(|coordinate| coordinate.to_i64() / size as i64));
        }
        let [rows, columns] = &block_coordinates;
        let lengths = [shape[0] / size[0] as i64, shape[1] / size[1] as i64];
        let order = sort_by_axes(&[Axis::from(&rows[..]), Axis::from(&columns[..])], &lengths, threads)?;
        let mut coordinates = Vec::new();
        fallible::try_reserve(&mut coordinates, order.starts().len())?;
        let firsts = order.starts().iter().map(|&start| order.order()[start]);
        coordinates.extend(firsts.map(|element| [rows[element], columns[element]]));
        Ok(Self { order, size, coordinates })
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.coordinates.len()
    }

    /// The row and the column of each block.
    ///
    /// They are those of the elements that [`of`](Self::of) was given. A method that read them from other axes could read past
    /// the end of shorter ones:
    ///
    /// ```compile_fail,E0061
    /// # use tensorferry_core::sparse::{Axis, blocks::Blocks};
    /// let (numbers, none) = ([3i64, 1], [0i64; 0]);
    /// let axes = [Axis::from(&numbers[..]), Axis::from(&numbers[..])];
    /// let blocks = Blocks::of(&axes, [4, 4], [2, 2], 1).unwrap();
    /// blocks.coordinates(&[Axis::from(&none[..]), Axis::from(&none[..])]);
    /// ```
    pub fn coordinates(&self) -> &[[i64; 2]] {
        &self.coordinates
    }

    /// Writes the elements into their blocks, which are zero elsewhere. Values with the same coordinates are summed. The axes
    /// are those that [`of`](Self::of) was given.
    ///
    /// # Errors
    /// Memory runs out.
    ///
    /// # Panics
    /// When the axes have fewer elements.
    ///
    /// # Safety
    /// `values` is readable and has a value for each element that [`of`](Self::of) was given. `output` is writable and has room
    /// for all blocks. Both are aligned to the type and do not overlap, and nothing else uses `output` meanwhile.
    pub unsafe fn gather<I: Index>(
        &self,
        axes: &[Axis<'_, I>; 2],
        dtype: DType,
        values: *const u8,
        output: *mut u8,
    ) -> Result<()> {
        // SAFETY: `gather_of` requires readable values and writable, aligned blocks that do not overlap, as this function's
        // contract does. The type of a sum has the size and at most the alignment of its dtype.
        unsafe { dispatch_sum!(dtype, gather_of(self, axes, values, output)) }
    }
}

/// # Safety
/// As [`Blocks::gather`], for elements of `T`.
unsafe fn gather_of<T: Sum>(
    blocks: &Blocks,
    axes: &[Axis<'_, impl Index>; 2],
    values: *const u8,
    output: *mut u8,
) -> Result<()> {
    let [height, width] = blocks.size;
    let capacity = height
        .checked_mul(width)
        .and_then(|size| size.checked_mul(blocks.count()))
        .ok_or_else(|| Error::out_of_memory(usize::MAX))?;
    let (values, output) = (values.cast::<T>(), output.cast::<T>());
    // SAFETY: `output` has room for all blocks (the contract of this function), which have `capacity` elements.
    unsafe { output.write_bytes(0, capacity) };
    // The first value at an index is written and not added, because -0.0 + 0.0 is 0.0.
    let mut is_written = Vec::new();
    fallible::try_reserve(&mut is_written, capacity)?;
    is_written.resize(capacity, false);
    let (order, starts) = (blocks.order.order(), blocks.order.starts());
    for (block, &start) in starts.iter().enumerate() {
        let end = starts.get(block + 1).copied().unwrap_or(order.len());
        for &element in &order[start..end] {
            let (row, column) = (axes[0].get(element).to_usize(), axes[1].get(element).to_usize());
            let index = (block * height + row % height) * width + column % width;
            let is_written = &mut is_written[index];
            // SAFETY: the order contains the numbers of the elements that `of` was given, each of which has a readable, aligned
            // value (the contract of this function). The index is below the capacity, for which `output` has room: `is_written`
            // has as many items, and its index was checked. Zero bytes are a value of every `Sum` type.
            unsafe {
                let value = values.add(element).read();
                let value = if *is_written { output.add(index).read().plus(value) } else { value };
                output.add(index).write(value);
            }
            *is_written = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parallel::written;
    use super::*;

    #[test]
    fn elements_are_gathered_and_expanded() {
        let (rows, columns) = ([3i32, 0, 3, 1], [0i32, 5, 0, 4]);
        let values = [1.0f32, -0.0, 2.0, 4.0];
        let axes = [Axis::from(&rows[..]), Axis::from(&columns[..])];
        let blocks = Blocks::of(&axes, [4, 6], [2, 3], 1).unwrap();
        assert_eq!(blocks.coordinates(), [[0, 1], [1, 0]]);
        let mut made = [9.0f32; 12];
        // SAFETY: there is a value for each of the four elements, and `made` has room for two blocks of six. Both are arrays of
        // `f32`.
        unsafe {
            blocks.gather(&axes, DType::Float32, values.as_ptr().cast(), made.as_mut_ptr().cast()).unwrap();
        }
        let wanted = [0.0f32, 0.0, -0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0];
        assert_eq!(made.map(f32::to_bits), wanted.map(f32::to_bits));
        let mut right = Vec::new();
        let down = written(12, |down| {
            right = written(12, |right| expand(&[0i64, 1], &[1, 0], [2, 3], down, right));
        });
        assert_eq!(down, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(right, [3, 4, 5, 3, 4, 5, 0, 1, 2, 0, 1, 2]);
        expand::<i32>(&[], &[], [2, 3], &mut [], &mut []);
        expand(&[1i32], &[1], [2, 0], &mut [], &mut []);
        // The product of the lengths is 2 modulo the range of a usize.
        let (mut down, mut right) = ([MaybeUninit::uninit(); 2], [MaybeUninit::uninit(); 2]);
        let size = [(usize::MAX - 1) / 3 + 1, 3];
        let overflow = std::panic::catch_unwind(move || expand(&[0i32], &[0], size, &mut down, &mut right));
        assert!(overflow.is_err());
    }

    #[test]
    fn axes_that_are_too_short_are_not_read() {
        let (coordinates, values, mut made) = ([1i64, 0], [1.0f64, 2.0], [0.0f64; 4]);
        let axes = [Axis::from(&coordinates[..]); 2];
        let blocks = Blocks::of(&axes, [2, 2], [2, 2], 1).unwrap();
        let gather = || {
            let axes = axes.map(|axis| axis.first(1));
            // SAFETY: there is a value for each of the two elements, and `made` has room for a block. Both are arrays of `f64`.
            unsafe { blocks.gather(&axes, DType::Float64, values.as_ptr().cast(), made.as_mut_ptr().cast()) }
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(gather)).is_err());
    }
}
