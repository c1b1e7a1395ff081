//! Conversion between row pointers and the row index of each element.

use super::index::{Axis, Index};
use super::parallel::{SharedOutput, for_each_range};

/// Expands pointers to the row of each of `count` elements.
///
/// # Safety
/// `rows` has room for `count` numbers.
pub unsafe fn expand<I: Index>(indptr: &[I], count: usize, rows: *mut I, threads: usize) {
    let out = SharedOutput(rows);
    for_each_range(count, threads, |from, to| {
        let mut row = indptr.partition_point(|begin| begin.to_usize() <= from).saturating_sub(1);
        let mut element = from;
        while element < to {
            // The pointers end after the last row, unless another thread has changed them meanwhile.
            let end = indptr.get(row + 1).map_or(to, |end| end.to_usize().clamp(element, to));
            // SAFETY: below the count, and in this range.
            unsafe { out.fill(element, end, I::from_usize(row)) };
            element = end;
            row += 1;
        }
    });
}

/// Writes the pointers of `rows` rows from the sorted row indices of the elements.
///
/// # Safety
/// `indptr` has room for `rows + 1` numbers, an `I` can represent the number of elements, and the row indices are sorted:
/// otherwise two threads would write the same pointer.
pub unsafe fn pointers<I: Index>(axis: &Axis<'_, I>, rows: usize, indptr: *mut I, threads: usize) {
    let (out, count) = (SharedOutput(indptr), axis.count());
    // The first row whose pointer is not determined by the elements before this one.
    let next = |element: usize| match element.checked_sub(1) {
        None => 0,
        // SAFETY: callers pass elements up to the count, so the one before is below it.
        Some(previous) => unsafe { axis.get(previous) }.to_usize().min(rows) + 1,
    };
    for_each_range(count, threads, |from, to| {
        let mut pending = next(from).min(rows + 1);
        for element in from..to {
            // SAFETY: ranges end at the count.
            let row = unsafe { axis.get(element) }.to_usize().min(rows);
            if row + 1 > pending {
                // SAFETY: rows up to the last; since elements are sorted, each row starts in one range only.
                unsafe { out.fill(pending, row + 1, I::from_usize(element)) };
                pending = row + 1;
            }
        }
    });
    // SAFETY: the remaining pointers, which no range has written.
    unsafe { out.fill(next(count).min(rows + 1), rows + 1, I::from_usize(count)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn expand_and_pointers_are_inverse(lengths in prop::collection::vec(0usize..20, 0..40)) {
            let count: usize = lengths.iter().sum();
            let mut indptr = vec![0i32];
            for length in &lengths {
                indptr.push(indptr[indptr.len() - 1] + *length as i32);
            }
            let expected: Vec<i32> =
                lengths.iter().enumerate().flat_map(|(row, &n)| std::iter::repeat_n(row as i32, n)).collect();
            let mut rows = vec![-1; count];
            // SAFETY: `rows` has room for all elements.
            unsafe { expand(&indptr, count, rows.as_mut_ptr(), 3) };
            prop_assert_eq!(&rows, &expected);
            let mut found = vec![-1; lengths.len() + 1];
            // SAFETY: as above.
            unsafe { pointers(&Axis::from(&rows[..]), lengths.len(), found.as_mut_ptr(), 3) };
            prop_assert_eq!(found, indptr);
        }
    }
}
