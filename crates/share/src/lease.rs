//! Leases: the open connections by which producers hold memory for this process.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tensorferry_cuda::Gpu;

static LEASE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A connection to a producer, which holds memory for this process until the lease is dropped.
///
/// A child of `fork()` inherits it: the producer then holds the memory until both processes have dropped it or ended.
///
/// A lease on GPU memory first waits for all work that this process has queued on those GPUs. The producer may reuse
/// the memory at once, even while this process still has the allocation mapped for another tensor.
#[derive(Debug)]
pub struct Lease {
    gpus: Vec<&'static Gpu>,
    connection: Option<OwnedFd>,
}

impl Lease {
    pub(crate) fn new(connection: OwnedFd, gpus: Vec<&'static Gpu>) -> Arc<Self> {
        LEASE_COUNT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { gpus, connection: Some(connection) })
    }

    /// Whether the producer has ended or closed the connection.
    pub(crate) fn is_disconnected(&self) -> bool {
        let Some(connection) = &self.connection else { return true };
        let mut polled = [PollFd::new(connection, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// The number of leases that this process holds.
    pub(crate) fn count() -> usize {
        LEASE_COUNT.load(Ordering::Relaxed)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        LEASE_COUNT.fetch_sub(1, Ordering::Relaxed);
        // A producer that has ended reuses nothing.
        if !self.gpus.is_empty() && !self.is_disconnected() && !self.gpus.iter().all(|gpu| gpu.settle()) {
            // Queued work may still use the memory: the lease lasts until this process ends.
            std::mem::forget(self.connection.take());
        }
    }
}

/// Dead entries are removed when a list reaches this length, or twice the length that was left the last time.
pub(crate) const MIN_PRUNE_LEN: usize = 16;

/// The leases on one memory.
///
/// Dropped leases are removed only when the list has doubled, so that adding one costs amortised constant time.
pub(crate) struct LeaseList {
    leases: Vec<Weak<Lease>>,
    prune_len: usize,
}

impl LeaseList {
    pub(crate) const fn new() -> Self {
        Self { leases: Vec::new(), prune_len: MIN_PRUNE_LEN }
    }

    pub(crate) fn add(&mut self, lease: &Arc<Lease>) {
        if self.leases.len() >= self.prune_len {
            self.prune();
        }
        self.leases.push(Arc::downgrade(lease));
    }

    pub(crate) fn prune(&mut self) {
        self.leases.retain(|lease| lease.strong_count() > 0);
        self.prune_len = MIN_PRUNE_LEN.max(2 * self.leases.len());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(crate) fn live(&self) -> Vec<Arc<Lease>> {
        self.leases.iter().filter_map(Weak::upgrade).collect()
    }
}
