//! The memory of copies in a tree: while a tree is converted, its small copies share blocks of the pool.
//!
//! A tensor below the threshold of the pool would get fresh pages from the allocator, whose first touch takes longer than the
//! copy. The blocks live until the last tensor in them is dropped ([`TreeBlocks`]).
//!
//! The blocks of a conversion belong to its thread: a copy is made far below the code that knows of the tree, and conversions
//! of other threads must not wait for it.

use std::cell::RefCell;
use tensorferry_core::Result;
use tensorferry_core::host::HostBlock;
use tensorferry_core::tree_block::TreeBlocks;

thread_local! {
    /// The blocks of the tree that this thread converts.
    static TREE_BLOCKS: RefCell<Option<TreeBlocks>> = const { RefCell::new(None) };
}

/// While this lives, copies on its thread share blocks.
pub(crate) struct TreeMemory {
    /// The blocks of the tree around this one, whose conversion has called code of the user.
    outer: Option<TreeBlocks>,
}

impl TreeMemory {
    pub(crate) fn begin() -> Self {
        Self { outer: TREE_BLOCKS.replace(Some(TreeBlocks::new())) }
    }
}

impl Drop for TreeMemory {
    fn drop(&mut self) {
        TREE_BLOCKS.set(self.outer.take());
    }
}

/// The smallest copy that shares a block. The allocator serves smaller ones from its cache, faster than the lookup here.
const MIN_SHARED_BYTES: usize = 512;

/// Memory for a copy, not initialised.
pub(super) fn new_block(bytes: usize) -> Result<HostBlock> {
    if bytes < MIN_SHARED_BYTES {
        return HostBlock::new(bytes);
    }
    // A thread that is ending has no blocks any more.
    let taken = TREE_BLOCKS.try_with(|blocks| {
        let mut blocks = blocks.try_borrow_mut().ok()?;
        Some(blocks.as_mut()?.take(bytes))
    });
    taken.ok().flatten().unwrap_or_else(|| HostBlock::new(bytes))
}
