//! Tree blocks: one block of host memory for the many small tensors of a tree.
//!
//! A tensor below the threshold of the pool comes from the allocator, and its first access may have to clear pages. A tree of
//! such tensors can be large all the same. A tree block takes the memory of the whole tree with one request, which the pool
//! serves if the sum is large enough, and divides it.
//!
//! # Guarantees
//!
//! - Slices do not overlap, and each starts at a multiple of [`ALIGNMENT`]. An empty slice has its own address.
//! - Every slice is a [`HostBlock`] and keeps the whole block: one small tensor that outlives the others holds the memory of
//!   all of them. Callers whose tensors are likely to have different lifetimes use one block for each instead.
//!
//! # Trees of unknown size
//!
//! A conversion meets the tensors of a tree one after the other, and asking all of them for their size first takes as long as
//! copying small ones. [`TreeBlocks`] therefore takes several blocks, each a quarter of what the tree has used so far. A small
//! tree, and the first tensors of a large one, come from the allocator. At the end at most the last block is partly unused:
//! a fifth of the memory, or 4 MiB.

use crate::error::{Error, Result};
use crate::host::{ALIGNMENT, HostBlock};
use std::sync::Arc;

/// A block of host memory that is handed out in slices.
#[derive(Debug)]
pub struct TreeBlock {
    block: Arc<HostBlock>,
    bytes: usize,
    used_bytes: usize,
}

impl TreeBlock {
    /// Memory for slices of these sizes, in any order. It is not initialised.
    ///
    /// # Errors
    /// When the system has no memory, or the sum exceeds the address space.
    pub fn for_sizes(sizes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut sum = Some(0_usize);
        for bytes in sizes {
            sum = sum.and_then(|sum| sum.checked_add(padded(bytes)?));
        }
        Self::with_bytes(sum.ok_or_else(|| Error::out_of_memory(usize::MAX))?)
    }

    /// A block of `bytes` bytes, not initialised. Each slice of it uses a multiple of [`ALIGNMENT`], and at least that.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn with_bytes(bytes: usize) -> Result<Self> {
        Ok(Self { block: Arc::new(HostBlock::new(bytes)?), bytes, used_bytes: 0 })
    }

    /// The next `bytes` bytes; `None` if the block has fewer left.
    pub fn take(&mut self, bytes: usize) -> Option<HostBlock> {
        let start = self.used_bytes;
        let end = start.checked_add(padded(bytes)?).filter(|&end| end <= self.bytes)?;
        self.used_bytes = end;
        Some(HostBlock::slice_of(self.block.clone(), start))
    }

    /// The bytes that are not handed out.
    pub fn remaining_bytes(&self) -> usize {
        self.bytes - self.used_bytes
    }
}

/// The bytes that a tree copies before it gets blocks of its own. The allocator serves less as fast.
const MIN_TREE_BYTES: usize = 1 << 20;
/// The smallest block of a tree, which is also the smallest that the pool serves.
const MIN_TREE_BLOCK_BYTES: usize = 4 << 20;
/// A tensor of more than this fraction of a block gets memory of its own, because it would leave too large a gap.
const MAX_SLICE_FRACTION: usize = 8;

/// Blocks for the tensors of a tree whose size is unknown.
#[derive(Debug, Default)]
pub struct TreeBlocks {
    current: Option<TreeBlock>,
    used_bytes: usize,
}

impl TreeBlocks {
    /// Without memory.
    pub const fn new() -> Self {
        Self { current: None, used_bytes: 0 }
    }

    /// A block of `bytes` bytes, not initialised: a slice of a larger one, or one of its own.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn take(&mut self, bytes: usize) -> Result<HostBlock> {
        let before = self.used_bytes;
        self.used_bytes = before.saturating_add(bytes);
        let block_bytes = MIN_TREE_BLOCK_BYTES.max(before / 4);
        if before < MIN_TREE_BYTES || bytes > block_bytes / MAX_SLICE_FRACTION {
            return HostBlock::new(bytes);
        }
        if let Some(slice) = self.current.as_mut().and_then(|block| block.take(bytes)) {
            return Ok(slice);
        }
        let block = self.current.insert(TreeBlock::with_bytes(block_bytes)?);
        block.take(bytes).map_or_else(|| HostBlock::new(bytes), Ok)
    }
}

