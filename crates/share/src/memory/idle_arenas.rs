//! Idle arenas: large arenas of dropped tensors, kept mapped for the next tensor of about the same size.
//!
//! The first touch of fresh pages takes several times as long as the copy that follows. A large arena that this process
//! made is therefore not unmapped when its last tensor is dropped.
//!
//! # When an arena is reused
//!
//! A consumer must never see the next tensor, whatever it does with the memory that it received. Leases do not prove
//! that: a consumer can keep its mapping after it has closed the connection. The kernel does
//! ([`crate::libc_calls::is_open_elsewhere`]): every descriptor in another process, every descriptor in flight and every
//! mapping holds an open file description, and an arena is reused only if its own is the only one. That requires that
//! its own description never left this process:
//!
//! - Each consumer receives a description that was opened for it. An arena whose own description was sent, because
//!   descriptors ran out, is never reused ([`Arena`](super::arena::Arena)).
//! - The child of a fork has the parent's descriptions. An arena that existed at a fork is never reused, in either process.
//!
//! On a system without file leases, an arena is reused only if no consumer ever received it.
//!
//! # Limit
//!
//! Idle arenas and idle blocks of [`tensorferry_core::pool`] share one limit.

use super::mapping::Mapping;
use crate::fork_count;
use crate::system;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::pool::IdleTotals;

/// The maximum number of idle arenas, each of which has a descriptor.
const MAX_IDLE_ARENAS: usize = 32;

static IDLE_BYTES: AtomicUsize = AtomicUsize::new(0);
static IDLE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The totals of all idle arenas, without a lock.
pub(crate) fn totals() -> IdleTotals {
    IdleTotals { bytes: IDLE_BYTES.load(Ordering::Relaxed), blocks: IDLE_COUNT.load(Ordering::Relaxed) }
}

/// An arena without tensors.
pub(crate) struct IdleArena {
    pub(super) mapping: Arc<Mapping>,
    /// The number of forks when the mapping was made.
    pub(super) fork_count: usize,
    /// Whether a consumer ever received a descriptor.
    pub(super) was_delivered: bool,
}

impl IdleArena {
    /// Whether the memory belongs to a process of before a fork, too.
    fn is_forked(&self) -> bool {
        self.fork_count != fork_count::get()
    }

    fn fits(&self, bytes: usize) -> bool {
        let own = self.mapping.bytes();
        own >= bytes && own - bytes <= bytes / 4
    }
}

/// Whether another process may be using memory, or may map it later.
pub(super) fn may_be_used_elsewhere(mapping: &Mapping, fork_count: usize, was_delivered: bool) -> bool {
    fork_count != fork_count::get()
        || system::is_open_elsewhere(mapping.descriptor()).unwrap_or(was_delivered)
}

/// The idle arenas, least recently used first. Part of the registry, whose lock protects it.
///
/// What is removed is returned, to be dropped without the lock: unmapping is slow.
pub(crate) struct IdleArenas {
    arenas: Vec<IdleArena>,
}

impl IdleArenas {
    pub(crate) const fn new() -> Self {
        Self { arenas: Vec::new() }
    }

    /// Adds an arena as the most recently used. Returns those that have no room, and those that can no longer be reused.
    pub(crate) fn put(&mut self, arena: IdleArena) -> Vec<IdleArena> {
        let mut released = self.remove_forked();
        if self.arenas.try_reserve(1).is_err() {
            released.push(arena);
            return released;
        }
        if self.arenas.len() >= MAX_IDLE_ARENAS {
            released.push(self.arenas.remove(0));
        }
        self.arenas.push(arena);
        self.update_totals();
        released
    }

    /// Takes the smallest arena that is large enough, wastes at most a quarter and is used nowhere else.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<IdleArena> {
        let candidates = self.arenas.iter().enumerate().rev().filter(|(_, arena)| {
            let in_use = || may_be_used_elsewhere(&arena.mapping, arena.fork_count, arena.was_delivered);
            arena.fits(bytes) && !in_use()
        });
        let (index, _) = candidates.min_by_key(|(_, arena)| arena.mapping.bytes())?;
        let taken = self.arenas.remove(index);
        self.update_totals();
        Some(taken)
    }

    /// Removes the least recently used arenas until at most `limit` bytes are idle.
    pub(crate) fn evict_to(&mut self, limit: usize) -> Vec<IdleArena> {
        let mut released = self.remove_forked();
        while totals().bytes > limit && !self.arenas.is_empty() {
            released.push(self.arenas.remove(0));
            self.update_totals();
        }
        released
    }

    fn remove_forked(&mut self) -> Vec<IdleArena> {
        let released = self.arenas.extract_if(.., |arena| arena.is_forked()).collect();
        self.update_totals();
        released
    }

    fn update_totals(&self) {
        IDLE_BYTES.store(self.arenas.iter().map(|arena| arena.mapping.bytes()).sum(), Ordering::Relaxed);
        IDLE_COUNT.store(self.arenas.len(), Ordering::Relaxed);
    }
}
