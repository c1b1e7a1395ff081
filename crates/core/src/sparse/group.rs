//! Groups elements by one of their axes with a stable counting sort.
//!
//! It converts compressed rows to compressed columns and back, and coordinates to either. Each thread counts its elements of
//! every group, which gives the range that it writes. Indices that are out of bounds are skipped, so that a caller who changes
//! them concurrently cannot cause accesses out of bounds.

use super::index::{Axis, Index};
use super::parallel::{SharedOutput, block_start, choose_threads};
use crate::error::{Error, Result};
use crate::host::HostBlock;
use crate::workers;

/// Elements with two coordinates: the group and the other axis.
pub trait Elements<I: Index>: Sync {
    /// The number of elements.
    fn count(&self) -> usize;

    /// Calls a function for a range of elements, with the number, the group and the other coordinate of each.
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
        for element in from..to {
            // SAFETY: below both counts.
            let (group, other) = unsafe { (self.groups.get(element), self.others.get(element)) };
            visitor(element, group, other);
        }
    }
}

/// Groups elements. `indptr` gets the start of each group and the end of the last, and `others` the other coordinate of each
/// element. `carry` is called from several threads with the old and the new number of each element. Returns the number of
/// elements whose group is within bounds; nothing is written after them.
///
/// # Errors
/// When there is no memory for the counters.
///
/// # Safety
/// `indptr` has room for `groups + 1` numbers and `others` for one per element, and an `I` can represent the number of elements.
/// The elements are the same each time that they are visited. `carry` is called only with numbers below the count, and with
/// each new number at most once.
pub unsafe fn group_by_axis<I: Index, E: Elements<I>>(
    elements: &E,
    groups: usize,
    indptr: *mut I,
    others: *mut I,
    threads: usize,
    carry: impl Fn(usize, usize) + Sync,
) -> Result<usize> {
    let count = elements.count();
    // Each block has its own counters, so there are few blocks if there are about as many groups as elements.
    let blocks = choose_threads(count, threads).min((count / 4).checked_div(groups).unwrap_or(1).max(1));
    let bytes = groups
        .checked_mul(blocks * size_of::<I>())
        .ok_or_else(|| Error::invalid_tensor(format!("{groups} groups exceed the address space")))?;
    let memory = HostBlock::new(bytes)?;
    let counters = SharedOutput(memory.data().cast::<I>());
    let others = SharedOutput(others);
    // SAFETY: the counters of this block, which no other thread uses; they have been written.
    let own = |block: usize| unsafe {
        std::slice::from_raw_parts_mut(counters.start().add(groups * block), groups)
    };
    let range = |block: usize| (block_start(count, blocks, block), block_start(count, blocks, block + 1));
    workers::for_each_parallel(blocks, blocks, |block| {
        // SAFETY: as above; they are written now.
        unsafe { counters.fill(groups * block, groups * (block + 1), I::from_usize(0)) };
        let own = own(block);
        let (from, to) = range(block);
        elements.visit(from, to, |_, group, _| {
            if let Some(counter) = own.get_mut(group.to_usize()) {
                *counter = I::from_usize(counter.to_usize() + 1);
            }
        });
    });
    let mut total = 0;
    for group in 0..groups {
        // SAFETY: `indptr` has room for all groups.
        unsafe { indptr.add(group).write(I::from_usize(total)) };
        for block in 0..blocks {
            // SAFETY: no other thread uses the counters now.
            let counter = unsafe { &mut *counters.start().add(groups * block + group) };
            total += std::mem::replace(counter, I::from_usize(total)).to_usize();
        }
    }
    // SAFETY: `indptr` has room for one more pointer.
    unsafe { indptr.add(groups).write(I::from_usize(total)) };
    workers::for_each_parallel(blocks, blocks, |block| {
        let own = own(block);
        let (from, to) = range(block);
        elements.visit(from, to, |element, group, other| {
            if let Some(counter) = own.get_mut(group.to_usize()) {
                let target = counter.to_usize();
                if target < count {
                    *counter = I::from_usize(target + 1);
                    // SAFETY: below the count; each block writes its own range, of as many elements as it has counted.
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
    use super::*;
    use proptest::prelude::*;

    fn group<E: Elements<i32>>(elements: &E, groups: usize) -> (Vec<i32>, Vec<i32>, Vec<usize>) {
        let count = elements.count();
        let (mut indptr, mut others, mut sources) =
            (vec![-1; groups + 1], vec![-1; count], vec![usize::MAX; count]);
        let out = SharedOutput(sources.as_mut_ptr());
        // SAFETY: the vectors have room; each index is written once.
        let total = unsafe {
            group_by_axis(elements, groups, indptr.as_mut_ptr(), others.as_mut_ptr(), 3, |from, to| {
                out.write(to, from)
            })
        };
        assert_eq!(total.unwrap() as i32, indptr[groups]);
        (indptr, others, sources)
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

    #[test]
    fn more_groups_than_memory_are_an_error() {
        let coordinates: [i64; 1] = [0];
        let pairs = Pairs { groups: coordinates[..].into(), others: coordinates[..].into() };
        // Miri aborts instead of failing the allocation.
        for groups in [usize::MAX, if cfg!(miri) { usize::MAX } else { usize::MAX >> 5 }] {
            let null = std::ptr::null_mut();
            // SAFETY: nothing is written without memory for the counters.
            assert!(unsafe { group_by_axis(&pairs, groups, null, null, 1, |_, _| ()) }.is_err());
        }
    }
}
