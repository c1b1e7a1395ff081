//! Groups elements by one of their axes with a stable counting sort.
//!
//! It converts compressed rows to compressed columns and back, and coordinates to either. Each thread counts its elements of
//! every group, which gives the range that it writes. Indices that are out of bounds are skipped, so that a caller who changes
//! them concurrently cannot cause accesses out of bounds.

use super::index::sealed::Sealed;
use super::index::{Axis, Index};
use super::parallel::{NumberBlock, SharedOutput, block_bounds, block_start, choose_threads, for_each_block};
use crate::error::{Error, Result};
use std::mem::MaybeUninit;

/// Elements with two coordinates: the group and the other axis.
///
/// The trait is sealed, because [`group_by_axis`] trusts the numbers of the elements:
///
/// ```compile_fail,E0277
/// struct Endless;
///
/// impl tensorferry_core::sparse::group::Elements<i64> for Endless {
///     fn count(&self) -> usize {
///         1
///     }
///     fn visit(&self, _: usize, _: usize, mut visitor: impl FnMut(usize, i64, i64)) {
///         visitor(usize::MAX, 0, 0);
///     }
/// }
/// ```
pub trait Elements<I: Index>: Sealed + Sync {
    /// The number of elements.
    fn count(&self) -> usize;

    /// Calls a function for a range of elements, with the number, the group and the other coordinate of each. The numbers are
    /// within the range and below the count, and no number comes twice.
    fn visit(&self, from: usize, to: usize, visitor: impl FnMut(usize, I, I));
}

/// Compressed rows, whose columns are the groups.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, I> {
    /// The start of each row, and the end of the last.
    pub indptr: &'a [I],
    /// The columns.
    pub indices: &'a [I],
}

impl<I> Sealed for Rows<'_, I> {}

impl<I: Index> Elements<I> for Rows<'_, I> {
    fn count(&self) -> usize {
        self.indices.len()
    }

    #[inline(always)]
    fn visit(&self, from: usize, to: usize, mut visitor: impl FnMut(usize, I, I)) {
        let mut row = self.indptr.partition_point(|begin| begin.to_usize() <= from).saturating_sub(1);
        let mut element = from;
        while element < to && row + 1 < self.indptr.len() {
            let end = self.indptr[row + 1].to_usize().min(to);
            for (offset, &column) in self.indices[element..end.max(element)].iter().enumerate() {
                visitor(element + offset, column, I::from_usize(row));
            }
            element = end.max(element);
            row += 1;
        }
    }
}

/// Coordinates along two axes, the groups first.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a, I> {
    /// The axis of the groups.
    pub groups: Axis<'a, I>,
    /// The other axis.
    pub others: Axis<'a, I>,
}

impl<I> Sealed for Pairs<'_, I> {}

impl<I: Index> Elements<I> for Pairs<'_, I> {
    /// The number of elements with both coordinates.
    fn count(&self) -> usize {
        self.groups.count().min(self.others.count())
    }

    #[inline(always)]
    fn visit(&self, from: usize, to: usize, mut visitor: impl FnMut(usize, I, I)) {
        let to = to.min(self.count());
        let from = from.min(to);
        if let (Some(groups), Some(others)) = (self.groups.slice(), self.others.slice()) {
            let both = groups[from..to].iter().zip(&others[from..to]);
            for (offset, (&group, &other)) in both.enumerate() {
                visitor(from + offset, group, other);
            }
            return;
        }
        let both = self.groups.range(from, to).zip(self.others.range(from, to));
        for (element, (group, other)) in (from..to).zip(both) {
            visitor(element, group, other);
        }
    }
}

