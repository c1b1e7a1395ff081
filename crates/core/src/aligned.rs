//! A table of address ranges that are aligned by construction, although the framework of the tensor cannot tell.
//!
//! A PyTorch tensor over a host block of the core looks like one over any foreign memory. Code that gives such a block to a
//! framework stores an [`AlignedRange`] with its owner, and the caller of the planner queries [`covers`].
//!
//! Only [`register`] and [`covers`] lock the table, and their callers hold the GIL, so the child of a `fork` never inherits it
//! locked. Owners are dropped on any thread: dropping a range is one atomic operation, and a later call of [`register`] removes
//! the entry.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static TABLE: Mutex<Table> = Mutex::new(Table { ranges: BTreeMap::new(), sweep_at: MIN_SWEEP_ENTRIES });

/// The table is not swept for dead entries while it has fewer entries than this.
const MIN_SWEEP_ENTRIES: usize = 64;

/// The reference counts of the registrations of one range: one count, unless ranges were merged.
type ReferenceCounts = SmallVec<[Weak<()>; 1]>;

struct Table {
    /// Disjoint ranges: the first address, one past the last, and the counts of its registrations.
    ranges: BTreeMap<usize, (usize, ReferenceCounts)>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

/// A range of addresses that counts as aligned by construction until this is dropped.
#[derive(Clone, Debug)]
pub struct AlignedRange {
    _range: Arc<()>,
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_alive(counts: &ReferenceCounts) -> bool {
    counts.iter().any(|count| count.strong_count() > 0)
}

/// Registers the addresses from `start` up to `end`, which belong to one allocation.
pub fn register(mut start: usize, mut end: usize) -> AlignedRange {
    let mut table = table();
    if table.ranges.len() >= table.sweep_at {
        table.ranges.retain(|_, (_, counts)| is_alive(counts));
        table.sweep_at = MIN_SWEEP_ENTRIES.max(2 * table.ranges.len());
    }
    let mut alive: SmallVec<[Arc<()>; 1]> = SmallVec::new();
    while let Some((&first, _)) = table.ranges.range(..end).next_back().filter(|(_, (last, _))| *last > start)
    {
        let Some((last, counts)) = table.ranges.remove(&first) else { break };
        // A range that is still registered belongs to the same allocation, which exists as long as one registration. Any other
        // range is stale: the allocator has reused the memory.
        let before = alive.len();
        alive.extend(counts.iter().filter_map(Weak::upgrade));
        if alive.len() > before {
            (start, end) = (start.min(first), end.max(last));
        }
    }
    if alive.is_empty() {
        alive.push(Arc::new(()));
    }
    table.ranges.insert(start, (end, alive.iter().map(Arc::downgrade).collect()));
    AlignedRange { _range: alive.swap_remove(0) }
}

/// Whether `address` is in marked memory.
pub fn covers(address: usize) -> bool {
    let table = table();
    let nearest = table.ranges.range(..=address).next_back();
    nearest.is_some_and(|(_, (end, counts))| address < *end && is_alive(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_ends_with_its_owner() {
        let mark = register(0x1000, 0x2000);
        assert!(covers(0x1000) && covers(0x1fff) && !covers(0x2000) && !covers(0xfff));
        drop(mark);
        assert!(!covers(0x1000));
    }

    #[test]
    fn reused_memory_has_the_new_mark() {
        let old = [register(0x11000, 0x11100), register(0x11100, 0x11200), register(0x11200, 0x12000)];
        drop(old);
        let new = register(0x11080, 0x11300);
        assert!(covers(0x11080) && covers(0x111ff) && covers(0x112ff));
        assert!(!covers(0x11000) && !covers(0x11300));
        drop(new);
        assert!(!covers(0x11100));
    }

    #[test]
    fn memory_that_is_marked_twice_is_marked_until_both_marks_are_dropped() {
        let same = ((0x21000, 0x22000), (0x21000, 0x22000));
        let overlapping = ((0x23000, 0x24000), (0x23800, 0x24800));
        for (first, second) in [same, overlapping] {
            for order in [[0, 1], [1, 0]] {
                let mut marks = [Some(register(first.0, first.1)), Some(register(second.0, second.1))];
                marks[order[0]] = None;
                assert!(covers(first.0) && covers(second.1 - 1));
                marks[order[1]] = None;
                assert!(!covers(first.0) && !covers(second.1 - 1));
            }
        }
    }

    #[test]
    fn merged_ranges_are_marked_until_all_marks_are_dropped() {
        for last in 0..3 {
            let ranges = [(0x31000, 0x31100), (0x31200, 0x31300), (0x31080, 0x31280)];
            let mut marks = ranges.map(|(start, end)| Some(register(start, end)));
            (0..3).filter(|at| *at != last).for_each(|at| marks[at] = None);
            assert!(covers(0x31000) && covers(0x312ff), "{last}");
            marks[last] = None;
            assert!(!covers(0x31000) && !covers(0x312ff), "{last}");
        }
    }

    #[test]
    fn dead_entries_are_removed() {
        for index in 0..10 * MIN_SWEEP_ENTRIES {
            drop(register(0x10_0000 + index * 64, 0x10_0040 + index * 64));
        }
        assert!(table().ranges.len() <= 2 * MIN_SWEEP_ENTRIES);
    }
}
