//! A dense tensor, filled with the elements of a sparse one.
//!
//! It is cleared and filled at once, row by row, where the elements are compressed rows: each row is in the cache then. Threads
//! have rows, columns or places of their own, so that no two write the same place, however often it is there.
//! What is out of bounds is left out.

use super::{Axis, Index, bound, worth};
use crate::dtype::DType;
use crate::pack::add::{Sum, in_its_type};
use crate::workers;
use std::marker::PhantomData;

/// The values, and the dense tensor that they go into.
#[derive(Clone, Copy, Debug)]
pub struct DenseFill {
    /// The first element.
    pub values: *const u8,
    /// How many elements there are.
    pub count: usize,
    /// How many numbers an element has.
    pub width: usize,
    /// Their type.
    pub dtype: DType,
    /// Whether several elements may have the same place: they are added then, and otherwise written.
    pub add: bool,
    /// Where the tensor begins.
    pub dense: *mut u8,
    /// How many elements it has room for.
    pub room: usize,
    /// Whether it is all zeros already.
    pub cleared: bool,
}

// SAFETY: pointers alone; who uses them vouches for them.
unsafe impl Sync for DenseFill {}

/// Puts an element to its place.
trait Put: Sync {
    /// # Safety
    /// Both are within bounds, values that are added are aligned, and nobody else writes the place now.
    unsafe fn put(filling: &DenseFill, element: usize, place: usize);
}

struct Adding<T>(PhantomData<fn(T)>);
struct Writing<const N: usize>;
struct WritingAny;

impl<T: Sum> Put for Adding<T> {
    #[inline(always)]
    unsafe fn put(filling: &DenseFill, element: usize, place: usize) {
        let add = |from: usize, to: usize| {
            // SAFETY: the caller's contract; the tensor is aligned.
            unsafe {
                let target = filling.dense.cast::<T>().add(to);
                target.write(target.read().plus(filling.values.cast::<T>().add(from).read()));
            }
        };
        if filling.width == 1 {
            return add(element, place);
        }
        for within in 0..filling.width {
            add(element * filling.width + within, place * filling.width + within);
        }
    }
}

impl<const N: usize> Put for Writing<N> {
    #[inline(always)]
    unsafe fn put(filling: &DenseFill, element: usize, place: usize) {
        // SAFETY: the caller's contract; an array of bytes needs no alignment.
        unsafe {
            let from = filling.values.add(element * N).cast::<[u8; N]>();
            filling.dense.add(place * N).cast::<[u8; N]>().write(from.read());
        }
    }
}

impl Put for WritingAny {
    #[inline(always)]
    unsafe fn put(filling: &DenseFill, element: usize, place: usize) {
        let item = filling.item();
        // SAFETY: the caller's contract.
        unsafe {
            let from = filling.values.add(element * item);
            filling.dense.add(place * item).copy_from_nonoverlapping(from, item);
        }
    }
}

/// Elements that say themselves where they go.
trait SupportedDevices: Sync {
    /// Fills the tensor.
    ///
    /// # Safety
    /// The filling's pointers are good for as many elements as it says.
    unsafe fn fill<P: Put>(&self, filling: &DenseFill, threads: usize);
}

impl DenseFill {
    fn item(&self) -> usize {
        self.width * self.dtype.size()
    }

    /// Clears elements.
    ///
    /// # Safety
    /// They are within the tensor, and nobody else writes them now.
    unsafe fn clear(&self, from: usize, to: usize) {
        if !self.cleared {
            // SAFETY: the caller's contract.
            unsafe { self.dense.add(from * self.item()).write_bytes(0, (to - from) * self.item()) }
        }
    }

    /// Clears it all.
    ///
    /// # Safety
    /// The tensor is writable, and nobody else writes it now.
    unsafe fn clear_all(&self, threads: usize) {
        let parts = worth(self.room, threads);
        workers::each(parts, parts, |part| {
            // SAFETY: a part of the tensor.
            unsafe { self.clear(bound(self.room, parts, part), bound(self.room, parts, part + 1)) };
        });
    }

