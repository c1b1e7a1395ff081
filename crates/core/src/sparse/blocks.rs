//! Gathers elements into dense blocks, and expands blocks to the coordinates of their elements.

use super::index::{Axis, Index, common_count};
use super::order::{SortedOrder, sort_by_axes};
use super::parallel::SharedOutput;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fallible;
use crate::pack::add::{Sum, dispatch_sum};

/// Writes the row and the column of every element of the blocks, block by block and row by row within each.
///
/// # Safety
/// `rows` and `columns` have room for `height * width` numbers for each block.
pub unsafe fn expand<I: Index>(
    block_rows: &[I],
    block_columns: &[I],
    [height, width]: [usize; 2],
    rows: *mut i64,
    columns: *mut i64,
) {
    let (rows, columns) = (SharedOutput(rows), SharedOutput(columns));
    let mut element = 0;
    for (row, column) in block_rows.iter().zip(block_columns) {
        let (top, left) = (row.to_i64() * height as i64, column.to_i64() * width as i64);
        for down in 0..height as i64 {
            for right in 0..width as i64 {
                // SAFETY: one of the `height * width` elements of a block for which the caller has room.
                unsafe {
                    rows.write(element, top + down);
                    columns.write(element, left + right);
                }
                element += 1;
            }
        }
    }
}

/// The blocks that contain the elements of a matrix, sorted.
#[derive(Debug)]
pub struct Blocks {
    order: SortedOrder,
    size: [usize; 2],
}

impl Blocks {
    /// Finds the blocks of elements whose coordinates are within the shape.
    ///
    /// # Errors
    /// When there is no memory for it.
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
            // SAFETY: `common_count` is the count of the shortest axis.
            coordinates.extend((0..count).map(|element| unsafe { axis.get(element) }.to_i64() / size as i64));
        }
        let [rows, columns] = &block_coordinates;
        let lengths = [shape[0] / size[0] as i64, shape[1] / size[1] as i64];
        let order = sort_by_axes(&[Axis::from(&rows[..]), Axis::from(&columns[..])], &lengths, threads)?;
        Ok(Self { order, size })
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.order.starts().len()
    }

    /// The row and the column of each block, given the elements that [`of`](Self::of) was given.
    pub fn coordinates<'a, I: Index>(
        &'a self,
        axes: &'a [Axis<'a, I>; 2],
    ) -> impl Iterator<Item = [i64; 2]> + 'a {
        self.order.starts().iter().map(move |&start| {
            let element = self.order.order()[start];
            // SAFETY: the order contains numbers of elements below the count of both axes.
            let coordinate =
                |axis: usize| unsafe { axes[axis].get(element) }.to_i64() / self.size[axis] as i64;
            [coordinate(0), coordinate(1)]
        })
    }

    /// Writes the elements into their blocks, which are zero elsewhere. Values with the same coordinates are summed.
    ///
    /// # Errors
    /// When there is no memory for it.
    ///
    /// # Safety
    /// `values` has an aligned value for each element, and `output` has room for all blocks.
    pub unsafe fn gather<I: Index>(
        &self,
        axes: &[Axis<'_, I>; 2],
        dtype: DType,
        values: *const u8,
        output: *mut u8,
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { dispatch_sum!(dtype, gather_of(self, axes, values, output)) }
    }
}

/// # Safety
/// As [`Blocks::gather`].
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
    // SAFETY: the output has room for all blocks. Zero bytes are zero in every type.
    unsafe { output.write_bytes(0, capacity * size_of::<T>()) };
    // The first value at an index is written and not added, because -0.0 + 0.0 is 0.0.
    let mut is_written = Vec::new();
    fallible::try_reserve(&mut is_written, capacity)?;
    is_written.resize(capacity, false);
    let (order, starts) = (blocks.order.order(), blocks.order.starts());
    let (values, output) = (values.cast::<T>(), SharedOutput(output.cast::<T>()));
    for (block, &start) in starts.iter().enumerate() {
        let end = starts.get(block + 1).copied().unwrap_or(order.len());
        for &element in &order[start..end] {
            // SAFETY: the order contains numbers of elements, which have coordinates and values.
            let (row, column, value) =
                unsafe { (axes[0].get(element), axes[1].get(element), values.add(element).read()) };
            let index = (block * height + row.to_usize() % height) * width + column.to_usize() % width;
            // SAFETY: the index is below the capacity: a block below their number, and a row and a column within its size.
            unsafe {
                let value =
                    if is_written[index] { output.start().add(index).read().plus(value) } else { value };
                output.write(index, value);
            }
            is_written[index] = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_gathered_and_expanded() {
        let (rows, columns) = ([3i32, 0, 3, 1], [0i32, 5, 0, 4]);
        let values = [1.0f32, -0.0, 2.0, 4.0];
        let axes = [Axis::from(&rows[..]), Axis::from(&columns[..])];
        let blocks = Blocks::of(&axes, [4, 6], [2, 3], 1).unwrap();
        assert_eq!(blocks.coordinates(&axes).collect::<Vec<_>>(), [[0, 1], [1, 0]]);
        let mut made = [9.0f32; 12];
        // SAFETY: four values, and room for two blocks of six.
        unsafe {
            blocks.gather(&axes, DType::Float32, values.as_ptr().cast(), made.as_mut_ptr().cast()).unwrap();
        }
        let wanted = [0.0f32, 0.0, -0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0];
        assert_eq!(made.map(f32::to_bits), wanted.map(f32::to_bits));
        let mut places = [[-1i64; 12]; 2];
        let [down, right] = &mut places;
        // SAFETY: room for the elements of two blocks.
        unsafe { expand(&[0i64, 1], &[1, 0], [2, 3], down.as_mut_ptr(), right.as_mut_ptr()) };
        assert_eq!(down, &[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(right, &[3, 4, 5, 3, 4, 5, 0, 1, 2, 0, 1, 2]);
    }
}
