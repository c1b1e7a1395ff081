//! What formats are made of: places from pointers, pointers from places, coordinates laid together, elements picked and summed.

use super::order::SortedOrder;
use super::{Axis, Index, Out, bound, worth};
use crate::dtype::DType;
use crate::pack::add::{Sum, in_its_type};
use crate::workers;

/// Runs a function for the parts of so many elements, on as many threads as they are worth.
fn in_parts(count: usize, threads: usize, work: impl Fn(usize, usize) + Sync) {
    let threads = worth(count, threads);
    let parts = if threads == 1 { 1 } else { threads * 4 };
    workers::each(parts, threads, |part| {
        work(bound(count, parts, part), bound(count, parts, part + 1));
    });
}

/// Writes the row of each of `count` elements, of pointers that go up to there.
///
/// # Safety
/// There is room for as many.
pub unsafe fn expand<I: Index>(indptr: &[I], count: usize, rows: *mut I, threads: usize) {
    let out = Out(rows);
    in_parts(count, threads, |from, to| {
        let mut row = indptr.partition_point(|begin| begin.at() <= from).saturating_sub(1);
        let mut place = from;
        while place < to {
            // Behind the last row there is nothing, unless somebody has changed the pointers meanwhile.
            let end = indptr.get(row + 1).map_or(to, |end| end.at().clamp(place, to));
            // SAFETY: below the count, and in this part.
            unsafe { out.fill(place, end, I::of(row)) };
            place = end;
            row += 1;
        }
    });
}

/// Writes where each of `rows` rows begins, and the last one ends, of rows that are in order.
///
/// # Safety
/// There is room for one more than there are rows, an `I` can hold the number of elements, and the rows are in order: two threads
/// would write the same pointer otherwise.
pub unsafe fn pointers<I: Index>(axis: &Axis<'_, I>, rows: usize, indptr: *mut I, threads: usize) {
    let (out, count) = (Out(indptr), axis.count());
    // Of each element the row behind the last one that has begun, as far as there are any.
    // SAFETY: callers ask for places up to the count, so that the one before is below it.
    let next = |place: usize| if place == 0 { 0 } else { unsafe { axis.get(place - 1) }.at().min(rows) + 1 };
    in_parts(count, threads, |from, to| {
        let mut begun = next(from).min(rows + 1);
        for place in from..to {
            // SAFETY: parts end at the count.
            let row = unsafe { axis.get(place) }.at().min(rows);
            if row + 1 > begun {
                // SAFETY: rows up to the last; what is in order has each of them begin in one part alone.
                unsafe { out.fill(begun, row + 1, I::of(place)) };
                begun = row + 1;
            }
        }
    });
    // SAFETY: the rest of the pointers, which nobody has written.
    unsafe { out.fill(next(count).min(rows + 1), rows + 1, I::of(count)) };
}

/// Writes the numbers of an axis, each `step` behind the last one.
///
/// # Safety
/// There is room for them.
pub unsafe fn write_axis<I: Index, O: Index>(axis: &Axis<'_, I>, to: *mut O, step: usize, threads: usize) {
    let out = Out(to);
    in_parts(axis.count(), threads, |from, to| match (axis.slice(), step) {
        (Some(slice), 1) => {
            for (place, number) in (from..to).zip(&slice[from..to]) {
                // SAFETY: below the count.
                unsafe { out.put(place, O::of(number.at())) };
            }
        }
        _ => {
            for place in from..to {
                // SAFETY: below the count of both.
                unsafe { out.put(place * step, O::of(axis.get(place).at())) };
            }
        }
    });
}

/// Writes elements of `item` bytes in an order, or the first of each place.
///
/// # Safety
/// As many elements as were ordered are readable, and there is room for them, or for one of each place.
pub unsafe fn pick(
    order: &SortedOrder,
    firsts: bool,
    from: *const u8,
    item: usize,
    to: *mut u8,
    threads: usize,
) {
    let (numbers, starts) = (order.order(), order.starts());
    // SAFETY: the caller's contract; an order has numbers of elements that were ordered, and starts below their count.
    unsafe {
        if firsts {
            gather(starts.len(), |place| numbers[starts[place]], from, item, to, threads);
        } else {
            gather(numbers.len(), |place| numbers[place], from, item, to, threads);
        }
    }
}

/// Writes the elements of `item` bytes that have these numbers.
///
/// # Safety
/// An element is readable for each of the numbers, and there is room for as many as there are numbers.
pub unsafe fn take(numbers: &[usize], from: *const u8, item: usize, to: *mut u8, threads: usize) {
    // SAFETY: the caller's contract.
    unsafe { gather(numbers.len(), |place| numbers[place], from, item, to, threads) }
}

/// Writes the numbers of an axis that these elements have.
///
/// # Safety
/// The axis has all of them, and there is room for as many.
pub unsafe fn take_axis<I: Index>(elements: &[usize], axis: &Axis<'_, I>, to: *mut I) {
    for (place, &element) in elements.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { to.add(place).write(axis.get(element)) };
    }
}

