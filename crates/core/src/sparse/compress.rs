//! Conversion between row pointers and the row index of each element.

use super::index::{Axis, Index};
use super::parallel::{Bounds, block_bounds, block_start, choose_blocks, for_each_block};
use std::mem::MaybeUninit;

/// Expands pointers to the row of each element, and writes every number of `rows`.
pub fn expand<I: Index>(indptr: &[I], rows: &mut [MaybeUninit<I>], threads: usize) {
    let count = rows.len();
    let (threads, blocks) = choose_blocks(count, threads);
    for_each_block(rows, &block_bounds(count, blocks), threads, |block, rows| {
        let from = block_start(count, blocks, block);
        let mut row = indptr.partition_point(|begin| begin.to_usize() <= from).saturating_sub(1);
        let mut element = 0;
        while element < rows.len() {
            // The pointers end after the last row, unless another thread has changed them meanwhile.
            let end = indptr
                .get(row + 1)
                .map_or(rows.len(), |end| end.to_usize().saturating_sub(from).clamp(element, rows.len()));
            rows[element..end].fill(MaybeUninit::new(I::from_usize(row)));
            element = end;
            row += 1;
        }
    });
}

/// Writes every pointer of `indptr`, which has one more than there are rows, from the sorted row indices of the elements. An
/// `I` can represent the number of elements.
pub fn pointers<I: Index>(axis: &Axis<'_, I>, indptr: &mut [MaybeUninit<I>], threads: usize) {
    let Some(rows) = indptr.len().checked_sub(1) else { return };
    let count = axis.count();
    let (threads, blocks) = choose_blocks(count, threads);
    // Each block of elements determines the pointers from the row after its predecessor's last to its own last row. The bounds
    // are sorted even if another thread has changed the rows meanwhile.
    let mut bounds = Bounds::from_elem(0, 1);
    for block in 1..=blocks {
        let before = bounds[block - 1];
        let last = block_start(count, blocks, block).checked_sub(1);
        bounds.push(last.map_or(0, |last| axis.get(last).to_usize().min(rows) + 1).max(before));
    }
    for_each_block(indptr, &bounds, threads, |block, pointers| {
        let (from, to) = (block_start(count, blocks, block), block_start(count, blocks, block + 1));
        let (start, end) = (bounds[block], bounds[block + 1]);
        let mut pending = start;
        for (element, row) in (from..to).zip(axis.range(from, to)) {
            if row.to_usize() >= pending {
                let next = row.to_usize().saturating_add(1).min(end);
                pointers[pending - start..next - start].fill(MaybeUninit::new(I::from_usize(element)));
                pending = next;
            }
        }
        pointers[pending - start..].fill(MaybeUninit::new(I::from_usize(to)));
    });
    indptr[bounds[blocks]..].fill(MaybeUninit::new(I::from_usize(count)));
}

#[cfg(test)]
mod tests {
    use super::super::parallel::written;
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
            let rows = written(count, |rows| expand(&indptr, rows, 3));
            prop_assert_eq!(&rows, &expected);
            let found = written(indptr.len(), |found| pointers(&Axis::from(&rows[..]), found, 3));
            prop_assert_eq!(found, indptr);
        }

        #[test]
        fn invalid_numbers_are_written_within_bounds(numbers in prop::collection::vec(-3i32..50, 0..90), size in 0usize..40) {
            let count = numbers.len();
            prop_assert_eq!(written(count, |rows| expand(&numbers, rows, 3)).len(), count);
            let found = written(size, |found| pointers(&Axis::from(&numbers[..]), found, 3));
            prop_assert!(found.iter().all(|&pointer| (0..=count as i32).contains(&pointer)));
        }
    }
}
