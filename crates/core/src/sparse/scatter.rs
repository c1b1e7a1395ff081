//! Fills a dense tensor with the elements of a sparse one.
//!
//! Compressed rows are cleared and filled row by row, while each row is in the cache. Threads have their own rows, columns or
//! elements, so that no two write to the same index. Indices out of bounds are skipped.

use super::index::{Axis, Index};
use super::parallel::{block_start, choose_threads};
use crate::dtype::DType;
use crate::pack::add::{Sum, dispatch_sum};
use crate::workers;
use std::marker::PhantomData;

/// The values of a sparse tensor, and the dense tensor that they fill.
#[derive(Clone, Copy, Debug)]
pub struct DenseFill {
    /// The address of the first element.
    pub values: *const u8,
    /// The number of elements.
    pub count: usize,
    /// The number of values of an element.
    pub width: usize,
    /// The type of the values.
    pub dtype: DType,
    /// Whether coordinates may be duplicate: elements are then added, and otherwise written.
    pub add: bool,
    /// The address of the dense tensor.
    pub dense: *mut u8,
    /// The number of elements that it has room for.
    pub room: usize,
    /// Whether it is already zero.
    pub cleared: bool,
}

// SAFETY: a shared reference gives the addresses. To dereference them is unsafe, and the functions that do so guarantee that no
// two threads use the same element of the dense tensor.
unsafe impl Sync for DenseFill {}

/// How an element is stored in the dense tensor.
trait Store: Sync {
    /// Stores an element at an index.
    ///
    /// # Safety
    /// The contract of [`compressed`] for the pointers of `fill`. The element is below `fill.count`, the index below
    /// `fill.room`, and no other thread uses the index now.
    unsafe fn store(fill: &DenseFill, element: usize, index: usize);
}

struct AddValues<T>(PhantomData<fn(T)>);
struct WriteBytes<const N: usize>;
struct WriteAnySize;

impl<T: Sum> Store for AddValues<T> {
    #[inline(always)]
    unsafe fn store(fill: &DenseFill, element: usize, index: usize) {
        let add = |from: usize, to: usize| {
            // SAFETY: `from` is a number of an element below the count, and `to` of an index below the room, which no other
            // thread uses now (the contract of `store`). Values that are added and the tensor are aligned (that of
            // `compressed`).
            unsafe {
                let target = fill.dense.cast::<T>().add(to);
                target.write(target.read().plus(fill.values.cast::<T>().add(from).read()));
            }
        };
        if fill.width == 1 {
            return add(element, index);
        }
        for within in 0..fill.width {
            add(element * fill.width + within, index * fill.width + within);
        }
    }
}

impl<const N: usize> Store for WriteBytes<N> {
    #[inline(always)]
    unsafe fn store(fill: &DenseFill, element: usize, index: usize) {
        // SAFETY: the element is below the count, and the index below the room, which no other thread uses now (the contract of
        // `store`). Elements have `N` bytes, because `run` selects `N` by their size; byte arrays have no alignment.
        unsafe {
            let from = fill.values.add(element * N).cast::<[u8; N]>();
            fill.dense.add(index * N).cast::<[u8; N]>().write(from.read());
        }
    }
}

impl Store for WriteAnySize {
    #[inline(always)]
    unsafe fn store(fill: &DenseFill, element: usize, index: usize) {
        let item = fill.item();
        // SAFETY: the element is below the count, and the index below the room, which no other thread uses now (the contract of
        // `store`); an element has `item` bytes. The values and the tensor do not overlap (the contract of `compressed`).
        unsafe {
            let from = fill.values.add(element * item);
            fill.dense.add(index * item).copy_from_nonoverlapping(from, item);
        }
    }
}

/// Elements with their indices in the dense tensor.
trait IndexedElements: Sync {
    /// Fills the tensor.
    ///
    /// # Safety
    /// The contract of [`compressed`] or [`coordinates`], whichever makes these elements.
    unsafe fn fill<S: Store>(&self, fill: &DenseFill, threads: usize);
}

impl DenseFill {
    fn item(&self) -> usize {
        self.width * self.dtype.size()
    }

