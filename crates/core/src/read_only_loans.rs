//! Read-only loans: a table of read-only memory that was shared with frameworks of immutable tensors.
//!
//! Such frameworks accept read-only memory but do not record that it is: a read-only mapping that JAX has imported is
//! exported as an ordinary tensor. Code that shares read-only memory with such a framework therefore keeps a
//! [`ReadOnlyLoan`], and readers of those frameworks query [`is_on_loan`]. Without any loan the query is one atomic load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static LOAN_COUNT: AtomicUsize = AtomicUsize::new(0);
static LOANS: Mutex<Ranges> = Mutex::new(Ranges { counts: BTreeMap::new(), longest: 0 });

struct Ranges {
    /// The number of loans of each range, from its first byte to one past its last.
    counts: BTreeMap<(usize, usize), usize>,
    /// The length of the longest range, which bounds a search.
    longest: usize,
}

/// A range of addresses that counts as read-only until this is dropped.
#[derive(Debug)]
pub struct ReadOnlyLoan {
    range: (usize, usize),
}

fn ranges() -> MutexGuard<'static, Ranges> {
    LOANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the addresses from `start` up to `end` as read-only.
pub fn lend(start: usize, end: usize) -> ReadOnlyLoan {
    let mut ranges = ranges();
    *ranges.counts.entry((start, end)).or_insert(0) += 1;
    ranges.longest = ranges.longest.max(end.saturating_sub(start));
    LOAN_COUNT.fetch_add(1, Ordering::Release);
    ReadOnlyLoan { range: (start, end) }
}

impl Drop for ReadOnlyLoan {
    fn drop(&mut self) {
        let mut ranges = ranges();
        if let Some(count) = ranges.counts.get_mut(&self.range) {
            *count -= 1;
            if *count == 0 {
                ranges.counts.remove(&self.range);
            }
        }
        if ranges.counts.is_empty() {
            ranges.longest = 0;
        }
        LOAN_COUNT.fetch_sub(1, Ordering::Release);
    }
}

/// Whether `address` is in memory that is lent as read-only.
pub fn is_on_loan(address: usize) -> bool {
    if LOAN_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let ranges = ranges();
    let earliest = address.saturating_sub(ranges.longest);
    ranges
        .counts
        .range((earliest, 0)..=(address, usize::MAX))
        .any(|(&(start, end), _)| start <= address && address < end)
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
}
