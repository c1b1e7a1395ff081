//! Host memory that we made: aligned for every framework, freed by its own drop.

use crate::emergency_pool;
use crate::error::{Error, Result};
use crate::pool;
use std::alloc::{self, Layout as AllocLayout};
use std::ptr::NonNull;

/// The alignment of every block, in bytes: TensorFlow and JAX use memory in place only from here on.
pub const ALIGNMENT: usize = 64;

/// Bytes from which a block comes from the pool.
///
/// In microseconds for a copy into fresh memory on a Xeon: 1 MiB takes 76 in what the allocator has at hand and 230
/// in a huge page, 4 MiB 350 and 600, 64 MiB 59,000 and 27,000: the allocator keeps the small ones itself, and
/// gives the large ones back each time. From 4 MiB on, rounding up to huge pages wastes a third at most.
const POOLED: usize = 4 << 20;

/// The alignment that `malloc` guarantees, in bytes. NumPy and CPython allocate with it.
pub const MALLOC_ALIGNMENT: usize = 16;

/// An uninitialised block of host memory that this process owns.
///
/// Large blocks come from the [`pool`] and return to it.
#[derive(Debug)]
pub struct HostBlock(Memory);

#[derive(Debug)]
enum Memory {
    /// From the allocator: where that starts, with the layout it was asked for.
    Allocated(NonNull<u8>, AllocLayout),
    Pooled(pool::PoolBlock),
}

// SAFETY: the block is plain memory with one owner; the allocator and the pool take it back from any thread.
unsafe impl Send for HostBlock {}

impl HostBlock {
    /// A block of `bytes` bytes, not initialised.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let out_of_memory = || Error::out_of_memory(bytes);
        if bytes >= POOLED {
            let block = pool::PoolBlock::new(bytes).ok_or_else(out_of_memory)?;
            emergency_pool::reserve_headroom(bytes)?;
            return Ok(Self(Memory::Pooled(block)));
        }
        // Room to align it ourselves. Asked for aligned memory, glibc cuts it out of a larger piece and gives the
        // rest back; of 1 MiB, on two threads, half the time then went into page faults. The room also gives a
        // zero-sized tensor an address of its own.
        let room = bytes + (ALIGNMENT - MALLOC_ALIGNMENT);
        let layout = AllocLayout::from_size_align(room, MALLOC_ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: the size is not zero.
        let allocate = || NonNull::new(unsafe { alloc::alloc(layout) });
        // What lies idle in the pool is given back before anybody hears of it.
        let data = allocate().or_else(|| if pool::release_idle() > 0 { allocate() } else { None });
        let data = data.ok_or_else(out_of_memory)?;
        let block = Self(Memory::Allocated(data, layout));
        // What the target's framework allocates for the tensor must not be the last there is.
        emergency_pool::reserve_headroom(bytes)?;
        Ok(block)
    }

    /// A block of `bytes` zeros. The system gives pages of zeros when they are first used, so that a large block needs memory only
    /// where it is written.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn zeroed(bytes: usize) -> Result<Self> {
        let room = bytes.checked_add(ALIGNMENT - MALLOC_ALIGNMENT);
        let layout = room.and_then(|room| AllocLayout::from_size_align(room, MALLOC_ALIGNMENT).ok());
        let layout = layout.ok_or_else(|| Error::out_of_memory(bytes))?;
        // SAFETY: the size is not zero.
        let data = NonNull::new(unsafe { alloc::alloc_zeroed(layout) });
        data.map(|data| Self(Memory::Allocated(data, layout))).ok_or_else(|| Error::out_of_memory(bytes))
    }

    /// A block of the pool, as it is.
    pub fn pooled(block: pool::PoolBlock) -> Self {
        Self(Memory::Pooled(block))
    }

    /// Where the block starts.
    pub fn data(&self) -> *mut u8 {
        match &self.0 {
            Memory::Allocated(start, _) => {
                start.as_ptr().map_addr(|address| address.next_multiple_of(ALIGNMENT))
            }
            Memory::Pooled(block) => block.data().as_ptr(),
        }
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // A block of the pool has a drop of its own.
        if let Memory::Allocated(start, layout) = self.0 {
            // SAFETY: allocated in `new` with this very layout, and dropped once.
            unsafe { alloc::dealloc(start.as_ptr(), layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn blocks_are_aligned_even_when_empty() {
        for bytes in [0, 1, 63, 64, 1 << 20, POOLED - 1, POOLED] {
            let block = HostBlock::new(bytes).unwrap();
            assert_eq!(block.data() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn zeroed_blocks_are_aligned_zeros() {
        for bytes in [0, 1, 1000, POOLED] {
            let block = HostBlock::zeroed(bytes).unwrap();
            assert_eq!(block.data() as usize % ALIGNMENT, 0);
            // SAFETY: the block has as many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(block.data(), bytes) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
        assert_eq!(HostBlock::zeroed(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert_eq!(HostBlock::new(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        // Miri ends the program instead of refusing.
        if !cfg!(miri) {
            let size = isize::MAX as usize - (4 << 20);
            assert_eq!(HostBlock::new(size).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }
}
