//! Blocks of exportable GPU memory, one for each tensor, so that a tensor can be shared without a copy.
//!
//! Small blocks are appended to an arena of 32 MiB, so that one handle serves many tensors; large ones have an arena
//! each. Unlike on the host, the GPU allocates all of an arena at once.
//!
//! A block that is released leaves a gap. When all blocks of the current arena of a GPU are released, it is filled from
//! the beginning again, after waiting for the work on the GPU. An arena that is full is freed with its last block. An
//! arena that another process was ever given is not reused: that process may have passed it on, and the next consumer's
//! mapping outlives ours.

use super::arena::GpuArena;
use super::counters::counts;
use crate::driver::Driver;
use crate::gpu::Gpu;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use tensorferry_core::Result;

/// Bytes of an arena for small blocks.
const ARENA_BYTES: usize = 32 << 20;
/// Blocks from this size on have an arena each.
const OWN_ARENA_BYTES: usize = 8 << 20;
/// The alignment that the frameworks use.
const ALIGNMENT_BYTES: usize = 512;

/// A range of an arena that no other allocation overlaps, uninitialised. Clones are the same range.
#[derive(Clone, Debug)]
pub struct GpuArenaBlock {
    arena: Arc<GpuArena>,
    offset: usize,
    bytes: usize,
}

/// An arena to which small blocks are appended.
struct CurrentArena {
    arena: Arc<GpuArena>,
    used: usize,
}

/// For each GPU, the arena to which small blocks are appended.
static CURRENT_ARENAS: Mutex<Vec<CurrentArena>> = Mutex::new(Vec::new());

impl GpuArenaBlock {
    /// A block of this size, aligned to 512 bytes.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        // Fails in a forked child, where another thread may have held the lock at the time of the fork.
        Driver::get()?;
        if bytes >= OWN_ARENA_BYTES {
            return Ok(Self { arena: GpuArena::new(gpu, bytes)?, offset: 0, bytes });
        }
        let mut all = CURRENT_ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|current| std::ptr::eq(current.arena.gpu(), gpu));
        if let Some(index) = found {
            if let Some(block) = all[index].take(bytes) {
                return Ok(block);
            }
            all.swap_remove(index);
        }
        let arena = GpuArena::new(gpu, ARENA_BYTES)?;
        all.push(CurrentArena { arena: arena.clone(), used: bytes });
        Ok(Self { arena, offset: 0, bytes })
    }

    /// The arena that contains it.
    pub fn arena(&self) -> &Arc<GpuArena> {
        &self.arena
    }

    /// Its offset in the arena.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, as a device address.
    pub fn data(&self) -> *mut u8 {
        self.arena.data().wrapping_add(self.offset)
    }
}

impl CurrentArena {
    fn take(&mut self, bytes: usize) -> Option<GpuArenaBlock> {
        let is_idle = self.used > 0 && Arc::strong_count(&self.arena) == 1;
        // The count is a relaxed load. The fence orders the reuse after what the last users of the blocks did.
        fence(Ordering::Acquire);
        if is_idle && !self.arena.was_shared() && self.arena.gpu().settle() {
            self.used = 0;
        }
        let offset = self.used.next_multiple_of(ALIGNMENT_BYTES);
        let end = offset.checked_add(bytes.max(1)).filter(|&end| end <= self.arena.bytes())?;
        self.used = end;
        Some(GpuArenaBlock { arena: self.arena.clone(), offset, bytes })
    }
}

/// Releases the arenas for small blocks that contain none.
pub fn release_idle() {
    if counts().made == 0 || Driver::get().is_err() {
        return;
    }
    let mut all = CURRENT_ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|current| Arc::strong_count(&current.arena) > 1);
}
