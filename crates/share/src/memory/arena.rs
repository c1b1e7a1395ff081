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

use super::mapping::Mapping;
use crate::fork_count;
use crate::system::{self, FileId};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tensorferry_core::Access;

/// Shared memory that is mapped here, created by this process or attached from another.
///
/// Every arena is in the registry while it lives; dropping it removes it from there and unmaps the memory.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    is_own: bool,
    fork_count: usize,
}

impl Arena {
    pub(super) fn from_mapping(mapping: Mapping, is_own: bool) -> Arc<Self> {
        Arc::new(Self { mapping, is_own, fork_count: fork_count::get() })
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

    /// Whether another process may be using it: one that attached it, with or without a lease, or the child of a fork.
    pub(crate) fn may_be_used_elsewhere(&self) -> bool {
        self.fork_count != fork_count::get() || system::is_locked_elsewhere(self.mapping.descriptor())
    }
}