    /// Clears a range of elements.
    ///
    /// # Safety
    /// The tensor is writable for `room` elements, `from <= to <= room`, and no other thread uses these elements now.
    unsafe fn clear(&self, from: usize, to: usize) {
        if !self.cleared {
            // SAFETY: the bytes of the elements from `from` to `to`, which are within the tensor and which no other thread uses
            // now (the contract of this function).
            unsafe { self.dense.add(from * self.item()).write_bytes(0, (to - from) * self.item()) }
        }
    }

    /// Clears the whole tensor.
    ///
    /// # Safety
    /// The tensor is writable for `room` elements, and no other thread uses it now.
    unsafe fn clear_all(&self, threads: usize) {
        let blocks = choose_threads(self.room, threads);
        workers::for_each_parallel(blocks, blocks, |block| {
            // SAFETY: the blocks divide the `room` elements, which are writable (the contract of this function), so they are
            // within the tensor, and no two threads clear the same element.
            unsafe {
                self.clear(block_start(self.room, blocks, block), block_start(self.room, blocks, block + 1))
            };
        });
    }

    /// # Safety
    /// The contract of [`IndexedElements::fill`] for these elements.
    unsafe fn run(&self, elements: &impl IndexedElements, threads: usize) {
        /// # Safety
        /// The contract of [`IndexedElements::fill`] for these elements.
        unsafe fn fill_by_adding<T: Sum>(fill: &DenseFill, elements: &impl IndexedElements, threads: usize) {
            // SAFETY: `fill` requires valid values, room in the tensor and exclusive use of it, as this function's contract does.
            unsafe { elements.fill::<AddValues<T>>(fill, threads) }
        }
        // SAFETY: `fill` requires valid values, room in the tensor and exclusive use of it, as this function's contract does.
        // The type of a sum has the size and at most the alignment of its dtype, and `WriteBytes` the size of an element.
        unsafe {
            if self.add {
                dispatch_sum!(self.dtype, fill_by_adding(self, elements, threads));
                return;
            }
            match self.item() {
                1 => elements.fill::<WriteBytes<1>>(self, threads),
                2 => elements.fill::<WriteBytes<2>>(self, threads),
                4 => elements.fill::<WriteBytes<4>>(self, threads),
                8 => elements.fill::<WriteBytes<8>>(self, threads),
                16 => elements.fill::<WriteBytes<16>>(self, threads),
                _ => elements.fill::<WriteAnySize>(self, threads),
            }
        }
    }
}

struct CompressedElements<'a, I> {
    indptr: &'a [I],
    indices: &'a [I],
    columns: usize,
    by_columns: bool,
}

impl<I: Index> IndexedElements for CompressedElements<'_, I> {
    unsafe fn fill<S: Store>(&self, fill: &DenseFill, threads: usize) {
        let rows = self.indptr.len().saturating_sub(1);
        let clearing = if fill.cleared { 0 } else { fill.room / 8 };
        let threads = choose_threads(self.indices.len().max(clearing), threads);
        let blocks = if threads == 1 { 1 } else { (threads * 4).min(rows.max(1)) };
        if self.by_columns || rows * self.columns != fill.room {
            // SAFETY: the tensor is writable for `room` elements, and nothing else uses it (the contract of `compressed`).
            unsafe { fill.clear_all(threads) };
        }
        workers::for_each_parallel(blocks, threads, |block| {
            for row in block_start(rows, blocks, block)..block_start(rows, blocks, block + 1) {
                if !self.by_columns {
                    // SAFETY: rows times columns is at most `room` (the contract of `compressed`), so the row is within the
                    // tensor. The blocks divide the rows, so no other thread uses this row.
                    unsafe { fill.clear(row * self.columns, (row + 1) * self.columns) };
                }
                let (from, to) = (self.indptr[row].to_usize(), self.indptr[row + 1].to_usize());
                let Some(columns) = self.indices.get(from..to) else { continue };
                for (offset, column) in columns.iter().enumerate() {
                    let column = column.to_usize();
                    if column < self.columns {
                        let index =
                            if self.by_columns { column * rows + row } else { row * self.columns + column };
                        // SAFETY: the element is an index of `indices`, which has at most `count` items. The dense index is
                        // below rows times columns, which is at most `room` (both by the contract of `compressed`). The blocks
                        // divide the rows, and different rows have different indices, so no other thread uses this index.
                        unsafe { S::store(fill, from + offset, index) };
                    }
                }
            }
        });
    }
}