    /// # Safety
    /// As [`SupportedDevices::fill`].
    unsafe fn run(&self, places: &impl SupportedDevices, threads: usize) {
        /// # Safety
        /// As [`SupportedDevices::fill`].
        unsafe fn adding<T: Sum>(filling: &DenseFill, places: &impl SupportedDevices, threads: usize) {
            // SAFETY: the caller's contract.
            unsafe { places.fill::<Adding<T>>(filling, threads) }
        }
        // SAFETY: the caller's contract, in every arm.
        unsafe {
            if self.add {
                in_its_type!(self.dtype, adding(self, places, threads));
                return;
            }
            match self.item() {
                1 => places.fill::<Writing<1>>(self, threads),
                2 => places.fill::<Writing<2>>(self, threads),
                4 => places.fill::<Writing<4>>(self, threads),
                8 => places.fill::<Writing<8>>(self, threads),
                16 => places.fill::<Writing<16>>(self, threads),
                _ => places.fill::<WritingAny>(self, threads),
            }
        }
    }
}

struct CompressedSummary<'a, I> {
    indptr: &'a [I],
    indices: &'a [I],
    columns: usize,
    turned: bool,
}

impl<I: Index> SupportedDevices for CompressedSummary<'_, I> {
    unsafe fn fill<P: Put>(&self, filling: &DenseFill, threads: usize) {
        let rows = self.indptr.len().saturating_sub(1);
        let clearing = if filling.cleared { 0 } else { filling.room / 8 };
        let threads = worth(self.indices.len().max(clearing), threads);
        let parts = if threads == 1 { 1 } else { (threads * 4).min(rows.max(1)) };
        if self.turned || rows * self.columns != filling.room {
            // SAFETY: the caller's contract.
            unsafe { filling.clear_all(threads) };
        }
        workers::each(parts, threads, |part| {
            for row in bound(rows, parts, part)..bound(rows, parts, part + 1) {
                if !self.turned {
                    // SAFETY: a row of this part; all rows together are within the room.
                    unsafe { filling.clear(row * self.columns, (row + 1) * self.columns) };
                }
                let (from, to) = (self.indptr[row].at(), self.indptr[row + 1].at());
                let Some(columns) = self.indices.get(from..to) else { continue };
                for (ahead, column) in columns.iter().enumerate() {
                    let column = column.at();
                    if column < self.columns {
                        let place =
                            if self.turned { column * rows + row } else { row * self.columns + column };
                        // SAFETY: an element that is there, to a row of its own, or a column where they are turned; the place
                        // is below rows times columns.
                        unsafe { P::put(filling, from + ahead, place) };
                    }
                }
            }
        });
    }
}

/// Fills a tensor with compressed rows, or with compressed columns where they are `turned`.
///
/// # Safety
/// Values are readable for as many elements as there are indices, and aligned if they are added; the tensor is writable for its
/// room, which is rows times columns, and aligned to its type.
pub unsafe fn compressed<I: Index>(
    filling: &DenseFill,
    indptr: &[I],
    indices: &[I],
    columns: usize,
    turned: bool,
    threads: usize,
) {
    let rows = indptr.len().saturating_sub(1);
    debug_assert!(rows * columns <= filling.room && indices.len() <= filling.count);
    // SAFETY: the caller's contract.
    unsafe { filling.run(&CompressedSummary { indptr, indices, columns, turned }, threads) }
}

struct CoordinateSummary<'a, I> {
    axes: &'a [Axis<'a, I>],
    lengths: &'a [i64],
}

impl<I: Index> SupportedDevices for CoordinateSummary<'_, I> {
    unsafe fn fill<P: Put>(&self, filling: &DenseFill, threads: usize) {
        let clearing = if filling.cleared { 0 } else { filling.room / 8 };
        let threads = worth(filling.count.max(clearing), threads);
        // SAFETY: the caller's contract.
        unsafe { filling.clear_all(threads) };
        // What is there once is shared out by elements. What is added is left to one thread: two would each have to look at all
        // of them, and wait for each other.
        let threads = if filling.add { 1 } else { threads };
        let own = 0..filling.room;
        workers::each(threads, threads, |part| {
            let elements = bound(filling.count, threads, part)..bound(filling.count, threads, part + 1);
            // SAFETY: the place is within the tensor and nobody else's, and the elements are there.
            let put = |element: usize, place: usize| unsafe {
                if own.contains(&place) {
                    P::put(filling, element, place);
                }
            };
            match (self.axes, self.lengths) {
                ([rows, columns], &[high, wide]) => {
                    let (high, wide) = (high as usize, wide as usize);
                    for element in elements {
                        // SAFETY: each axis has as many numbers as there are elements (the caller's contract).
                        let (row, column) = unsafe { (rows.get(element).at(), columns.get(element).at()) };
                        if row < high && column < wide {
                            put(element, row * wide + column);
                        }
                    }
                }
                // SAFETY: each axis has as many numbers as there are elements (the caller's contract).
                _ => elements.for_each(|element| put(element, unsafe { self.place(element) })),
            }
        });
    }
}

