//! Pieces of arenas: memory for one tensor each, so that a tensor can be handed on without a copy.
//!
//! Small pieces are laid one behind the other into an arena of 64 MiB, and large ones have an arena each. A piece that is
//! let go leaves a gap; when all that is in an arena has been let go, here and in every other process, it is filled from
//! the beginning again, whose pages are warm by then. Other processes count as long as a lease of theirs is open, and,
//! should they have it from somebody whose lease has ended, as long as they have it mapped (a lock on the file tells).

use crate::memory::arena::{Arena, PAGE};
use crate::memory::registry;
use std::sync::Arc;
use tensorferry_core::Result;

/// Bytes of an arena for small pieces. They take no room before they are used.
const ARENA: usize = 64 << 20;
/// Pieces from here on have an arena each.
const OWN: usize = 16 << 20;
/// Pieces from here on begin at a page, others at a multiple of [`ALIGN`].
const PAGED: usize = 64 << 10;
const ALIGN: usize = 64;

/// A part of an arena that is nobody else's. Its content is what was there before: zeros or an earlier tensor.
#[derive(Clone, Debug)]
pub struct ArenaBlock {
    arena: Arc<Arena>,
    offset: usize,
    bytes: usize,
}

impl ArenaBlock {
    /// Memory for that many bytes, aligned to 64 bytes at least, large ones to a page.
    ///
    /// # Errors
    /// When the system has no descriptor or no room for it.
    pub fn new(bytes: usize) -> Result<Self> {
        if bytes >= OWN {
            return Ok(Self { arena: Arena::new(bytes)?, offset: 0, bytes });
        }
        let mut registry = registry::lock();
        let taken = registry.allocator.take(bytes);
        // An arena that was full or could not be used again goes only without the lock.
        let old = registry.allocator.retire_if(taken.is_none());
        drop(registry);
        drop(old);
        if let Some(piece) = taken {
            return Ok(piece);
        }
        let arena = Arena::new(ARENA)?;
        let piece = Self { arena: arena.clone(), offset: 0, bytes };
        let mut registry = registry::lock();
        let old = registry.allocator.current.replace(Current { arena, used: bytes.max(1) });
        drop(registry);
        drop(old);
        Ok(piece)
    }

    /// The arena in which it lies.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// How far from the beginning of the arena.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte.
    pub fn data(&self) -> *mut u8 {
        self.arena.data().wrapping_add(self.offset)
    }
}

/// Lets go of the arena that is kept for small pieces, if nothing is in it.
pub fn release_idle() {
    let mut registry = registry::lock();
    let idle = registry.allocator.current.as_ref().is_some_and(|now| Arc::strong_count(&now.arena) == 1);
    let old = registry.allocator.retire_if(idle);
    drop(registry);
    drop(old);
}

struct Current {
    arena: Arc<Arena>,
    used: usize,
}

/// The arena that small pieces are laid into.
pub(crate) struct Allocator {
    current: Option<Current>,
}

impl Allocator {
    pub(crate) const fn new() -> Self {
        Self { current: None }
    }

    /// A piece of the current arena, or none: it is full, or not to be used any more.
    fn take(&mut self, bytes: usize) -> Option<ArenaBlock> {
        let current = self.current.as_mut()?;
        if current.used > 0 && Arc::strong_count(&current.arena) == 1 {
            if current.arena.may_be_used_elsewhere() {
                return None;
            }
            current.used = 0;
        }
        let align = if bytes >= PAGED { PAGE } else { ALIGN };
        let offset = current.used.next_multiple_of(align);
        let end = offset.checked_add(bytes.max(1)).filter(|&end| end <= current.arena.bytes())?;
        current.used = end;
        Some(ArenaBlock { arena: current.arena.clone(), offset, bytes })
    }

    fn retire_if(&mut self, useless: bool) -> Option<Arc<Arena>> {
        if useless { self.leave() } else { None }
    }

    /// Lays nothing more into the current arena. What comes back must be dropped without the registry's lock.
    pub(crate) fn leave(&mut self) -> Option<Arc<Arena>> {
        self.current.take().map(|current| current.arena)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::registry::find;
    use crate::system;
    use std::sync::Mutex;
    use tensorferry_core::Access;

    /// There is one allocator, and these tests look at what it does next.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn pieces_lie_side_by_side_and_are_aligned() {
        let _alone = ALONE.lock().unwrap();
        // So that the first of them, which is empty, begins an arena.
        release_idle();
        let sizes = [0, 1, 63, 64, 65, 4096, 65_536, 1 << 20];
        let pieces: Vec<ArenaBlock> = sizes.iter().map(|&bytes| ArenaBlock::new(bytes).unwrap()).collect();
        for piece in &pieces {
            let align = if piece.bytes() >= PAGED { PAGE } else { ALIGN };
            assert_eq!(piece.data() as usize % align, 0);
            assert!(Arc::ptr_eq(piece.arena(), pieces[0].arena()));
            let (arena, offset) = find(piece.data(), piece.bytes()).unwrap();
            assert!(Arc::ptr_eq(&arena, piece.arena()) && offset == piece.offset());
        }
        for pair in pieces.windows(2) {
            assert!(pair[0].offset() + pair[0].bytes().max(1) <= pair[1].offset());
        }
        let large = ArenaBlock::new(OWN).unwrap();
        assert!(large.offset() == 0 && !Arc::ptr_eq(large.arena(), pieces[0].arena()));
    }

    #[test]
    fn an_arena_is_used_again_when_nobody_has_it() {
        let _alone = ALONE.lock().unwrap();
        let first = ArenaBlock::new(1000).unwrap();
        let (address, second) = (first.arena().data() as usize, ArenaBlock::new(1000).unwrap());
        drop(first);
        assert!(ArenaBlock::new(10).unwrap().offset() > 0);
        drop(second);
        let again = ArenaBlock::new(10).unwrap();
        assert_eq!((again.arena().data() as usize, again.offset()), (address, 0));
        // Somebody else has it, whom no lease of ours speaks for.
        let other = system::reopen(again.arena().descriptor(), Access::ReadOnly).unwrap();
        system::mark_used(&other);
        drop(again);
        let fresh = ArenaBlock::new(10).unwrap();
        assert_ne!(system::identity(&other).unwrap().0, fresh.arena().key());
    }

    #[test]
    fn a_full_arena_is_followed_by_another() {
        let _alone = ALONE.lock().unwrap();
        let pieces: Vec<ArenaBlock> = (0..9).map(|_| ArenaBlock::new(OWN - 1).unwrap()).collect();
        let mut arenas: Vec<usize> = pieces.iter().map(|piece| piece.arena().data() as usize).collect();
        arenas.dedup();
        assert!((3..=4).contains(&arenas.len()), "{}", arenas.len());
        drop(pieces);
        release_idle();
        assert!(registry::lock().allocator.current.is_none());
    }

    #[test]
    fn ordinary_memory_is_not_found() {
        let _alone = ALONE.lock().unwrap();
        let bytes = [0u8; 100];
        assert!(find(bytes.as_ptr(), 100).is_none());
        let arena = Arena::new(4096).unwrap();
        let address = arena.data() as *const u8;
        assert_eq!(find(address.wrapping_add(4000), 96).unwrap().1, 4000);
        assert!(find(address.wrapping_add(4000), 97).is_none());
        assert!(find(address.wrapping_add(4096), 0).is_none_or(|(found, _)| !Arc::ptr_eq(&found, &arena)));
        assert!(find(address, usize::MAX).is_none());
        drop(arena);
        assert!(find(address, 1).is_none());
    }
}
