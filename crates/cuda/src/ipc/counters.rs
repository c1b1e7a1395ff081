//! Counters of the GPU memory and events that this process shares with others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of live objects of one kind.
pub(crate) struct Counter(AtomicUsize);

pub(crate) static MADE: Counter = Counter(AtomicUsize::new(0));
pub(crate) static EXPORTS: Counter = Counter(AtomicUsize::new(0));
pub(crate) static IMPORTS: Counter = Counter(AtomicUsize::new(0));
pub(crate) static EVENTS: Counter = Counter(AtomicUsize::new(0));

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many allocations and events this process shares with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuArenaCounts {
    /// Exportable allocations that this process made.
    pub made: usize,
    /// Allocations of frameworks that are kept alive for other processes.
    pub exports: usize,
    /// Allocations of other processes that are open here.
    pub imports: usize,
    /// Events for other processes, and events of other processes.
    pub events: usize,
}

/// The current counts. The driver is neither needed nor loaded.
pub fn counts() -> GpuArenaCounts {
    GpuArenaCounts { made: MADE.get(), exports: EXPORTS.get(), imports: IMPORTS.get(), events: EVENTS.get() }
}
