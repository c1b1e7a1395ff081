//! Gathers coordinates and values in a given order, and sums the values of duplicate coordinates.

use super::index::{Axis, Index};
use super::order::SortedOrder;
use super::parallel::{SharedOutput, for_each_range};
use crate::dtype::DType;
use crate::pack::add::{Sum, dispatch_sum};

/// Writes the coordinates of an axis with a stride of `step`, converted to another index type.
///
/// # Safety
/// The target has room for them.
pub unsafe fn write_axis<I: Index, O: Index>(axis: &Axis<'_, I>, to: *mut O, step: usize, threads: usize) {
    let out = SharedOutput(to);
    for_each_range(axis.count(), threads, |from, to| match (axis.slice(), step) {
        (Some(slice), 1) => {
            for (element, number) in (from..to).zip(&slice[from..to]) {
                // SAFETY: below the count.
                unsafe { out.write(element, O::from_usize(number.to_usize())) };
            }
        }
        _ => {
            for element in from..to {
                // SAFETY: below the count of both.
                unsafe { out.write(element * step, O::from_usize(axis.get(element).to_usize())) };
            }
        }
    });
}

/// Writes elements of `item` bytes in sorted order: all of them, or the first one of each coordinate.
///
/// # Safety
/// All sorted elements are readable, and the target has room for those that are written.
pub unsafe fn pick(
    order: &SortedOrder,
    firsts: bool,
    from: *const u8,
    item: usize,
    to: *mut u8,
    threads: usize,
) {
    let (numbers, starts) = (order.order(), order.starts());
    // SAFETY: the caller's contract; an order contains the numbers of the sorted elements, and starts are below their count.
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
/// The source has an element for each number, and the target has room for as many as there are numbers.
pub unsafe fn take(numbers: &[usize], from: *const u8, item: usize, to: *mut u8, threads: usize) {
    // SAFETY: the caller's contract.
    unsafe { gather(numbers.len(), |index| numbers[index], from, item, to, threads) }
}

/// Writes the coordinates of these elements along an axis.
///
/// # Safety
/// The axis has all of these elements, and the target has room for as many.
pub unsafe fn take_axis<I: Index>(elements: &[usize], axis: &Axis<'_, I>, to: *mut I) {
    for (index, &element) in elements.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { to.add(index).write(axis.get(element)) };
    }
}

/// # Safety
/// The source has an element for `number(index)` of each index below the count, and the target has room for as many.
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
        // SAFETY: the caller's contract for the number; the index is below the count and in this range.
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
/// All sorted elements are readable and aligned, and the target has room for one element of each coordinate.
pub unsafe fn sum(
    order: &SortedOrder,
    dtype: DType,
    from: *const u8,
    width: usize,
    to: *mut u8,
    threads: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { dispatch_sum!(dtype, sum_of(order, from, width, to, threads)) };
}

/// # Safety
/// As [`sum`].
unsafe fn sum_of<T: Sum>(order: &SortedOrder, from: *const u8, width: usize, to: *mut u8, threads: usize) {
    let (numbers, starts) = (order.order(), order.starts());
    let (source, target) = (SharedOutput(from.cast::<T>().cast_mut()), SharedOutput(to.cast::<T>()));
    for_each_range(starts.len(), threads, |begin, end| {
        for group in begin..end {
            let end_of_group = starts.get(group + 1).copied().unwrap_or(numbers.len());
            for within in 0..width {
                // SAFETY: numbers are below the count, and the group is in this range.
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
            // SAFETY: the targets have room for all elements, and for one of each coordinate.
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
        // SAFETY: the target has room for one element of each coordinate.
        unsafe { sum(&order, DType::Float64, values.as_ptr().cast(), 1, summed.as_mut_ptr().cast(), 1) };
        assert_eq!(summed.map(f64::to_bits), [3.0f64, -0.0, -0.0].map(f64::to_bits));
    }

    #[test]
    fn coordinates_are_interleaved_and_converted() {
        let axis = [3i32, 1, 2];
        let mut written = [0i64; 6];
        // SAFETY: the target has room for three numbers with a stride of two.
        unsafe { write_axis(&Axis::from(&axis[..]), written.as_mut_ptr().add(1), 2, 2) };
        assert_eq!(written, [0, 3, 0, 1, 0, 2]);
        let mut narrow = [0i32; 2];
        // SAFETY: as above; every second number of three.
        unsafe { write_axis(&Axis::new(axis.as_ptr(), 2, 2), narrow.as_mut_ptr(), 1, 2) };
        assert_eq!(narrow, [3, 2]);
    }
}
