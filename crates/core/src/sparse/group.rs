//! Elements grouped by one of their axes, each group in the order that it had: a counting sort.
//!
//! It makes compressed columns of compressed rows, the other way round, and either of coordinates. Each part counts its own
//! elements of every group, so that all know where theirs begin; then each writes its own. The indices may be anything: what is
//! out of bounds is left out, so that a caller who changes them meanwhile harms nobody but himself.

use super::{Axis, Index, Out, bound, worth};
use crate::error::{Error, Result};
use crate::host::HostBlock;
use crate::workers;

/// Elements with a group and another coordinate each.
pub trait Elements<I: Index>: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Shows the elements from one place to another: the place, the group and the other coordinate.
    fn visit(&self, from: usize, to: usize, see: impl FnMut(usize, I, I));
}

/// Compressed rows, whose columns are the groups.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, I> {
    /// Where each row begins, and the last one ends.
    pub indptr: &'a [I],
    /// The columns.
    pub indices: &'a [I],
}

impl<I: Index> Elements<I> for Rows<'_, I> {
    fn count(&self) -> usize {
        self.indices.len()
    }

    #[inline(always)]
    fn visit(&self, from: usize, to: usize, mut see: impl FnMut(usize, I, I)) {
        let mut row = self.indptr.partition_point(|begin| begin.at() <= from).saturating_sub(1);
        let mut place = from;
        while place < to && row + 1 < self.indptr.len() {
            let end = self.indptr[row + 1].at().min(to);
            for (ahead, &column) in self.indices[place..end.max(place)].iter().enumerate() {
                see(place + ahead, column, I::of(row));
            }
            place = end.max(place);
            row += 1;
        }
    }
}

/// Coordinates along two axes, the groups first.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a, I> {
    /// The axis that is grouped by.
    pub groups: Axis<'a, I>,
    /// The other one.
    pub others: Axis<'a, I>,
}

impl<I: Index> Elements<I> for Pairs<'_, I> {
    /// Those that have both coordinates.
    fn count(&self) -> usize {
        self.groups.count().min(self.others.count())
    }

    #[inline(always)]
    fn visit(&self, from: usize, to: usize, mut see: impl FnMut(usize, I, I)) {
        let to = to.min(self.count());
        let from = from.min(to);
        if let (Some(groups), Some(others)) = (self.groups.slice(), self.others.slice()) {
            let both = groups[from..to].iter().zip(&others[from..to]);
            for (ahead, (&group, &other)) in both.enumerate() {
                see(from + ahead, group, other);
            }
            return;
        }
        for place in from..to {
            // SAFETY: below both counts.
            let (group, other) = unsafe { (self.groups.get(place), self.others.get(place)) };
            see(place, group, other);
        }
    }
}

