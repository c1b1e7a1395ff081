//! Elements of dense blocks: their coordinates, and the way into blocks.

use super::order::{SortedOrder, sort_by_axes};
use super::{Axis, Index, Out, count_of};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fallible;
use crate::pack::add::{Sum, in_its_type};

/// Writes the row and the column of every element of some blocks, block by block and row by row within each.
///
/// # Safety
/// `rows` and `columns` have room for `high * wide` numbers for each block.
pub unsafe fn expand<I: Index>(
    block_rows: &[I],
    block_columns: &[I],
    [high, wide]: [usize; 2],
    rows: *mut i64,
    columns: *mut i64,
) {
    let (rows, columns) = (Out(rows), Out(columns));
    let mut element = 0;
    for (row, column) in block_rows.iter().zip(block_columns) {
        let (top, left) = (row.wide() * high as i64, column.wide() * wide as i64);
        for down in 0..high as i64 {
            for right in 0..wide as i64 {
                // SAFETY: one of the `high * wide` elements of a block for which the caller has room.
                unsafe {
                    rows.put(element, top + down);
                    columns.put(element, left + right);
                }
                element += 1;
            }
        }
    }
}

/// The blocks that some elements of a matrix lie in, in order.
#[derive(Debug)]
pub struct Blocks {
    order: SortedOrder,
    size: [usize; 2],
}

impl Blocks {
    /// Finds the blocks of elements whose coordinates are within the shape.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn of<I: Index>(
        axes: &[Axis<'_, I>; 2],
        shape: [i64; 2],
        size: [usize; 2],
        threads: usize,
    ) -> Result<Self> {
        let count = count_of(axes);
        let mut places = [Vec::new(), Vec::new()];
        for ((places, axis), size) in places.iter_mut().zip(axes).zip(size) {
            fallible::try_reserve(places, count)?;
            // SAFETY: `count_of` is the count of the shortest axis.
            places.extend((0..count).map(|element| unsafe { axis.get(element) }.wide() / size as i64));
        }
        let [rows, columns] = &places;
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
            // SAFETY: the order holds numbers of elements below the count of both axes.
            let place = |axis: usize| unsafe { axes[axis].get(element) }.wide() / self.size[axis] as i64;
            [place(0), place(1)]
        })
    }

    /// Writes the elements into their blocks, which are zero elsewhere. Values with the same coordinates are summed.
    ///
    /// # Errors
    /// When the system has no memory for it.
    ///
    /// # Safety
    /// `values` has as many aligned elements as were ordered, and `made` has room for all blocks.
    pub unsafe fn gather<I: Index>(
        &self,
        axes: &[Axis<'_, I>; 2],
        dtype: DType,
        values: *const u8,
        made: *mut u8,
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { in_its_type!(dtype, gather_of(self, axes, values, made)) }
    }
}

/// # Safety
/// As [`Blocks::gather`].
unsafe fn gather_of<T: Sum>(
    blocks: &Blocks,
    axes: &[Axis<'_, impl Index>; 2],
    values: *const u8,
    made: *mut u8,
) -> Result<()> {
    let [high, wide] = blocks.size;
    let room = high
        .checked_mul(wide)
        .and_then(|size| size.checked_mul(blocks.count()))
        .ok_or_else(|| Error::out_of_memory(usize::MAX))?;
    // SAFETY: the caller has room for all blocks. Zero bits are zero in every type.
    unsafe { made.write_bytes(0, room * size_of::<T>()) };
    // The first value at a place is written and not added: minus zero plus zero is zero.
    let mut is_written = Vec::new();
    fallible::try_reserve(&mut is_written, room)?;
    is_written.resize(room, false);
    let (order, starts) = (blocks.order.order(), blocks.order.starts());
    let (values, made) = (values.cast::<T>(), Out(made.cast::<T>()));
    for (block, &start) in starts.iter().enumerate() {
        let end = starts.get(block + 1).copied().unwrap_or(order.len());
        for &element in &order[start..end] {
            // SAFETY: the order holds numbers of elements, for which there are coordinates and values.
            let (row, column, value) =
                unsafe { (axes[0].get(element), axes[1].get(element), values.add(element).read()) };
            let place = (block * high + row.at() % high) * wide + column.at() % wide;
            // SAFETY: the place is below the room: a block below their number, and a row and a column within its size.
            unsafe {
                let value =
                    if is_written[place] { made.start().add(place).read().plus(value) } else { value };
                made.put(place, value);
            }
            is_written[place] = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_out_of_their_blocks() {
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
