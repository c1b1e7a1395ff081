//! Counts the forks of this process and its ancestors since the first arena.
//!
//! Arenas compare the count with the one at their creation: an arena that existed at a fork may be in use by the other
//! process.

use std::sync::atomic::{AtomicUsize, Ordering};

static FORK_COUNT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn get() -> usize {
    FORK_COUNT.load(Ordering::Relaxed)
}

/// Called by both the parent and the child, after the fork.
pub(crate) fn increment() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
}
