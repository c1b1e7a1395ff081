//! Arena blocks: shared memory for one tensor each, so that the tensor can be published without a copy.

use super::arena::Arena;
use super::registry;
use std::sync::Arc;
use tensorferry_core::Result;

/// The size of an arena for small blocks. Its pages are allocated when they are first touched.
const SMALL_BLOCK_ARENA_BYTES: usize = 64 << 20;
/// Blocks of this size or more have an arena of their own.
const OWN_ARENA_BLOCK_BYTES: usize = 16 << 20;

/// A part of an arena that no other allocation overlaps. Clones are the same part. Its content is zeros or the bytes of an earlier tensor.
///
/// Only [`ArenaBlock::new`] allocates one, so that no two allocations overlap:
///
/// ```compile_fail,E0451
/// # fn overlap(block: tensorferry_share::ArenaBlock) -> tensorferry_share::ArenaBlock {
/// tensorferry_share::ArenaBlock { arena: block.arena().clone(), offset: 0, bytes: 64 }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ArenaBlock {
    arena: Arc<Arena>,
    offset: usize,
    bytes: usize,
}

impl ArenaBlock {
    /// Allocates a block, aligned to at least 64 bytes; blocks of 64 KiB or more are aligned to a page.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub fn new(bytes: usize) -> Result<Self> {
        if bytes >= OWN_ARENA_BLOCK_BYTES {
            return Ok(Self { arena: Arena::for_large_block(bytes)?, offset: 0, bytes });
        }
        let mut registry = registry::lock();
        let allocated = registry.block_allocator.allocate(bytes);
        let retired = if allocated.is_none() { registry.block_allocator.retire() } else { None };
        // Dropping an arena takes the lock.
        drop(registry);
        drop(retired);
        if let Some((arena, offset)) = allocated {
            return Ok(Self { arena, offset, bytes });
        }
        let arena = Arena::new(SMALL_BLOCK_ARENA_BYTES)?;
        let mut registry = registry::lock();
        let retired = registry.block_allocator.replace(arena.clone(), bytes);
        drop(registry);
        drop(retired);
        Ok(Self { arena, offset: 0, bytes })
    }

    /// The arena that contains the block.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The offset of the block in its arena.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the first byte.
    pub fn data(&self) -> *mut u8 {
        self.arena.data().wrapping_add(self.offset)
    }
}

/// Releases the arena that is kept for small blocks, if it contains none, and all idle arenas. Returns the bytes of the
/// idle ones.
pub fn release_idle() -> usize {
    let mut registry = registry::lock();
    let is_idle = registry.block_allocator.is_idle();
    let retired = if is_idle { registry.block_allocator.retire() } else { None };
    drop(registry);
    drop(retired);
    registry::release_idle_arenas()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::block_allocator::{BLOCK_ALIGN_BYTES, PAGE_ALIGNED_BLOCK_BYTES};
    use crate::memory::mapping::PAGE_BYTES;
    use crate::memory::registry::find_arena;
    use crate::system;
    use std::sync::Mutex;
    use tensorferry_core::Access;

    /// The allocator is global, and these tests depend on its next step.
    static SERIAL: Mutex<()> = Mutex::new(());

    #[test]
    fn blocks_are_adjacent_and_aligned() {
        let _serial = SERIAL.lock().unwrap();
        // The first block, which is empty, then begins an arena.
        release_idle();
        let sizes = [0, 1, 63, 64, 65, 4096, 65_536, 1 << 20];
        let blocks: Vec<ArenaBlock> = sizes.iter().map(|&bytes| ArenaBlock::new(bytes).unwrap()).collect();
        for block in &blocks {
            let align =
                if block.bytes() >= PAGE_ALIGNED_BLOCK_BYTES { PAGE_BYTES } else { BLOCK_ALIGN_BYTES };
            assert_eq!(block.data() as usize % align, 0);
            assert!(Arc::ptr_eq(block.arena(), blocks[0].arena()));
            let (arena, offset) = find_arena(block.data(), block.bytes()).unwrap();
            assert!(Arc::ptr_eq(&arena, block.arena()) && offset == block.offset());
        }
        for pair in blocks.windows(2) {
            assert!(pair[0].offset() + pair[0].bytes().max(1) <= pair[1].offset());
        }
        let large = ArenaBlock::new(OWN_ARENA_BLOCK_BYTES).unwrap();
        assert!(large.offset() == 0 && !Arc::ptr_eq(large.arena(), blocks[0].arena()));
    }

    #[test]
    fn an_arena_without_users_is_reused() {
        let _serial = SERIAL.lock().unwrap();
        let first = ArenaBlock::new(1000).unwrap();
        let (address, second) = (first.arena().data() as usize, ArenaBlock::new(1000).unwrap());
        drop(first);
        assert!(ArenaBlock::new(10).unwrap().offset() > 0);
        drop(second);
        let again = ArenaBlock::new(10).unwrap();
        assert_eq!((again.arena().data() as usize, again.offset()), (address, 0));
        // Another process uses it without a lease of this one.
        let other = system::reopen(again.arena().descriptor(), Access::ReadOnly).unwrap();
        drop(again);
        let fresh = ArenaBlock::new(10).unwrap();
        assert_ne!(system::file_info(&other).unwrap().id, fresh.arena().file_id());
    }

    #[test]
    fn a_full_arena_is_replaced() {
        let _serial = SERIAL.lock().unwrap();
        let blocks: Vec<ArenaBlock> =
            (0..9).map(|_| ArenaBlock::new(OWN_ARENA_BLOCK_BYTES - 1).unwrap()).collect();
        let mut arenas: Vec<usize> = blocks.iter().map(|block| block.arena().data() as usize).collect();
        arenas.dedup();
        assert!((3..=4).contains(&arenas.len()), "{}", arenas.len());
        drop(blocks);
        release_idle();
        assert!(registry::lock().block_allocator.retire().is_none());
    }

    #[test]
    fn ordinary_memory_is_not_found() {
        let _serial = SERIAL.lock().unwrap();
        let bytes = [0u8; 100];
        assert!(find_arena(bytes.as_ptr(), 100).is_none());
        let arena = Arena::new(4096).unwrap();
        let address = arena.data() as *const u8;
        assert_eq!(find_arena(address.wrapping_add(4000), 96).unwrap().1, 4000);
        assert!(find_arena(address.wrapping_add(4000), 97).is_none());
        assert!(
            find_arena(address.wrapping_add(4096), 0).is_none_or(|(found, _)| !Arc::ptr_eq(&found, &arena))
        );
        assert!(find_arena(address, usize::MAX).is_none());
        drop(arena);
        assert!(find_arena(address, 1).is_none());
    }
}