impl<I: Index> CoordinateSummary<'_, I> {
    /// Where an element goes; beyond every tensor where it has no place.
    ///
    /// # Safety
    /// Each axis has a number for the element.
    unsafe fn place(&self, element: usize) -> usize {
        let mut place = 0;
        for (axis, &length) in self.axes.iter().zip(self.lengths) {
            // SAFETY: the caller's contract.
            let at = unsafe { axis.get(element) }.at();
            if at >= length as usize {
                return usize::MAX;
            }
            place = place * length as usize + at;
        }
        place
    }
}

/// Fills a tensor with elements that have coordinates.
///
/// # Safety
/// As [`compressed`], with as many elements as each axis has numbers; the room is the product of the lengths. Where elements
/// are not added, no two have the same place.
pub unsafe fn coordinates<I: Index>(
    filling: &DenseFill,
    axes: &[Axis<'_, I>],
    lengths: &[i64],
    threads: usize,
) {
    debug_assert!(axes.iter().all(|axis| axis.count() >= filling.count));
    // SAFETY: the caller's contract.
    unsafe { filling.run(&CoordinateSummary { axes, lengths }, threads) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A filling is good for one call: whoever borrows the buffer again, to read or to reset it, ends its pointer.
    fn filling(values: &[f32], width: usize, add: bool, dense: &mut [f32]) -> DenseFill {
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
            mut places in prop::collection::vec((0i32..7, 0i32..5), 0..150), width in 1usize..4, alone: bool,
        ) {
            places.sort();
            if alone {
                places.dedup();
            }
            let values: Vec<f32> = (0..places.len() * width).map(|number| number as f32).collect();
            let mut wanted = vec![0.0; 35 * width];
            for (element, &(row, column)) in places.iter().enumerate() {
                for within in 0..width {
                    wanted[(row * 5 + column) as usize * width + within] += values[element * width + within];
                }
            }
            let (rows, columns): (Vec<i32>, Vec<i32>) = places.iter().copied().unzip();
            let indptr: Vec<i32> = (0..8).map(|row| rows.partition_point(|&found| found < row) as i32).collect();
            let axes = [Axis::from(&rows[..]), Axis::from(&columns[..])];
            let mut dense = vec![-1.0; 35 * width];
            let whole = filling(&values, width, !alone, &mut dense);
            // SAFETY: both vectors have as many elements as the filling says, and are not borrowed until it is done.
            unsafe { coordinates(&whole, &axes, &[7, 5], 3) };
            prop_assert_eq!(&dense, &wanted);
            dense.fill(-1.0);
            let whole = filling(&values, width, !alone, &mut dense);
            // SAFETY: as for `coordinates`, with a new filling.
            unsafe { compressed(&whole, &indptr, &columns, 5, false, 3) };
            prop_assert_eq!(&dense, &wanted);
            dense.fill(-1.0);
            let whole = filling(&values, width, !alone, &mut dense);
            // SAFETY: as for `coordinates`, with a new filling.
            unsafe { compressed(&whole, &indptr, &columns, 5, true, 3) };
            for row in 0..7 {
                for column in 0..5 {
                    let (turned, straight) = ((column * 7 + row) * width, (row * 5 + column) * width);
                    prop_assert_eq!(&dense[turned..][..width], &wanted[straight..][..width]);
                }
            }
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_left_out() {
        let (values, mut dense) = ([1.0f32, 2.0, 3.0], [9.0f32; 4]);
        let (rows, columns) = ([0, 9, 1], [1, 0, -1]);
        let whole = filling(&values, 1, false, &mut dense);
        // SAFETY: both arrays have as many elements as the filling says, and are not borrowed until it is done.
        unsafe {
            coordinates(&whole, &[Axis::from(&rows[..]), Axis::from(&columns[..])], &[2, 2], 1);
        }
        assert_eq!(dense, [0.0, 1.0, 0.0, 0.0]);
        let kept = DenseFill { cleared: true, ..filling(&values, 1, false, &mut dense) };
        // SAFETY: as for `coordinates`, with a new filling.
        unsafe { compressed(&kept, &[0, 1, 1], &[0], 2, false, 1) };
        assert_eq!(dense, [1.0, 1.0, 0.0, 0.0]);
        let whole = filling(&values, 1, false, &mut dense);
        // SAFETY: as for `coordinates`, with a new filling.
        unsafe { compressed(&whole, &[0, 9, 1], &columns, 2, false, 1) };
        assert_eq!(dense, [0.0; 4]);
    }
}
