//! Blocks of device and pinned host memory, and registered ranges of host memory.

use crate::handles::new_handle;
use crate::memfd::{FileMapping, MemfdAllocator};
use crate::work::Work;
use std::collections::BTreeMap;

/// The content of new memory.
const FRESH_PATTERN: u64 = 0xdead_beef_dead_beef;
/// The content of freed memory.
const FREED_PATTERN: u64 = 0xfeed_face_feed_face;

/// All blocks and registered ranges, by address.
#[derive(Default)]
pub(crate) struct MemoryTable {
    blocks: BTreeMap<usize, Block>,
    /// Registered host memory: start and size.
    registered: BTreeMap<usize, usize>,
    /// Backs the memory of `cuMemAlloc`.
    files: MemfdAllocator,
}

/// How a block came into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockOrigin {
    /// Pinned host memory.
    Host,
    /// `cuMemAlloc`.
    Allocated,
    /// The pool with this handle; zero is the default pool, which cannot be exported.
    Pool(usize),
    /// Another process, by a legacy handle.
    Imported,
}

pub(crate) struct Block {
    /// The device, by its ordinal in this process; `None` for host memory.
    pub(crate) device: Option<usize>,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) origin: BlockOrigin,
    /// Unique in the process.
    pub(crate) buffer_id: u64,
    storage: Storage,
}

enum Storage {
    Private(Box<[u64]>),
    /// A mapped range of a file, which other processes can map too.
    Shared(FileMapping),
}

impl Block {
    /// The file range that backs it.
    pub(crate) fn file_mapping(&self) -> Option<&FileMapping> {
        match &self.storage {
            Storage::Private(_) => None,
            Storage::Shared(mapping) => Some(mapping),
        }
    }
}

impl MemoryTable {
    /// Allocates memory, filled with a pattern that no test expects; `None` if the system has no room.
    pub(crate) fn allocate(&mut self, bytes: usize, device: Option<usize>, from_pool: bool) -> Option<usize> {
        let origin = match (device, from_pool) {
            (None, _) => BlockOrigin::Host,
            (Some(_), true) => BlockOrigin::Pool(0),
            (Some(_), false) => BlockOrigin::Allocated,
        };
        if origin == BlockOrigin::Allocated {
            let mapping = self.files.allocate(bytes)?;
            return Some(self.insert_mapping(mapping, bytes, device, origin));
        }
        let memory = vec![FRESH_PATTERN; bytes.div_ceil(8) + 8].into_boxed_slice();
        let start = (memory.as_ptr() as usize).next_multiple_of(64);
        let (buffer_id, storage) = (new_handle() as u64, Storage::Private(memory));
        self.blocks.insert(start, Block { device, start, bytes, origin, buffer_id, storage });
        Some(start)
    }

    /// Adds a mapped file range. New memory is filled with the pattern, imported memory is not.
    pub(crate) fn insert_mapping(
        &mut self,
        mapping: FileMapping,
        bytes: usize,
        device: Option<usize>,
        origin: BlockOrigin,
    ) -> usize {
        let start = mapping.start();
        if origin != BlockOrigin::Imported {
            mapping.fill(FRESH_PATTERN);
        }
        let (buffer_id, storage) = (new_handle() as u64, Storage::Shared(mapping));
        self.blocks.insert(start, Block { device, start, bytes, origin, buffer_id, storage });
        start
    }

    /// Removes a block, and returns work that overwrites it; `None` if the address is not that of a block.
    ///
    /// The memory itself is leaked: work that still uses it would otherwise write to memory of another owner. A test then
    /// sees wrong values instead of a crash.
    pub(crate) fn free(&mut self, address: usize) -> Option<Work> {
        let block = self.blocks.get(&address)?;
        // Imported memory is closed, not freed.
        if block.origin == BlockOrigin::Imported {
            return None;
        }
        let block = self.blocks.remove(&address)?;
        Some(Box::new(move || match block.storage {
            Storage::Private(mut memory) => {
                memory.fill(FREED_PATTERN);
                std::mem::forget(memory);
            }
            Storage::Shared(mapping) => {
                mapping.fill(FREED_PATTERN);
                std::mem::forget(mapping);
            }
        }))
    }

    /// Removes and unmaps an imported block.
    pub(crate) fn close(&mut self, address: usize) {
        self.blocks.remove(&address);
    }

    /// Registers host memory. Returns false if the range overlaps a registered one.
    pub(crate) fn register(&mut self, start: usize, bytes: usize) -> bool {
        let before = self.registered.range(..start + bytes).next_back();
        if before.is_some_and(|(other, length)| other + length > start) {
            return false;
        }
        self.registered.insert(start, bytes);
        true
    }

    /// Unregisters host memory. Returns false if no registered range starts there.
    pub(crate) fn unregister(&mut self, start: usize) -> bool {
        self.registered.remove(&start).is_some()
    }

    /// The number of registered ranges.
    pub(crate) fn registered_count(&self) -> usize {
        self.registered.len()
    }

    pub(crate) fn is_registered(&self, address: usize) -> bool {
        self.registered.range(..=address).next_back().is_some_and(|(start, bytes)| address < start + bytes)
    }

    /// The block that contains an address.
    pub(crate) fn block_of(&self, address: usize) -> Option<&Block> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.bytes.max(1)).then_some(block)
    }

    /// Bytes of device memory in use, without that of other processes.
    pub(crate) fn used_bytes(&self) -> usize {
        let is_own = |block: &&Block| block.device.is_some() && block.origin != BlockOrigin::Imported;
        self.blocks.values().filter(is_own).map(|block| block.bytes).sum()
    }

    /// The number of blocks of other processes.
    pub(crate) fn imported_count(&self) -> usize {
        self.blocks.values().filter(|block| block.origin == BlockOrigin::Imported).count()
    }
}
