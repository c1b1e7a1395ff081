//! Arenas: shared memory of this process or of a producer, mapped here.
//!
//! # Guarantees
//!
//! - An arena never moves and never changes its size, whichever processes map it ([`super::mapping`]).
//! - The mapping is valid for as long as its `Arena` lives, even after the process that created it has ended. The
//!   kernel frees the memory with the last descriptor and the last mapping.
//! - An arena that was attached as read-only cannot be written here: both the mapping and the descriptor are
//!   read-only. This guards against mistakes, not against attacks: a program of the same user can reopen the memory
//!   for writing through `/proc`.
//!
//! # Visibility
//!
//! One arena contains many tensors, because one descriptor for each tensor would exhaust the limit. A consumer of one
//! of them can read the others and the gaps. All belong to one user, and a tensor of 16 MiB or more has an arena of
//! its own.
//!
//! # After a fork
//!
//! Arenas are shared with the child: each process sees what the other writes. Neither reuses memory that the other may
//! still use: the child allocates from a new arena, and the parent does not reuse an arena that existed at the fork
//! ([`super::block_allocator`]).

use super::idle_arenas::{self, IdleArena};
use super::mapping::Mapping;
use crate::fork_count;
use crate::system::FileId;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::Access;

/// Shared memory that is mapped here, created by this process or attached from another.
///
/// Every arena is in the registry while it lives. Dropping it removes it from there, and unmaps the memory or keeps it for
/// another arena (see `idle_arenas`).
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    is_own: bool,
    is_recyclable: bool,
    /// The number of forks when the mapping was made.
    fork_count: usize,
    /// Whether a consumer ever received a descriptor.
    was_delivered: AtomicBool,
    /// Whether a consumer received the description of this arena, so that nothing tells whether it still has it.
    has_sent_description: AtomicBool,
}

impl Arena {
    /// An arena that is unmapped when it is dropped. `fork_count` was read before the mapping was made.
    pub(super) fn from_mapping(mapping: Mapping, is_own: bool, fork_count: usize) -> Arc<Self> {
        Arc::new(Self::new_undelivered(Arc::new(mapping), is_own, false, fork_count))
    }

    /// An arena of this process that may be recycled when it is dropped. `fork_count` as in [`Arena::from_mapping`].
    pub(super) fn recyclable(mapping: Arc<Mapping>, fork_count: usize) -> Arc<Self> {
        Arc::new(Self::new_undelivered(mapping, true, true, fork_count))
    }

    fn new_undelivered(mapping: Arc<Mapping>, is_own: bool, is_recyclable: bool, fork_count: usize) -> Self {
        let (was_delivered, has_sent_description) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { mapping, is_own, is_recyclable, fork_count, was_delivered, has_sent_description }
    }

    /// The address of the first byte. It may be written only if [`Arena::access`] permits it.
    pub fn data(&self) -> *mut u8 {
        self.mapping.data()
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// The access that the mapping permits.
    pub fn access(&self) -> Access {
        self.mapping.access()
    }

    /// Whether this process created it, or inherited it from a parent that did.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The descriptor of the memory.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.mapping.descriptor().as_fd()
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.mapping.file_id()
    }

    /// Records that a consumer receives a descriptor: one that was opened for it, or the descriptor of this arena.
    pub(crate) fn record_delivery(&self, sends_own_description: bool) {
        self.was_delivered.store(true, Ordering::Relaxed);
        if sends_own_description {
            self.has_sent_description.store(true, Ordering::Relaxed);
        }
    }

    /// Whether another process may be using it: one that attached it, with or without a lease, or the child of a fork.
    pub(crate) fn may_be_used_elsewhere(&self) -> bool {
        let was_delivered = self.was_delivered.load(Ordering::Relaxed);
        self.has_sent_description.load(Ordering::Relaxed)
            || idle_arenas::may_be_used_elsewhere(&self.mapping, self.fork_count, was_delivered)
    }

    /// The memory, to be kept for another arena; `None` if it cannot be recycled. The caller is dropping the arena.
    pub(super) fn to_idle(&self) -> Option<IdleArena> {
        let is_private = self.is_recyclable
            && self.fork_count == fork_count::get()
            && !self.has_sent_description.load(Ordering::Relaxed);
        let (fork_count, was_delivered) = (self.fork_count, self.was_delivered.load(Ordering::Relaxed));
        is_private.then(|| IdleArena { mapping: self.mapping.clone(), fork_count, was_delivered })
    }
}