/// Fills a tensor with compressed rows, or with compressed columns if `by_columns`.
///
/// # Safety
/// Values are readable for `fill.count` elements, at least as many as there are indices, and aligned to their type if they are
/// added. The tensor is writable for `fill.room` elements, at least rows times columns, and aligned to its type. The two do not
/// overlap, and nothing else uses the tensor meanwhile.
pub unsafe fn compressed<I: Index>(
    fill: &DenseFill,
    indptr: &[I],
    indices: &[I],
    columns: usize,
    by_columns: bool,
    threads: usize,
) {
    let rows = indptr.len().saturating_sub(1);
    debug_assert!(rows * columns <= fill.room && indices.len() <= fill.count);
    // SAFETY: `run` requires valid values, room in the tensor and exclusive use of it, and unique elements if they are not added.
    // This function's contract has the same clauses.
    unsafe { fill.run(&CompressedElements { indptr, indices, columns, by_columns }, threads) }
}

struct CoordinateElements<'a, I> {
    axes: &'a [Axis<'a, I>],
    lengths: &'a [i64],
}

impl<I: Index> IndexedElements for CoordinateElements<'_, I> {
    unsafe fn fill<S: Store>(&self, fill: &DenseFill, threads: usize) {
        let clearing = if fill.cleared { 0 } else { fill.room / 8 };
        let threads = choose_threads(fill.count.max(clearing), threads);
        // SAFETY: the tensor is writable for `room` elements, and nothing else uses it (the contract of `coordinates`).
        unsafe { fill.clear_all(threads) };
        // Unique elements are divided among threads. Elements that are added stay on one thread, because several would have
        // to read all of them or synchronise.
        let threads = if fill.add { 1 } else { threads };
        let bounds = 0..fill.room;
        workers::for_each_parallel(threads, threads, |block| {
            let (from, to) =
                (block_start(fill.count, threads, block), block_start(fill.count, threads, block + 1));
            // SAFETY: the callers below pass elements from `from` to `to`, which are below the count, and the index is checked
            // against the room. One thread adds; several write different elements, whose coordinates, and so whose indices,
            // are unique (the contract of `coordinates`).
            let store = |element: usize, index: usize| unsafe {
                if bounds.contains(&index) {
                    S::store(fill, element, index);
                }
            };
            match (self.axes, self.lengths) {
                ([rows, columns], &[height, width]) => {
                    let (height, width) = (height as usize, width as usize);
                    let coordinates = rows.range(from, to).zip(columns.range(from, to));
                    for (element, (row, column)) in (from..to).zip(coordinates) {
                        let (row, column) = (row.to_usize(), column.to_usize());
                        if row < height && column < width {
                            store(element, row * width + column);
                        }
                    }
                }
                _ => (from..to).for_each(|element| store(element, self.flat_index(element))),
            }
        });
    }
}

impl<I: Index> CoordinateElements<'_, I> {
    /// The index of an element in the dense tensor; `usize::MAX` if a coordinate is out of bounds.
    fn flat_index(&self, element: usize) -> usize {
        let mut index = 0;
        for (axis, &length) in self.axes.iter().zip(self.lengths) {
            let coordinate = axis.get(element).to_usize();
            if coordinate >= length as usize {
                return usize::MAX;
            }
            index = index * length as usize + coordinate;
        }
        index
    }
}

