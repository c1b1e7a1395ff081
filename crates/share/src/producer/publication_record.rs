//! The record of a publication: what its consumers receive, what is held for them, and until when.

use crate::lease::Lease;
use crate::memory::shared_memory::SharedMemory;
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensorferry_core::Access;
use tensorferry_cuda::ipc::ReadyEvent;

/// How long a dropped publication waits for the consumers that it expects. After that they are assumed to have ended.
const EXPECTED_CONSUMER_WAIT: Duration = Duration::from_secs(3600);

/// Host memory of this size or more is released on another thread.
const DEFERRED_DROP_BYTES: usize = 64 << 20;

/// How many consumers use a publication.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Consumers that hold a lease, or to which a reply is being sent.
    pub(super) leases: AtomicUsize,
    /// Replies that were sent completely, ever.
    pub(super) deliveries: AtomicUsize,
}

/// A publication, shared by the publication table and the leases.
pub(crate) struct Published {
    pub(super) id: [u8; 16],
    pub(super) secret: [u8; 16],
    pub(super) encoded_reply: Vec<u8>,
    /// The memories of the reply, in its order.
    pub(super) memories: Vec<SharedMemory>,
    pub(super) access: Access,
    /// Further owners of the same memories.
    pub(super) _owners: Vec<SharedMemory>,
    /// What the producer keeps while consumers may use the memories.
    pub(super) owner: Option<Box<dyn Any + Send + Sync>>,
    pub(super) _events: Vec<Arc<ReadyEvent>>,
    pub(super) _leases: Vec<Arc<Lease>>,
    pub(super) once: bool,
    pub(super) expires_at: Option<Instant>,
    pub(super) usage: Arc<Usage>,
    pub(super) expected: ExpectedConsumers,
}

/// Consumers that keep a publication available although its `Publication` was dropped.
#[derive(Default)]
pub(super) struct ExpectedConsumers {
    /// Consumers that are expected and have not attached.
    count: AtomicUsize,
    /// When the `Publication` was dropped.
    orphaned_at: OnceLock<Instant>,
}

impl Published {
    /// Expects one more consumer.
    pub(super) fn expect_consumer(&self) {
        self.expected.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a consumer that attaches. Returns true if it is the last one that an orphaned publication admits.
    pub(super) fn admit(&self) -> bool {
        let expected = self.expected.count.load(Ordering::Relaxed).saturating_sub(1);
        self.expected.count.store(expected, Ordering::Relaxed);
        self.is_orphaned() && (self.once || expected == 0)
    }

    /// Whether the `Publication` was dropped, and only expected consumers keep this.
    pub(super) fn is_orphaned(&self) -> bool {
        self.expected.orphaned_at.get().is_some()
    }

    /// Keeps the publication for the expected consumers only. Returns false if none is expected.
    pub(super) fn orphan(&self) -> bool {
        let is_expected = self.expected.count.load(Ordering::Relaxed) > 0;
        is_expected && self.expected.orphaned_at.set(Instant::now()).is_ok()
    }

    /// When the ticket becomes invalid, unless it is withdrawn before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let orphaned_at = self.expected.orphaned_at.get();
        let given_up = orphaned_at.and_then(|since| since.checked_add(EXPECTED_CONSUMER_WAIT));
        self.expires_at.into_iter().chain(given_up).min()
    }

    /// Whether dropping this may take long: GPU memory may have to wait for queued work, and the kernel clears pages at
    /// some gigabytes per second.
    pub(super) fn is_slow_to_drop(self: &Arc<Self>) -> bool {
        self.memories.iter().any(|memory| match memory {
            SharedMemory::Gpu(_) => true,
            SharedMemory::Host(arena) => {
                // `owner` may own the arena too.
                let may_be_last = Arc::strong_count(arena) == 1 || self.owner.is_some();
                arena.bytes() >= DEFERRED_DROP_BYTES && Arc::strong_count(self) == 1 && may_be_last
            }
        })
    }
}
