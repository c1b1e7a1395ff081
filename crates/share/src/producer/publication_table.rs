//! The publication table: which tickets are valid, and why the others are not.

use super::lease_grant::LeaseGrant;
use super::publication_record::Published;
use crate::protocol::{AttachRequest, RejectReason};
use crate::system;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) enum TableEntry {
    Live(Arc<Published>),
    /// The ticket is invalid. Consumers that know the secret receive the reason.
    Invalid {
        reason: RejectReason,
        secret: [u8; 16],
    },
}

impl TableEntry {
    pub(super) fn live(&self) -> Option<&Arc<Published>> {
        match self {
            Self::Live(published) => Some(published),
            Self::Invalid { .. } => None,
        }
    }
}

/// Entries that are removed are returned, because dropping them may release memory: that happens without the server's
/// lock.
pub(super) struct PublicationTable {
    entries: BTreeMap<[u8; 16], TableEntry>,
    /// The earliest deadline of all live publications.
    next_deadline: Option<Instant>,
}

impl PublicationTable {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), next_deadline: None }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    /// The number of publications whose ticket is valid.
    pub(super) fn live_count(&self) -> usize {
        self.entries.values().filter(|entry| entry.live().is_some()).count()
    }

    pub(super) fn live(&self, id: &[u8; 16]) -> Option<&Arc<Published>> {
        self.entries.get(id)?.live()
    }

    /// Inserts a publication. Returns whether [`PublicationTable::next_deadline`] is earlier than before.
    pub(super) fn insert(&mut self, published: Arc<Published>) -> bool {
        let is_earlier = self.note_deadline(published.deadline());
        self.entries.insert(published.id, TableEntry::Live(published));
        is_earlier
    }

    /// Makes a used ticket valid again, because its consumer was not reached. Returns as [`PublicationTable::insert`].
    pub(super) fn restore(&mut self, published: &Arc<Published>) -> bool {
        let entry = self.entries.get_mut(&published.id);
        let Some(entry @ TableEntry::Invalid { reason: RejectReason::Used, .. }) = entry else {
            return false;
        };
        *entry = TableEntry::Live(published.clone());
        self.note_deadline(published.deadline())
    }

    /// Notes the deadline of a publication. Returns whether it is earlier than all others.
    pub(super) fn note_deadline(&mut self, deadline: Option<Instant>) -> bool {
        let is_earlier = |deadline: &Instant| self.next_deadline.is_none_or(|next| *deadline < next);
        let Some(deadline) = deadline.filter(is_earlier) else { return false };
        self.next_deadline = Some(deadline);
        true
    }

    pub(super) fn remove(&mut self, id: &[u8; 16]) -> Option<TableEntry> {
        self.entries.remove(id)
    }

    /// Checks a request, and grants a lease if the ticket is valid.
    pub(super) fn admit(
        &mut self,
        request: &AttachRequest,
        removed: &mut Vec<TableEntry>,
    ) -> Result<LeaseGrant, RejectReason> {
        let entry = self.entries.get_mut(&request.id).ok_or(RejectReason::Unknown)?;
        let secret = match entry {
            TableEntry::Invalid { secret, .. } => secret,
            TableEntry::Live(published) => &published.secret,
        };
        if !system::constant_time_eq(secret, &request.secret) {
            return Err(RejectReason::Unknown);
        }
        let published = match entry {
            TableEntry::Invalid { reason, .. } => return Err(*reason),
            TableEntry::Live(published) => published.clone(),
        };
        if published.admit() {
            removed.extend(self.entries.remove(&request.id));
        } else if published.once {
            let used = TableEntry::Invalid { reason: RejectReason::Used, secret: published.secret };
            removed.push(std::mem::replace(entry, used));
        }
        Ok(LeaseGrant::new(published))
    }

    /// Invalidates all publications whose deadline has passed, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<TableEntry> {
        let mut removed = Vec::new();
        if self.next_deadline.is_none_or(|deadline| deadline > now) {
            return removed;
        }
        self.next_deadline = None;
        self.entries.retain(|_, entry| {
            let TableEntry::Live(published) = entry else { return true };
            match published.deadline() {
                Some(deadline) if deadline <= now => {
                    let (is_orphaned, secret) = (published.is_orphaned(), published.secret);
                    let expired = TableEntry::Invalid { reason: RejectReason::Expired, secret };
                    removed.push(std::mem::replace(entry, expired));
                    !is_orphaned
                }
                deadline => {
                    self.next_deadline = self.next_deadline.into_iter().chain(deadline).min();
                    true
                }
            }
        });
        removed
    }
}
