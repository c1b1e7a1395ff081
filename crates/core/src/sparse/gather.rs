//! Gathers coordinates and values in a given order, and sums the values of duplicate coordinates.

use super::index::{Axis, Index};
use super::order::SortedOrder;
use super::parallel::{SharedOutput, block_bounds, choose_blocks, for_each_block, for_each_range};
use crate::dtype::DType;
use crate::pack::add::{Sum, dispatch_sum};
use std::mem::MaybeUninit;

/// Writes the coordinates of an axis to every `step`th number, from the first on, converted to another index type.
///
/// # Panics
/// When there are fewer numbers than coordinates times `step`, where the last may lack the numbers after it.
pub fn write_axis<I: Index, O: Index>(
    axis: &Axis<'_, I>,
    numbers: &mut [MaybeUninit<O>],
    step: usize,
    threads: usize,
) {
    let (threads, blocks) = choose_blocks(axis.count(), threads);
    let bounds = block_bounds(axis.count(), blocks);
    let mut number_bounds = bounds.clone();
    number_bounds.iter_mut().for_each(|bound| *bound = bound.saturating_mul(step).min(numbers.len()));
    let last = axis.count().checked_sub(1).map(|last| last.saturating_mul(step));
    assert!(last.is_none_or(|last| last < numbers.len()), "an axis exceeds its array");
    for_each_block(numbers, &number_bounds, threads, |block, numbers| {
        let (from, to) = (bounds[block], bounds[block + 1]);
        match (axis.slice(), step) {
            (Some(slice), 1) => {
                for (number, coordinate) in numbers.iter_mut().zip(&slice[from..to]) {
                    number.write(O::from_usize(coordinate.to_usize()));
                }
            }
            _ => {
                let mut index = 0;
                for coordinate in axis.range(from, to) {
                    numbers[index].write(O::from_usize(coordinate.to_usize()));
                    index += step;
                }
            }
        }
    });
}

/// Writes elements of `item` bytes in sorted order: all of them, or the first one of each coordinate.
///
/// # Safety
/// All sorted elements are readable, the target has room for those that are written, and the two do not overlap. Nothing else
/// uses the target meanwhile.
pub unsafe fn pick(
    order: &SortedOrder,
    firsts: bool,
    from: *const u8,
    item: usize,
    to: *mut u8,
    threads: usize,
) {
    let (numbers, starts) = (order.order(), order.starts());
    // SAFETY: the numbers of the order are those of the sorted elements, which are readable. The target has room for as many as
    // there are starts, or numbers (both by the contract of this function).
    unsafe {
        if firsts {
            gather(starts.len(), |index| numbers[starts[index]], from, item, to, threads);
        } else {
            gather(numbers.len(), |index| numbers[index], from, item, to, threads);
        }
    }
}

/// Writes the elements of `item` bytes with these numbers.
///
/// # Safety
/// The source has an element for each number, the target has room for as many as there are numbers, and the two do not overlap.
/// Nothing else uses the target meanwhile.
pub unsafe fn take(numbers: &[usize], from: *const u8, item: usize, to: *mut u8, threads: usize) {
    // SAFETY: `gather` requires a source element for each number, room for all of them, no overlap and exclusive use of the
    // target. This function's contract says so for `numbers[index]`.
    unsafe { gather(numbers.len(), |index| numbers[index], from, item, to, threads) }
}

/// Writes the coordinates of these elements along an axis, one for each number of the array.
///
/// # Panics
/// When the axis has fewer elements, or the array has another length.
pub fn take_axis<I: Index>(elements: &[usize], axis: &Axis<'_, I>, numbers: &mut [MaybeUninit<I>]) {
    assert_eq!(elements.len(), numbers.len());
    for (number, &element) in numbers.iter_mut().zip(elements) {
        number.write(axis.get(element));
    }
}

/// # Safety
/// The source has an element for `number(index)` of each index below the count, the target has room for `count` elements, and
/// the two do not overlap. Nothing else uses the target meanwhile.
unsafe fn gather(
    count: usize,
    number: impl Fn(usize) -> usize + Sync,
    from: *const u8,
    item: usize,
    to: *mut u8,
    threads: usize,
) {
    let (source, target) = (SharedOutput(from.cast_mut()), SharedOutput(to));
    for_each_range(count, threads, |begin, end| {
        // SAFETY: the source has an element for the number of each index below the count, and the target room for `count`. The
        // two do not overlap (all by the contract of this function). `for_each_range` divides the indices below the count among
        // its calls, so no other thread writes this element.
        let copy = |size: usize| unsafe {
            for index in begin..end {
                let from = source.start().add(number(index) * size);
                target.start().add(index * size).copy_from_nonoverlapping(from, size);
            }
        };
        match item {
            1 => copy(1),
            2 => copy(2),
            4 => copy(4),
            8 => copy(8),
            16 => copy(16),
            _ => copy(item),
        }
    });
}

/// Writes the sum of the elements of each coordinate, added in their order. An element has `width` numbers.
///
/// # Safety
/// All sorted elements are readable, and the target has room for one element of each coordinate. Both are aligned to the type
/// and do not overlap. Nothing else uses the target meanwhile.
pub unsafe fn sum(
    order: &SortedOrder,
    dtype: DType,
    from: *const u8,
    width: usize,
    to: *mut u8,
    threads: usize,
) {
    // SAFETY: `sum_of` requires readable elements and writable, aligned sums that do not overlap, as this function's contract
    // does. The type of a sum has the size and at most the alignment of its dtype.
    unsafe { dispatch_sum!(dtype, sum_of(order, from, width, to, threads)) };
}