/// Fills a tensor with elements in coordinate format.
///
/// # Panics
/// When an axis has fewer coordinates than there are elements.
///
/// # Safety
/// Values are readable for `fill.count` elements, and aligned to their type if they are added. The tensor is writable for
/// `fill.room` elements, and aligned to its type. The two do not overlap, and nothing else uses the tensor meanwhile. There is
/// an axis for each length, and the product of the lengths is `fill.room`. If elements are not added, their coordinates are
/// unique.
pub unsafe fn coordinates<I: Index>(fill: &DenseFill, axes: &[Axis<'_, I>], lengths: &[i64], threads: usize) {
    // SAFETY: `run` requires valid values, room in the tensor and exclusive use of it, and unique elements if they are not added.
    // This function's contract has the same clauses.
    unsafe { fill.run(&CoordinateElements { axes, lengths }, threads) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The result is valid for one call: borrowing the buffer again invalidates its pointer.
    fn dense_fill(values: &[f32], width: usize, add: bool, dense: &mut [f32]) -> DenseFill {
        DenseFill {
            values: values.as_ptr().cast(),
            count: values.len() / width,
            width,
            dtype: DType::Float32,
            add,
            dense: dense.as_mut_ptr().cast(),
            room: dense.len() / width,
            cleared: false,
        }
    }

    proptest! {
        #[test]
        fn dense_is_the_sum_of_its_elements(
            mut coordinate_pairs in prop::collection::vec((0i32..7, 0i32..5), 0..150), width in 1usize..4, is_unique: bool,
        ) {
            coordinate_pairs.sort();
            if is_unique {
                coordinate_pairs.dedup();
            }
            let values: Vec<f32> = (0..coordinate_pairs.len() * width).map(|number| number as f32).collect();
            let mut expected = vec![0.0; 35 * width];
            for (element, &(row, column)) in coordinate_pairs.iter().enumerate() {
                for within in 0..width {
                    expected[(row * 5 + column) as usize * width + within] += values[element * width + within];
                }
            }
            let (rows, columns): (Vec<i32>, Vec<i32>) = coordinate_pairs.iter().copied().unzip();
            let indptr: Vec<i32> = (0..8).map(|row| rows.partition_point(|&found| found < row) as i32).collect();
            let axes = [Axis::from(&rows[..]), Axis::from(&columns[..])];
            let mut dense = vec![-1.0; 35 * width];
            let fill = dense_fill(&values, width, !is_unique, &mut dense);
            // SAFETY: `dense_fill` states the lengths of two vectors of `f32`, which are not borrowed during the call. The room
            // is seven times five elements. The coordinates are unique unless elements are added.
            unsafe { coordinates(&fill, &axes, &[7, 5], 3) };
            prop_assert_eq!(&dense, &expected);
            dense.fill(-1.0);
            let fill = dense_fill(&values, width, !is_unique, &mut dense);
            // SAFETY: `dense_fill` states the lengths of two vectors of `f32`, which are not borrowed during the call. There is
            // an element for each column index, and the room is seven times five.
            unsafe { compressed(&fill, &indptr, &columns, 5, false, 3) };
            prop_assert_eq!(&dense, &expected);
            dense.fill(-1.0);
            let fill = dense_fill(&values, width, !is_unique, &mut dense);
            // SAFETY: `dense_fill` states the lengths of two vectors of `f32`, which are not borrowed during the call. There is
            // an element for each column index, and the room is seven times five.
            unsafe { compressed(&fill, &indptr, &columns, 5, true, 3) };
            for row in 0..7 {
                for column in 0..5 {
                    let (transposed, original) = ((column * 7 + row) * width, (row * 5 + column) * width);
                    prop_assert_eq!(&dense[transposed..][..width], &expected[original..][..width]);
                }
            }
        }
    }

    #[test]
    fn indices_out_of_bounds_are_skipped() {
        let (values, mut dense) = ([1.0f32, 2.0, 3.0], [9.0f32; 4]);
        let (rows, columns) = ([0, 9, 1], [1, 0, -1]);
        let fill = dense_fill(&values, 1, false, &mut dense);
        // SAFETY: `dense_fill` states the lengths of two arrays of `f32`, which are not borrowed during the call. The
        // coordinates are unique.
        unsafe {
            coordinates(&fill, &[Axis::from(&rows[..]), Axis::from(&columns[..])], &[2, 2], 1);
        }
        assert_eq!(dense, [0.0, 1.0, 0.0, 0.0]);
        let kept = DenseFill { cleared: true, ..dense_fill(&values, 1, false, &mut dense) };
        // SAFETY: `dense_fill` states the lengths of two arrays of `f32`, which are not borrowed during the call. There are
        // three values for one column index, and the room is two times two.
        unsafe { compressed(&kept, &[0, 1, 1], &[0], 2, false, 1) };
        assert_eq!(dense, [1.0, 1.0, 0.0, 0.0]);
        let fill = dense_fill(&values, 1, false, &mut dense);
        // SAFETY: `dense_fill` states the lengths of two arrays of `f32`, which are not borrowed during the call. There are
        // three values for three column indices, and the room is two times two.
        unsafe { compressed(&fill, &[0, 9, 1], &columns, 2, false, 1) };
        assert_eq!(dense, [0.0; 4]);
    }
}
