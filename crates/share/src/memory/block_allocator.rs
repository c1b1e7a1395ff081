//! The allocator that places small blocks one after the other in a current arena.
//!
//! A dropped block leaves a gap. When all blocks of the arena are dropped, in this process and in every other,
//! allocation starts again at its beginning, whose pages are resident by then. Another process counts as a user as
//! long as it holds a lease, a descriptor or a mapping ([`Arena::may_be_used_elsewhere`]).

use super::arena::Arena;
use super::mapping::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Blocks of this size or more begin at a page, others at a multiple of [`BLOCK_ALIGN_BYTES`].
pub(crate) const PAGE_ALIGNED_BLOCK_BYTES: usize = 64 << 10;
pub(crate) const BLOCK_ALIGN_BYTES: usize = 64;

struct CurrentArena {
    arena: Arc<Arena>,
    used_bytes: usize,
}

/// Part of the registry, whose lock protects it.
pub(crate) struct BlockAllocator {
    current: Option<CurrentArena>,
}

impl BlockAllocator {
    pub(crate) const fn new() -> Self {
        Self { current: None }
    }

    /// Allocates a block: its arena and the offset in it. Returns `None` if the current arena is full, or if other
    /// processes still use all of it.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<(Arc<Arena>, usize)> {
        let current = self.current.as_mut()?;
        if current.used_bytes > 0 && Arc::strong_count(&current.arena) == 1 {
            // Counting does not synchronise: without the fence, what another thread did with its block could still be
            // under way when this one writes the same bytes. Dropping an `Arc` is the other half of the pair.
            fence(Ordering::Acquire);
            if current.arena.may_be_used_elsewhere() {
                return None;
            }
            current.used_bytes = 0;
        }
        let align = if bytes >= PAGE_ALIGNED_BLOCK_BYTES { PAGE_BYTES } else { BLOCK_ALIGN_BYTES };
        let offset = current.used_bytes.next_multiple_of(align);
        let end = offset.checked_add(bytes.max(1)).filter(|&end| end <= current.arena.bytes())?;
        current.used_bytes = end;
        Some((current.arena.clone(), offset))
    }

    /// Makes `arena` the current one, with a block of `bytes` bytes at its beginning. Returns the previous one, to be
    /// dropped without the registry's lock.
    pub(crate) fn replace(&mut self, arena: Arc<Arena>, bytes: usize) -> Option<Arc<Arena>> {
        let current = CurrentArena { arena, used_bytes: bytes.max(1) };
        self.current.replace(current).map(|old| old.arena)
    }

    /// Whether the current arena contains no block.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.as_ref().is_some_and(|current| Arc::strong_count(&current.arena) == 1)
    }

    /// Allocates no more from the current arena. Returns it, to be dropped without the registry's lock.
    pub(crate) fn retire(&mut self) -> Option<Arc<Arena>> {
        self.current.take().map(|current| current.arena)
    }
}