/// Groups elements. `indptr` gets where each group begins and the last one ends, `others` the other coordinate of each element,
/// and `carry` is told from where to where each element goes, from several threads. Gives how many have a group: behind them
/// nothing is written.
///
/// # Errors
/// When the system has no memory for the counters.
///
/// # Safety
/// There is room for `groups + 1` pointers and for as many others as there are elements, whose number an `I` can hold. The
/// elements are the same each time that they are visited. `carry` is called with places below their number alone, the target's
/// each at most once.
pub unsafe fn group_by_axis<I: Index, E: Elements<I>>(
    elements: &E,
    groups: usize,
    indptr: *mut I,
    others: *mut I,
    threads: usize,
    carry: impl Fn(usize, usize) + Sync,
) -> Result<usize> {
    let count = elements.count();
    // Counters for each part: few parts where there are about as many groups as elements.
    let parts = worth(count, threads).min((count / 4).checked_div(groups).unwrap_or(1).max(1));
    let bytes = groups
        .checked_mul(parts * size_of::<I>())
        .ok_or_else(|| Error::invalid_tensor(format!("there are no {groups} groups")))?;
    let block = HostBlock::new(bytes)?;
    let counters = Out(block.data().cast::<I>());
    let others = Out(others);
    // SAFETY: the counters of this part, which no other part uses; they have been written.
    let own =
        |part: usize| unsafe { std::slice::from_raw_parts_mut(counters.start().add(groups * part), groups) };
    let range = |part: usize| (bound(count, parts, part), bound(count, parts, part + 1));
    workers::each(parts, parts, |part| {
        // SAFETY: as above, but that they are written now.
        unsafe { counters.fill(groups * part, groups * (part + 1), I::of(0)) };
        let own = own(part);
        let (from, to) = range(part);
        elements.visit(from, to, |_, group, _| {
            if let Some(counter) = own.get_mut(group.at()) {
                *counter = I::of(counter.at() + 1);
            }
        });
    });
    let mut total = 0;
    for group in 0..groups {
        // SAFETY: there is room for as many pointers.
        unsafe { indptr.add(group).write(I::of(total)) };
        for part in 0..parts {
            // SAFETY: nobody else is at work on the counters now.
            let counter = unsafe { &mut *counters.start().add(groups * part + group) };
            total += std::mem::replace(counter, I::of(total)).at();
        }
    }
    // SAFETY: there is room for one pointer more.
    unsafe { indptr.add(groups).write(I::of(total)) };
    workers::each(parts, parts, |part| {
        let own = own(part);
        let (from, to) = range(part);
        elements.visit(from, to, |place, group, other| {
            if let Some(counter) = own.get_mut(group.at()) {
                let target = counter.at();
                if target < count {
                    *counter = I::of(target + 1);
                    // SAFETY: below the count; each part has places of its own, as many as it has counted.
                    unsafe { others.put(target, other) };
                    carry(place, target);
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

    fn turned<E: Elements<i32>>(elements: &E, groups: usize) -> (Vec<i32>, Vec<i32>, Vec<usize>) {
        let count = elements.count();
        let (mut indptr, mut others, mut places) =
            (vec![-1; groups + 1], vec![-1; count], vec![usize::MAX; count]);
        let out = Out(places.as_mut_ptr());
        // SAFETY: there is room; each place is written once.
        let total = unsafe {
            group_by_axis(elements, groups, indptr.as_mut_ptr(), others.as_mut_ptr(), 3, |from, to| {
                out.put(to, from)
            })
        };
        assert_eq!(total.unwrap() as i32, indptr[groups]);
        (indptr, others, places)
    }

    proptest! {
        #[test]
        fn groups_keep_their_order(mut pairs in prop::collection::vec((0i32..5, 0i32..9), 0..200), rows: bool) {
            if rows {
                pairs.sort_by_key(|pair| pair.1);
            }
            let (groups, others): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
            let mut wanted: Vec<usize> = (0..pairs.len()).collect();
            wanted.sort_by_key(|&place| groups[place]);
            let found = if rows {
                let indptr: Vec<i32> =
                    (0..10).map(|row| others.partition_point(|&other| other < row) as i32).collect();
                turned(&Rows { indptr: &indptr, indices: &groups }, 5)
            } else {
                turned(&Pairs { groups: groups[..].into(), others: others[..].into() }, 5)
            };
            prop_assert_eq!(&found.2, &wanted);
            prop_assert_eq!(found.1, wanted.iter().map(|&place| others[place]).collect::<Vec<_>>());
            for (group, pair) in found.0.windows(2).enumerate() {
                let there = groups.iter().filter(|&&found| found == group as i32).count();
                prop_assert_eq!((pair[1] - pair[0]) as usize, there);
            }
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_left_out() {
        let (groups, others) = ([0, 7, -3, 1], [0, 1, 2, 3]);
        let found = turned(&Pairs { groups: groups[..].into(), others: others[..].into() }, 2);
        assert_eq!(found.0, [0, 1, 2]);
        assert_eq!(found.1[..2], [0, 3]);
        assert_eq!(found.1[2..], [-1; 2]);
        let broken = Rows { indptr: &[0, 9, 1], indices: &[0, 1, 0] };
        assert_eq!(turned(&broken, 2).1, [0, 0, 0]);
    }

    #[test]
    fn groups_beyond_all_memory_are_an_error() {
        let groups: [i64; 1] = [0];
        let pairs = Pairs { groups: groups[..].into(), others: groups[..].into() };
        // Miri ends the program instead of refusing.
        for many in [usize::MAX, if cfg!(miri) { usize::MAX } else { usize::MAX >> 5 }] {
            let nowhere = std::ptr::null_mut();
            // SAFETY: nothing is written where there is no memory to count in.
            assert!(unsafe { group_by_axis(&pairs, many, nowhere, nowhere, 1, |_, _| ()) }.is_err());
        }
    }
}
