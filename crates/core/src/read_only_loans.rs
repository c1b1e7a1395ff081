//! Read-only loans: a table of read-only memory that was shared with frameworks of immutable tensors.
//!
//! Such frameworks accept read-only memory but do not record that it is: a read-only mapping that JAX has imported is
//! exported as an ordinary tensor. Code that shares read-only memory with such a framework therefore keeps a
//! [`ReadOnlyLoan`], and readers of those frameworks query [`is_on_loan`]. Without any loan the query is one atomic load.
//!
//! The reverse exists too: a framework of writable tensors does not record that its memory is that of an immutable tensor. The
//! planner queries [`may_be_written`] where a result that may be written is requested.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory lent to frameworks of immutable tensors.
static IMMUTABLE: LoanTable = LoanTable::new();
/// Memory lent to frameworks of writable tensors, whose user has promised not to write.
static PROMISED: LoanTable = LoanTable::new();
/// Memory of immutable tensors, lent to frameworks of writable tensors.
static SHARED: LoanTable = LoanTable::new();

struct LoanTable {
    count: AtomicUsize,
    ranges: Mutex<Ranges>,
}

/// The loans by the logarithm of their length, rounded down.
struct Ranges([LengthClass; usize::BITS as usize]);

/// The loans of at least `2^class` and less than `2^(class + 1)` bytes: the number of those that start, and that end, at an
/// address.
///
/// The nearest start at or before an address and the nearest end after it show whether a loan contains the address. If one
/// does, its start is less than `2^class` bytes before the address, or its end is at most as many bytes after it. If a start or
/// an end is that near, its loan is long enough to contain the address.
struct LengthClass {
    starts: BTreeMap<usize, usize>,
    ends: BTreeMap<usize, usize>,
}

/// A range of addresses that counts as read-only until this is dropped.
pub struct ReadOnlyLoan {
    range: (usize, usize),
    table: &'static LoanTable,
}

impl std::fmt::Debug for ReadOnlyLoan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReadOnlyLoan").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Ranges {
    const fn new() -> Self {
        Self([const { LengthClass { starts: BTreeMap::new(), ends: BTreeMap::new() } }; usize::BITS as usize])
    }

    /// The class of a range; `None` for an empty range, which contains no address.
    fn class_of(&mut self, (start, end): (usize, usize)) -> Option<&mut LengthClass> {
        let class = end.saturating_sub(start).checked_ilog2()?;
        self.0.get_mut(class as usize)
    }

    fn add(&mut self, range: (usize, usize)) {
        if let Some(class) = self.class_of(range) {
            *class.starts.entry(range.0).or_insert(0) += 1;
            *class.ends.entry(range.1).or_insert(0) += 1;
        }
    }

    fn remove(&mut self, range: (usize, usize)) {
        if let Some(class) = self.class_of(range) {
            for (counts, address) in [(&mut class.starts, range.0), (&mut class.ends, range.1)] {
                if let Entry::Occupied(mut count) = counts.entry(address) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
        }
    }

    /// For each start and end that a search visits, whether its loan contains `address`: at most two of each class in use.
    fn search(&self, address: usize) -> impl Iterator<Item = bool> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, class)| !class.starts.is_empty())
            .flat_map(move |(log, class)| {
                let start = class.starts.range(..=address).next_back();
                let end = class.ends.range((Excluded(address), Unbounded)).next();
                [
                    start.map(|(start, _)| address - start < 1 << log),
                    end.map(|(end, _)| end - address <= 1 << log),
                ]
            })
            .flatten()
    }
}

impl LoanTable {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), ranges: Mutex::new(Ranges::new()) }
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&'static self, start: usize, end: usize) -> ReadOnlyLoan {
        self.ranges().add((start, end));
        self.count.fetch_add(1, Ordering::Release);
        ReadOnlyLoan { range: (start, end), table: self }
    }

    fn contains(&self, address: usize) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.ranges().search(address).any(|contains| contains)
    }
}

