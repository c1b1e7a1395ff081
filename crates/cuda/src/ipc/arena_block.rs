//! Pieces of exportable GPU memory, one for each tensor, so that a tensor can be handed on without a copy.
//!
//! Small pieces are laid one behind the other into an allocation of 32 MiB, and large ones have one each: one handle then
//! serves many tensors. Unlike on the host, the memory is taken from the GPU at once. A piece that is let go leaves a gap.
//! When all that is in an allocation has been let go, it is filled from the beginning again, after the work on the GPU has
//! been waited for; but not if others were ever handed it. They may have passed it on, and who has it then keeps the
//! memory by having it mapped, after we have let go of it too.

use super::arena::GpuArena;
use crate::driver::Driver;
use crate::gpu::Gpu;
use std::sync::{Arc, Mutex, PoisonError};
use tensorferry_core::Result;

/// Bytes of an allocation for small pieces.
const ARENA: usize = 32 << 20;
/// Pieces from here on have an allocation each.
const OWN: usize = 8 << 20;
/// As the frameworks align.
const ALIGN: usize = 512;

/// A part of an allocation that is nobody else's. Its content is whatever was there.
#[derive(Clone, Debug)]
pub struct GpuArenaBlock {
    arena: Arc<GpuArena>,
    offset: usize,
    bytes: usize,
}

struct Current {
    arena: Arc<GpuArena>,
    used: usize,
}

/// For each GPU, that which small pieces are laid into.
static CURRENT: Mutex<Vec<Current>> = Mutex::new(Vec::new());

impl GpuArenaBlock {
    /// Memory for that many bytes, aligned to 512.
    ///
    /// # Errors
    /// When the device has no such memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        // Not in the child of a fork, where the lock may be another thread's for good.
        Driver::get()?;
        if bytes >= OWN {
            return Ok(Self { arena: GpuArena::new(gpu, bytes)?, offset: 0, bytes });
        }
        let mut all = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|current| std::ptr::eq(current.arena.gpu(), gpu));
        if let Some(index) = found {
            if let Some(piece) = all[index].take(bytes) {
                return Ok(piece);
            }
            all.swap_remove(index);
        }
        let arena = GpuArena::new(gpu, ARENA)?;
        all.push(Current { arena: arena.clone(), used: bytes });
        Ok(Self { arena, offset: 0, bytes })
    }

    /// The allocation in which it lies.
    pub fn arena(&self) -> &Arc<GpuArena> {
        &self.arena
    }

    /// How far from the beginning of the allocation.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, for the GPU.
    pub fn data(&self) -> *mut u8 {
        self.arena.data().wrapping_add(self.offset)
    }
}

impl Current {
    fn take(&mut self, bytes: usize) -> Option<GpuArenaBlock> {
        let is_idle = self.used > 0 && Arc::strong_count(&self.arena) == 1;
        if is_idle && !self.arena.is_shown() && self.arena.gpu().settle() {
            self.used = 0;
        }
        let offset = self.used.next_multiple_of(ALIGN);
        let end = offset.checked_add(bytes.max(1)).filter(|&end| end <= self.arena.bytes())?;
        self.used = end;
        Some(GpuArenaBlock { arena: self.arena.clone(), offset, bytes })
    }
}

/// Lets go of allocations that are kept for small pieces, where nothing is in them.
pub fn release_idle() {
    if super::counts().made == 0 || Driver::get().is_err() {
        return;
    }
    let mut all = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|current| Arc::strong_count(&current.arena) > 1);
}