/// # Safety
/// As [`sum`], for elements of `T`.
unsafe fn sum_of<T: Sum>(order: &SortedOrder, from: *const u8, width: usize, to: *mut u8, threads: usize) {
    let (numbers, starts) = (order.order(), order.starts());
    let (source, target) = (SharedOutput(from.cast::<T>().cast_mut()), SharedOutput(to.cast::<T>()));
    for_each_range(starts.len(), threads, |begin, end| {
        for group in begin..end {
            let end_of_group = starts.get(group + 1).copied().unwrap_or(numbers.len());
            for within in 0..width {
                // SAFETY: an order contains the numbers of sorted elements, which are readable and aligned. There is a group
                // for each start, for which the target has room (both by the contract of this function). `for_each_range`
                // divides the groups among its calls, so no other thread writes this element.
                unsafe {
                    let value = |number: usize| source.start().add(number * width + within).read();
                    // The sum starts with the first value and not with zero, which would turn a single -0.0 into 0.0.
                    let first = value(numbers[starts[group]]);
                    let others = numbers[starts[group] + 1..end_of_group].iter();
                    let total = others.fold(first, |sum, &number| sum.plus(value(number)));
                    target.write(group * width + within, total);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::order::sort_by_axes;
    use super::super::parallel::written;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_and_picks(coordinates in prop::collection::vec(0i32..30, 0..200), width in 1usize..3) {
            let order = sort_by_axes(&[Axis::from(&coordinates[..])], &[30], 3).unwrap();
            let values: Vec<f64> = (0..coordinates.len() * width).map(|number| number as f64).collect();
            let mut summed = vec![0.0; order.starts().len() * width];
            let mut picked = vec![0.0f64; values.len()];
            let mut firsts = summed.clone();
            // SAFETY: `values` has `width` numbers for each sorted element. `picked` has room for as many, and `summed` and
            // `firsts` for those of each start. All are vectors of `f64`, so they are aligned and do not overlap.
            unsafe {
                let from = values.as_ptr().cast();
                sum(&order, DType::Float64, from, width, summed.as_mut_ptr().cast(), 3);
                pick(&order, false, from, 8 * width, picked.as_mut_ptr().cast(), 3);
                pick(&order, true, from, 8 * width, firsts.as_mut_ptr().cast(), 3);
            }
            for (at, &number) in order.order().iter().enumerate() {
                prop_assert_eq!(&picked[at * width..][..width], &values[number * width..][..width]);
            }
            for (at, &start) in order.starts().iter().enumerate() {
                let number = order.order()[start];
                prop_assert_eq!(&firsts[at * width..][..width], &values[number * width..][..width]);
                for within in 0..width {
                    let there = (0..coordinates.len()).filter(|&other| coordinates[other] == coordinates[number]);
                    let expected: f64 = there.map(|other| values[other * width + within]).sum();
                    prop_assert_eq!(summed[at * width + within], expected);
                }
            }
        }
    }

    #[test]
    fn negative_zero_is_preserved() {
        let (coordinates, values) = ([2i32, 0, 1, 0, 1], [-0.0f64, 1.0, -0.0, 2.0, -0.0]);
        let order = sort_by_axes(&[Axis::from(&coordinates[..])], &[3], 1).unwrap();
        let mut summed = [9.0f64; 3];
        // SAFETY: there is a value for each sorted element, and `summed` has room for the three coordinates. Both are arrays of
        // `f64`.
        unsafe { sum(&order, DType::Float64, values.as_ptr().cast(), 1, summed.as_mut_ptr().cast(), 1) };
        assert_eq!(summed.map(f64::to_bits), [3.0f64, -0.0, -0.0].map(f64::to_bits));
    }

    #[test]
    fn coordinates_are_interleaved_and_converted() {
        let axis = [3i32, 1, 2];
        let interleaved = written(6, |numbers: &mut [MaybeUninit<i64>]| {
            write_axis(&Axis::from(&[0i32; 3][..]), numbers, 2, 2);
            write_axis(&Axis::from(&axis[..]), &mut numbers[1..], 2, 2);
        });
        assert_eq!(interleaved, [0, 3, 0, 1, 0, 2]);
        // SAFETY: the coordinates are every second number of an array of three, which outlives the axis.
        let strided = unsafe { Axis::new(axis.as_ptr(), 2, 2) };
        assert_eq!(
            written(2, |numbers: &mut [MaybeUninit<i32>]| write_axis(&strided, numbers, 1, 2)),
            [3, 2]
        );
        assert_eq!(written(2, |numbers| take_axis(&[2, 0], &Axis::from(&axis[..]), numbers)), [2, 3]);
    }

    #[test]
    fn an_axis_is_not_written_past_its_array() {
        let coordinates = [1i64; 40];
        let axis = Axis::from(&coordinates[..]);
        for (length, step) in [(39, 1), (78, 2)] {
            let mut numbers = vec![MaybeUninit::<i64>::uninit(); length];
            let write = || write_axis(&axis, &mut numbers, step, 2);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err());
        }
    }
}