/// Records the addresses from `start` up to `end` as read-only, for frameworks of immutable tensors.
pub fn lend(start: usize, end: usize) -> ReadOnlyLoan {
    IMMUTABLE.lend(start, end)
}

/// Records the addresses from `start` up to `end` as read-only, for frameworks of writable tensors whose user has promised not to
/// write. The readers of these frameworks query [`is_promised`].
pub fn lend_promised(start: usize, end: usize) -> ReadOnlyLoan {
    PROMISED.lend(start, end)
}

/// Records the addresses from `start` up to `end` as those of an immutable tensor, for frameworks of writable tensors.
pub fn lend_immutable(start: usize, end: usize) -> ReadOnlyLoan {
    SHARED.lend(start, end)
}

impl Drop for ReadOnlyLoan {
    fn drop(&mut self) {
        self.table.ranges().remove(self.range);
        self.table.count.fetch_sub(1, Ordering::Release);
    }
}

/// Whether `address` is in memory that is lent as read-only, to any framework.
pub fn is_on_loan(address: usize) -> bool {
    IMMUTABLE.contains(address) || is_promised(address)
}

/// Whether no loan says that the values at `address` never change.
pub fn may_be_written(address: usize) -> bool {
    !SHARED.contains(address) && !is_on_loan(address)
}

/// Whether `address` is in memory that is lent to a framework of writable tensors.
#[inline]
pub fn is_promised(address: usize) -> bool {
    PROMISED.contains(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_search_after_a_large_loan_visits_two_entries_of_each_class() {
        let mut ranges = Ranges::new();
        ranges.add((0, 1 << 40));
        for start in (1 << 30..).step_by(64).take(if cfg!(miri) { 100 } else { 10_000 }) {
            ranges.add((start, start + 32));
            ranges.add((start, start + 32));
        }
        for (address, expected) in [(1 << 30, true), ((1 << 30) + 48, true), (1 << 40, false)] {
            assert!(ranges.search(address).count() <= 4);
            assert_eq!(ranges.search(address).any(|contains| contains), expected);
        }
        ranges.remove((0, 1 << 40));
        let answers: Vec<bool> = ranges.search((1 << 30) + 48).collect();
        assert_eq!(answers, [false, false]);
    }

    proptest! {
        #[test]
        fn a_search_finds_what_a_list_finds(
            added in proptest::collection::vec((0usize..300, 0usize..150), 0..30), kept in 0usize..30
        ) {
            let mut ranges = Ranges::new();
            let mut list: Vec<_> = added.into_iter().map(|(start, length)| (start, start + length)).collect();
            list.iter().for_each(|&range| ranges.add(range));
            for range in list.drain(kept.min(list.len())..) {
                ranges.remove(range);
            }
            for address in 0..500 {
                let expected = list.iter().any(|&(start, end)| start <= address && address < end);
                prop_assert_eq!(ranges.search(address).any(|contains| contains), expected);
            }
        }
    }

    #[test]
    fn loans_nest_overlap_and_end() {
        let outer = lend(0x1000, 0x9000);
        let inner = lend(0x2000, 0x2010);
        let twice = lend(0x2000, 0x2010);
        assert!(is_on_loan(0x1000) && is_on_loan(0x200f) && is_on_loan(0x2010) && is_on_loan(0x8fff));
        assert!(!is_on_loan(0x9000) && !is_on_loan(0xfff));
        drop(outer);
        assert!(is_on_loan(0x2000) && !is_on_loan(0x2010));
        drop(inner);
        assert!(is_on_loan(0x2000));
        drop(twice);
        assert!(!is_on_loan(0x2000));
    }

    #[test]
    fn promised_loans_are_told_apart() {
        let (immutable, promised) = (lend(0x2_0000, 0x2_1000), lend_promised(0x2_1000, 0x2_2000));
        assert!(is_on_loan(0x2_0000) && !is_promised(0x2_0000));
        assert!(is_on_loan(0x2_1000) && is_promised(0x2_1000));
        drop((immutable, promised));
        assert!(!is_on_loan(0x2_0000) && !is_on_loan(0x2_1000));
    }
}
