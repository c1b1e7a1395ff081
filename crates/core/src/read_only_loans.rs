//! Read-only loans: a table of read-only memory that was shared with frameworks of immutable tensors.
//!
//! Such frameworks accept read-only memory but do not record that it is: a read-only mapping that JAX has imported is
//! exported as an ordinary tensor. Code that shares read-only memory with such a framework therefore keeps a
//! [`ReadOnlyLoan`], and readers of those frameworks query [`is_on_loan`]. Without any loan the query is one atomic load.
//!
//! The reverse exists too: a framework of writable tensors does not record that its memory is that of an immutable tensor. The
//! planner queries [`may_be_written`] where a result that may be written is requested.

use std::collections::BTreeMap;
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

struct Ranges {
    /// The number of loans of each range, from its first byte to one past its last.
    counts: BTreeMap<(usize, usize), usize>,
    /// The length of the longest range, which bounds a search.
    longest: usize,
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

impl LoanTable {
    const fn new() -> Self {
        let ranges = Ranges { counts: BTreeMap::new(), longest: 0 };
        Self { count: AtomicUsize::new(0), ranges: Mutex::new(ranges) }
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&'static self, start: usize, end: usize) -> ReadOnlyLoan {
        let mut ranges = self.ranges();
        *ranges.counts.entry((start, end)).or_insert(0) += 1;
        ranges.longest = ranges.longest.max(end.saturating_sub(start));
        self.count.fetch_add(1, Ordering::Release);
        ReadOnlyLoan { range: (start, end), table: self }
    }

    fn contains(&self, address: usize) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let ranges = self.ranges();
        let earliest = address.saturating_sub(ranges.longest);
        ranges
            .counts
            .range((earliest, 0)..=(address, usize::MAX))
            .any(|(&(start, end), _)| start <= address && address < end)
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
        let mut ranges = self.table.ranges();
        if let Some(count) = ranges.counts.get_mut(&self.range) {
            *count -= 1;
            if *count == 0 {
                ranges.counts.remove(&self.range);
            }
        }
        if ranges.counts.is_empty() {
            ranges.longest = 0;
        }
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
