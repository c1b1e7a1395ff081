//! Which addresses are on loan as read-only.
//!
//! Frameworks with immutable tensors take read-only memory gladly and then forget that it was: a read-only
//! map that went to JAX comes back as an ordinary tensor. So whoever lends frozen memory to such a
//! framework leaves a [`ReadOnlyLoan`] here for as long as the loan lasts, and readers of those frameworks ask
//! [`covers`]. While nothing is on loan the question costs one atomic load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ON_LOAN: AtomicUsize = AtomicUsize::new(0);
static RANGES: Mutex<Ranges> = Mutex::new(Ranges { counts: BTreeMap::new(), longest: 0 });

struct Ranges {
    /// How often each range, from its first byte to one past its last, is on loan.
    counts: BTreeMap<(usize, usize), usize>,
    /// No range is longer than this, so a search can stop.
    longest: usize,
}

/// A range of addresses that counts as frozen until this drops.
#[derive(Debug)]
pub struct ReadOnlyLoan {
    range: (usize, usize),
}

fn ranges() -> MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the addresses from `start` up to `end`.
pub fn lend(start: usize, end: usize) -> ReadOnlyLoan {
    let mut ranges = ranges();
    *ranges.counts.entry((start, end)).or_insert(0) += 1;
    ranges.longest = ranges.longest.max(end.saturating_sub(start));
    ON_LOAN.fetch_add(1, Ordering::Release);
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
        ON_LOAN.fetch_sub(1, Ordering::Release);
    }
}

/// Whether `address` lies in memory that is on loan as read-only.
pub fn is_on_loan(address: usize) -> bool {
    if ON_LOAN.load(Ordering::Acquire) == 0 {
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
    fn marks_nest_overlap_and_end() {
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
