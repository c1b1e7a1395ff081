//! Which addresses are aligned by construction, although the framework that holds them cannot say so.
//!
//! A PyTorch tensor over a block of ours looks like one over any other foreign memory. Whoever hands such a block to a
//! framework leaves a [`Mark`] with its owner, and the planner's caller asks [`covers`].
//!
//! The table is locked only by [`mark`] and [`covers`], whose callers hold the Python interpreter, so that the child of a
//! `fork` never inherits it locked. Owners are dropped on any thread: dropping a mark is one atomic store, and the entry
//! is removed by a later call of [`mark`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static TABLE: Mutex<Table> = Mutex::new(Table { ranges: BTreeMap::new(), sweep_at: MIN_SWEEP_ENTRIES });

/// The table is not searched for dead entries while it has fewer entries than this.
const MIN_SWEEP_ENTRIES: usize = 64;

struct Table {
    /// Ranges that do not overlap: the first address, one past the last, and whether the owner lives.
    ranges: BTreeMap<usize, (usize, Arc<AtomicBool>)>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

/// A range of addresses that counts as aligned by construction until this is dropped.
#[derive(Debug)]
pub struct Mark {
    is_alive: Arc<AtomicBool>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.is_alive.store(false, Ordering::Release);
    }
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the addresses from `start` up to `end`, which belong to one allocation.
pub fn mark(start: usize, end: usize) -> Mark {
    let mut table = table();
    if table.ranges.len() >= table.sweep_at {
        table.ranges.retain(|_, (_, is_alive)| is_alive.load(Ordering::Acquire));
        table.sweep_at = MIN_SWEEP_ENTRIES.max(2 * table.ranges.len());
    }
    // What lay here before is gone: the allocator has given out the memory again.
    while let Some((&first, _)) = table.ranges.range(..end).next_back().filter(|(_, (last, _))| *last > start)
    {
        table.ranges.remove(&first);
    }
    let is_alive = Arc::new(AtomicBool::new(true));
    table.ranges.insert(start, (end, Arc::clone(&is_alive)));
    Mark { is_alive }
}

/// Whether `address` lies in marked memory.
pub fn covers(address: usize) -> bool {
    let table = table();
    let nearest = table.ranges.range(..=address).next_back();
    nearest.is_some_and(|(_, (end, is_alive))| address < *end && is_alive.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_ends_with_its_owner() {
        let mark = mark(0x1000, 0x2000);
        assert!(covers(0x1000) && covers(0x1fff) && !covers(0x2000) && !covers(0xfff));
        drop(mark);
        assert!(!covers(0x1000));
    }

    #[test]
    fn memory_that_is_given_out_again_has_the_new_mark() {
        let old = [mark(0x11000, 0x11100), mark(0x11100, 0x11200), mark(0x11200, 0x12000)];
        drop(old);
        let new = mark(0x11080, 0x11300);
        assert!(covers(0x11080) && covers(0x111ff) && covers(0x112ff));
        assert!(!covers(0x11000) && !covers(0x11300));
        drop(new);
        assert!(!covers(0x11100));
    }

    #[test]
    fn dead_entries_are_removed() {
        for index in 0..10 * MIN_SWEEP_ENTRIES {
            drop(mark(0x10_0000 + index * 64, 0x10_0040 + index * 64));
        }
        assert!(table().ranges.len() <= 2 * MIN_SWEEP_ENTRIES);
    }
}