/// The bytes that a slice uses.
fn padded(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::pool;

    fn fill(slice: &HostBlock, bytes: usize, value: u8) {
        // SAFETY: `write_bytes` requires writable memory: `take` returned a slice of this many bytes, and nothing else uses it.
        unsafe { slice.data().write_bytes(value, bytes) }
    }

    fn read(slice: &HostBlock, bytes: usize) -> Vec<u8> {
        // SAFETY: `from_raw_parts` requires initialised memory: `fill` has written this many bytes of the slice.
        unsafe { std::slice::from_raw_parts(slice.data(), bytes) }.to_vec()
    }

    #[test]
    fn slices_are_aligned_and_do_not_overlap() {
        let sizes = [0, 1, 63, 64, 65, 0, 1000, 4096];
        let mut tree = TreeBlock::for_sizes(sizes).unwrap();
        let slices: Vec<HostBlock> = sizes.iter().map(|&bytes| tree.take(bytes).unwrap()).collect();
        assert_eq!(tree.remaining_bytes(), 0);
        for (index, (slice, &bytes)) in slices.iter().zip(&sizes).enumerate() {
            assert_eq!(slice.data() as usize % ALIGNMENT, 0);
            fill(slice, bytes, index as u8 + 1);
        }
        for (index, (slice, &bytes)) in slices.iter().zip(&sizes).enumerate() {
            assert_eq!(read(slice, bytes), vec![index as u8 + 1; bytes]);
        }
        let mut addresses: Vec<usize> = slices.iter().map(|slice| slice.data() as usize).collect();
        addresses.dedup();
        assert_eq!(addresses.len(), sizes.len());
    }

    #[test]
    fn a_full_block_has_no_slice_left() {
        let mut tree = TreeBlock::with_bytes(2 * ALIGNMENT + 1).unwrap();
        assert!(tree.take(2 * ALIGNMENT + 1).is_none());
        let first = tree.take(ALIGNMENT).unwrap();
        assert_eq!(tree.remaining_bytes(), ALIGNMENT + 1);
        assert!(tree.take(ALIGNMENT + 1).is_none() && tree.take(usize::MAX).is_none());
        let second = tree.take(1).unwrap();
        assert_eq!(second.data() as usize - first.data() as usize, ALIGNMENT);
        assert!(tree.take(0).is_none());
        assert!(TreeBlock::for_sizes([]).unwrap().take(0).is_none());
    }

    #[test]
    fn a_slice_keeps_the_block_alive() {
        let mut tree = TreeBlock::for_sizes([100, 200]).unwrap();
        let block = Arc::downgrade(&tree.block);
        let (first, last) = (tree.take(100).unwrap(), tree.take(200).unwrap());
        fill(&last, 200, 9);
        drop(tree);
        drop(first);
        assert_eq!(read(&last, 200), [9; 200]);
        assert!(block.upgrade().is_some());
        drop(last);
        assert!(block.upgrade().is_none());
    }

    #[test]
    fn slices_are_dropped_on_any_thread() {
        let mut tree = TreeBlock::for_sizes([64; 8]).unwrap();
        let block = Arc::downgrade(&tree.block);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let slice = tree.take(64).unwrap();
                scope.spawn(move || fill(&slice, 64, 1));
            }
        });
        drop(tree);
        assert!(block.upgrade().is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow")]
    fn a_large_tree_uses_one_block_of_the_pool() {
        let mut tree = TreeBlock::for_sizes([64 << 10; 128]).unwrap();
        let slices: Vec<HostBlock> = (0..128).map(|_| tree.take(64 << 10).unwrap()).collect();
        assert!(tree.block.is_pooled());
        assert!(pool::stats().used_bytes >= 8 << 20);
        drop((tree, slices));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow")]
    fn a_tree_of_unknown_size_grows_into_blocks() {
        let mut tree = TreeBlocks::new();
        let bytes = 64 << 10;
        let slices: Vec<HostBlock> = (0..1024).map(|_| tree.take(bytes).unwrap()).collect();
        let own = slices.iter().filter(|slice| !slice.is_pooled()).count();
        assert_eq!(own, MIN_TREE_BYTES / bytes);
        for (index, slice) in slices.iter().enumerate() {
            assert_eq!(slice.data() as usize % ALIGNMENT, 0);
            fill(slice, bytes, index as u8);
        }
        for (index, slice) in slices.iter().enumerate() {
            assert!(read(slice, bytes).iter().all(|&byte| byte == index as u8));
        }
        // A large tensor has memory of its own, and the tree goes on in its block.
        let remaining = tree.current.as_ref().unwrap().remaining_bytes();
        assert!(tree.take(8 << 20).unwrap().is_pooled());
        assert_eq!(tree.current.as_ref().unwrap().remaining_bytes(), remaining);
    }

    #[test]
    fn a_small_tree_stays_with_the_allocator() {
        let mut tree = TreeBlocks::new();
        assert!((0..100).all(|_| !tree.take(1000).unwrap().is_pooled()));
        assert!(tree.current.is_none());
        assert_eq!(tree.take(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn an_impossible_sum_is_an_error() {
        for sizes in [[usize::MAX, 0], [usize::MAX / 2 + 1, usize::MAX / 2 + 1]] {
            assert_eq!(TreeBlock::for_sizes(sizes).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
        assert_eq!(TreeBlock::with_bytes(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