/// Groups elements. `indptr`, which has one number more than there are groups, gets the start of each group and the end of the
/// last, and `others` the other coordinate of each element. `carry` is called from several threads with the old and the new
/// number of each element: numbers below the count, each new number at most once. Returns the number of elements whose group is
/// within bounds; nothing is written after them.
///
/// # Errors
/// When the counters cannot be allocated.
///
/// # Panics
/// When `indptr` is empty, or `others` has fewer numbers than there are elements.
///
/// # Safety
/// An `I` can represent the number of elements. The elements are the same each time that they are visited: nothing writes their
/// arrays meanwhile.
pub unsafe fn group_by_axis<I: Index, E: Elements<I>>(
    elements: &E,
    indptr: &mut [MaybeUninit<I>],
    others: &mut [MaybeUninit<I>],
    threads: usize,
    carry: impl Fn(usize, usize) + Sync,
) -> Result<usize> {
    let count = elements.count();
    assert!(!indptr.is_empty() && others.len() >= count);
    let groups = indptr.len() - 1;
    // Each block has its own counters, so there are few blocks if there are about as many groups as elements.
    let blocks = choose_threads(count, threads).min((count / 4).checked_div(groups).unwrap_or(1).max(1));
    let counter_count = groups
        .checked_mul(blocks)
        .ok_or_else(|| Error::invalid_tensor(format!("{groups} groups exceed the address space")))?;
    let mut counters = NumberBlock::new(counter_count)?;
    let bounds = block_bounds(counter_count, blocks);
    for_each_block(counters.slots(), &bounds, blocks, |_, counters| {
        counters.fill(MaybeUninit::new(I::from_usize(0)));
    });
    // SAFETY: the blocks cover all slots, and each was filled.
    let mut counters = unsafe { counters.assume_written() };
    let range = |block: usize| (block_start(count, blocks, block), block_start(count, blocks, block + 1));
    for_each_block(counters.numbers_mut(), &bounds, blocks, |block, counters| {
        let (from, to) = range(block);
        elements.visit(from, to, |_, group, _| {
            if let Some(counter) = counters.get_mut(group.to_usize()) {
                *counter = I::from_usize(counter.to_usize() + 1);
            }
        });
    });
    let mut total = 0;
    for (group, pointer) in indptr.iter_mut().take(groups).enumerate() {
        pointer.write(I::from_usize(total));
        for block in 0..blocks {
            let counter = &mut counters.numbers_mut()[groups * block + group];
            total += std::mem::replace(counter, I::from_usize(total)).to_usize();
        }
    }
    indptr[groups].write(I::from_usize(total));
    let others = SharedOutput(others.as_mut_ptr().cast::<I>());
    for_each_block(counters.numbers_mut(), &bounds, blocks, |block, counters| {
        let (from, to) = range(block);
        elements.visit(from, to, |element, group, other| {
            if let Some(counter) = counters.get_mut(group.to_usize()) {
                let target = counter.to_usize();
                if target < count {
                    *counter = I::from_usize(target + 1);
                    // SAFETY: `others` has at least `count` aligned numbers, and the target is below the count. For each block
                    // and group the first visit counted the elements that this one writes, because the elements are the same
                    // (the contract of this function). The counters start at the sums of those before, so no two targets are
                    // equal.
                    unsafe { others.write(target, other) };
                    carry(element, target);
                }
            }
        });
    });
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::super::parallel::written;
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn group<E: Elements<i32>>(elements: &E, groups: usize) -> (Vec<i32>, Vec<i32>, Vec<usize>) {
        let count = elements.count();
        let sources: Vec<_> = (0..count).map(|_| AtomicUsize::new(usize::MAX)).collect();
        let carry = |from: usize, to: usize| {
            assert_eq!(sources[to].swap(from, Ordering::Relaxed), usize::MAX, "{to} is written twice");
        };
        let (mut indptr, mut total) = (Vec::new(), 0);
        let others = written(count, |others| {
            // Numbers after the last element whose group is within bounds are not written.
            others.fill(MaybeUninit::new(-1));
            indptr = written(groups + 1, |indptr| {
                // SAFETY: an `i32` represents the numbers of elements of these tests, and nothing writes the arrays.
                total = unsafe { group_by_axis(elements, indptr, others, 3, carry) }.unwrap();
            });
        });
        assert_eq!(total as i32, indptr[groups]);
        (indptr, others, sources.into_iter().map(AtomicUsize::into_inner).collect())
    }

    proptest! {
        #[test]
        fn groups_keep_their_order(mut pairs in prop::collection::vec((0i32..5, 0i32..9), 0..200), rows: bool) {
            if rows {
                pairs.sort_by_key(|pair| pair.1);
            }
            let (groups, others): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
            let mut expected: Vec<usize> = (0..pairs.len()).collect();
            expected.sort_by_key(|&element| groups[element]);
            let found = if rows {
                let indptr: Vec<i32> =
                    (0..10).map(|row| others.partition_point(|&other| other < row) as i32).collect();
                group(&Rows { indptr: &indptr, indices: &groups }, 5)
            } else {
                group(&Pairs { groups: groups[..].into(), others: others[..].into() }, 5)
            };
            prop_assert_eq!(&found.2, &expected);
            prop_assert_eq!(found.1, expected.iter().map(|&element| others[element]).collect::<Vec<_>>());
            for (group, pair) in found.0.windows(2).enumerate() {
                let in_group = groups.iter().filter(|&&found| found == group as i32).count();
                prop_assert_eq!((pair[1] - pair[0]) as usize, in_group);
            }
        }
    }

    #[test]
    fn indices_out_of_bounds_are_skipped() {
        let (groups, others) = ([0, 7, -3, 1], [0, 1, 2, 3]);
        let found = group(&Pairs { groups: groups[..].into(), others: others[..].into() }, 2);
        assert_eq!(found.0, [0, 1, 2]);
        assert_eq!(found.1[..2], [0, 3]);
        assert_eq!(found.1[2..], [-1; 2]);
        let invalid = Rows { indptr: &[0, 9, 1], indices: &[0, 1, 0] };
        assert_eq!(group(&invalid, 2).1, [0, 0, 0]);
    }
}