/// # Safety
/// An element is readable for each number that is given for a place below the count, and there is room for as many.
unsafe fn gather(
    count: usize,
    number: impl Fn(usize) -> usize + Sync,
    from: *const u8,
    item: usize,
    to: *mut u8,
    threads: usize,
) {
    let (source, target) = (Out(from.cast_mut()), Out(to));
    in_parts(count, threads, |begin, end| {
        // SAFETY: the caller's contract for the number; the place is below the count and in this part.
        let go = |size: usize| unsafe {
            for place in begin..end {
                let from = source.start().add(number(place) * size);
                target.start().add(place * size).copy_from_nonoverlapping(from, size);
            }
        };
        match item {
            1 => go(1),
            2 => go(2),
            4 => go(4),
            8 => go(8),
            16 => go(16),
            _ => go(item),
        }
    });
}

/// Writes the sum of what is at each place, in the elements' order; an element is `width` numbers.
///
/// # Safety
/// As many elements as were ordered are readable and aligned, and there is room for one of each place.
pub unsafe fn sum(
    order: &SortedOrder,
    dtype: DType,
    from: *const u8,
    width: usize,
    to: *mut u8,
    threads: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { in_its_type!(dtype, sum_of(order, from, width, to, threads)) };
}

/// # Safety
/// As [`sum`].
unsafe fn sum_of<T: Sum>(order: &SortedOrder, from: *const u8, width: usize, to: *mut u8, threads: usize) {
    let (numbers, starts) = (order.order(), order.starts());
    let (source, target) = (Out(from.cast::<T>().cast_mut()), Out(to.cast::<T>()));
    in_parts(starts.len(), threads, |begin, end| {
        for place in begin..end {
            let until = starts.get(place + 1).copied().unwrap_or(numbers.len());
            for within in 0..width {
                // SAFETY: numbers are below the count, and the place is in this part.
                unsafe {
                    let value = |number: usize| source.start().add(number * width + within).read();
                    // From the first on: zero and minus zero are zero, and what is there once must stay what it is.
                    let first = value(numbers[starts[place]]);
                    let others = numbers[starts[place] + 1..until].iter();
                    let whole = others.fold(first, |sum, &number| sum.plus(value(number)));
                    target.put(place * width + within, whole);
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
        fn pointers_and_places_belong_together(lengths in prop::collection::vec(0usize..20, 0..40)) {
            let count: usize = lengths.iter().sum();
            let mut indptr = vec![0i32];
            for length in &lengths {
                indptr.push(indptr[indptr.len() - 1] + *length as i32);
            }
            let wanted: Vec<i32> =
                lengths.iter().enumerate().flat_map(|(row, &n)| std::iter::repeat_n(row as i32, n)).collect();
            let mut rows = vec![-1; count];
            // SAFETY: there is room.
            unsafe { expand(&indptr, count, rows.as_mut_ptr(), 3) };
            prop_assert_eq!(&rows, &wanted);
            let mut found = vec![-1; lengths.len() + 1];
            // SAFETY: as above.
            unsafe { pointers(&Axis::from(&rows[..]), lengths.len(), found.as_mut_ptr(), 3) };
            prop_assert_eq!(found, indptr);
        }

        #[test]
        fn sums_and_picks(places in prop::collection::vec(0i32..30, 0..200), width in 1usize..3) {
            let order = sort_by_axes(&[Axis::from(&places[..])], &[30], 3).unwrap();
            let values: Vec<f64> = (0..places.len() * width).map(|number| number as f64).collect();
            let mut summed = vec![0.0; order.starts().len() * width];
            let mut picked = vec![0.0f64; values.len()];
            let mut firsts = summed.clone();
            // SAFETY: there is room for the elements, and for one of each place.
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
                    let there = (0..places.len()).filter(|&other| places[other] == places[number]);
                    let wanted: f64 = there.map(|other| values[other * width + within]).sum();
                    prop_assert_eq!(summed[at * width + within], wanted);
                }
            }
        }
    }

    #[test]
    fn minus_zero_stays() {
        let (places, values) = ([2i32, 0, 1, 0, 1], [-0.0f64, 1.0, -0.0, 2.0, -0.0]);
        let order = sort_by_axes(&[Axis::from(&places[..])], &[3], 1).unwrap();
        let mut summed = [9.0f64; 3];
        // SAFETY: there is room for one of each place.
        unsafe { sum(&order, DType::Float64, values.as_ptr().cast(), 1, summed.as_mut_ptr().cast(), 1) };
        assert_eq!(summed.map(f64::to_bits), [3.0f64, -0.0, -0.0].map(f64::to_bits));
    }

    #[test]
    fn numbers_are_laid_and_widened() {
        let axis = [3i32, 1, 2];
        let mut made = [0i64; 6];
        // SAFETY: there is room.
        unsafe { write_axis(&Axis::from(&axis[..]), made.as_mut_ptr().add(1), 2, 2) };
        assert_eq!(made, [0, 3, 0, 1, 0, 2]);
        let mut narrow = [0i32; 2];
        // SAFETY: as above; every second number of three.
        unsafe { write_axis(&Axis::new(axis.as_ptr(), 2, 2), narrow.as_mut_ptr(), 1, 2) };
        assert_eq!(narrow, [3, 2]);
    }
}
