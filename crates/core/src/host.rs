//! Owned host memory, aligned for every framework.

use crate::emergency_pool;
use crate::error::{Error, Result};
use crate::pool;
use std::alloc::{self, Layout as AllocLayout};
use std::ptr::NonNull;
use std::sync::Arc;

/// The alignment of every block in bytes, which TensorFlow and JAX require to share memory.
pub const ALIGNMENT: usize = 64;

/// The size from which a block comes from the pool.
///
/// A copy into new memory on a Xeon takes, in microseconds with the allocator and with huge pages: 76 and 230 for 1 MiB, 350
/// and 600 for 4 MiB, 59,000 and 27,000 for 64 MiB. The allocator caches small blocks, and unmaps large ones each time. From
/// 4 MiB on, rounding up to huge pages wastes at most a third.
const POOL_THRESHOLD_BYTES: usize = 4 << 20;

/// The alignment that `malloc` guarantees, in bytes. NumPy and CPython allocate with it.
pub const MALLOC_ALIGNMENT: usize = 16;

/// An uninitialised block of host memory that this process owns.
///
/// Large blocks come from the [`pool`] and return to it.
#[derive(Debug)]
pub struct HostBlock(Storage);

#[derive(Debug)]
enum Storage {
    /// Storage of the allocator: its start, and the layout that it was allocated with.
    Allocated(NonNull<u8>, AllocLayout),
    /// Storage of the pool.
    Pooled(pool::PoolBlock),
    /// A slice of another block, at this offset.
    Slice(Arc<HostBlock>, usize),
}

// SAFETY: the block is the only owner of its memory, which the allocator and the pool let any thread free. A slice shares the
// ownership through an `Arc`, and its bytes belong to it alone.
unsafe impl Send for HostBlock {}
// SAFETY: a shared reference gives the address of the memory, and no access to it.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// A block of `bytes` bytes, not initialised.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let out_of_memory = || Error::out_of_memory(bytes);
        if bytes >= POOL_THRESHOLD_BYTES {
            let block = pool::PoolBlock::new(bytes).ok_or_else(out_of_memory)?;
            emergency_pool::ensure_headroom(bytes)?;
            return Ok(Self(Storage::Pooled(block)));
        }
        // Padding to align the block here. For an aligned allocation glibc splits a larger chunk and frees the rest: with
        // 1 MiB on two threads, page faults then took half of the time. The padding also gives an empty tensor its own
        // address.
        let padded = bytes + (ALIGNMENT - MALLOC_ALIGNMENT);
        let layout = AllocLayout::from_size_align(padded, MALLOC_ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: `alloc` requires a size that is not zero: the padding is not.
        let allocate = || NonNull::new(unsafe { alloc::alloc(layout) });
        // Idle blocks of the pool are unmapped before the call fails.
        let data = allocate().or_else(|| if pool::release_idle() > 0 { allocate() } else { None });
        let data = data.ok_or_else(out_of_memory)?;
        let block = Self(Storage::Allocated(data, layout));
        // Leave memory for the allocations that the target's framework makes for the tensor.
        emergency_pool::ensure_headroom(bytes)?;
        Ok(block)
    }

    /// A block of `bytes` zeros. The system provides zero pages at the first touch, so a large block uses memory only where it
    /// is written.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn zeroed(bytes: usize) -> Result<Self> {
        let padded = bytes.checked_add(ALIGNMENT - MALLOC_ALIGNMENT);
        let layout = padded.and_then(|padded| AllocLayout::from_size_align(padded, MALLOC_ALIGNMENT).ok());
        let layout = layout.ok_or_else(|| Error::out_of_memory(bytes))?;
        // SAFETY: `alloc_zeroed` requires a size that is not zero: the padding is not.
        let data = NonNull::new(unsafe { alloc::alloc_zeroed(layout) });
        data.map(|data| Self(Storage::Allocated(data, layout))).ok_or_else(|| Error::out_of_memory(bytes))
    }

    /// Wraps a block of the pool.
    pub fn pooled(block: pool::PoolBlock) -> Self {
        Self(Storage::Pooled(block))
    }

    /// A slice of a block, which keeps the whole block. No other slice that is in use overlaps it: only
    /// [`TreeBlock`](crate::tree_block::TreeBlock) calls this.
    pub(crate) fn slice_of(block: Arc<Self>, offset: usize) -> Self {
        Self(Storage::Slice(block, offset))
    }

    /// Whether the memory belongs to the pool.
    pub fn is_pooled(&self) -> bool {
        match &self.0 {
            Storage::Allocated(..) => false,
            Storage::Pooled(_) => true,
            Storage::Slice(block, _) => block.is_pooled(),
        }
    }

    /// The start of the block.
    pub fn data(&self) -> *mut u8 {
        match &self.0 {
            Storage::Allocated(start, _) => {
                start.as_ptr().map_addr(|address| address.next_multiple_of(ALIGNMENT))
            }
            Storage::Pooled(block) => block.data().as_ptr(),
            Storage::Slice(block, offset) => block.data().wrapping_add(*offset),
        }
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // A block of the pool has its own `Drop`, and so has the block that a slice belongs to.
        if let Storage::Allocated(start, layout) = self.0 {
            // SAFETY: `new` or `zeroed` allocated the memory with this layout, and stored both together. A value is dropped
            // once.
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
        for bytes in [0, 1, 63, 64, 1 << 20, POOL_THRESHOLD_BYTES - 1, POOL_THRESHOLD_BYTES] {
            let block = HostBlock::new(bytes).unwrap();
            assert_eq!(block.data() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn zeroed_blocks_are_aligned_zeros() {
        for bytes in [0, 1, 1000, POOL_THRESHOLD_BYTES] {
            let block = HostBlock::zeroed(bytes).unwrap();
            assert_eq!(block.data() as usize % ALIGNMENT, 0);
            // SAFETY: `zeroed` allocated at least this many bytes after the aligned start and initialised them.
            let bytes = unsafe { std::slice::from_raw_parts(block.data(), bytes) };
            // Miri takes minutes for all of them.
            let step = if cfg!(miri) { 1009 } else { 1 };
            assert!(bytes.iter().step_by(step).all(|&byte| byte == 0));
        }
        assert_eq!(HostBlock::zeroed(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert_eq!(HostBlock::new(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        // Miri aborts instead of failing the allocation.
        if !cfg!(miri) {
            let size = isize::MAX as usize - (4 << 20);
            assert_eq!(HostBlock::new(size).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }
}
