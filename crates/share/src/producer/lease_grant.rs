//! Lease grants: the consumers that use a publication, counted.

use super::publication_record::Published;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The lease of one consumer on a publication. It holds the memory and counts as a lease while it lives.
pub(crate) struct LeaseGrant(Arc<Published>);

impl LeaseGrant {
    pub(super) fn new(published: Arc<Published>) -> Self {
        published.usage.leases.fetch_add(1, Ordering::AcqRel);
        Self(published)
    }

    pub(super) fn published(&self) -> &Arc<Published> {
        &self.0
    }

    /// Records that the reply has been sent completely.
    pub(super) fn record_delivery(&self) {
        self.0.usage.deliveries.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for LeaseGrant {
    fn drop(&mut self) {
        self.0.usage.leases.fetch_sub(1, Ordering::AcqRel);
    }
}
