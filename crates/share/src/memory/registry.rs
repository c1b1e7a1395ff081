//! The registry of the host arenas that this process has mapped, and of the leases on them and on GPU memory.
//!
//! It tells whether an address is in shared memory, so that publishing it copies nothing, even if it was attached. Its
//! references to arenas are weak, but for the one that the block allocator fills: an arena removes itself when it is
//! dropped.
//!
//! A thread that holds this lock takes no other lock and drops no arena, because that drop takes the lock itself. The
//! lock order with the server's is in [`crate::fork_handlers`].

use super::arena::Arena;
use super::block_allocator::BlockAllocator;
use super::idle_arenas::{self, IdleArena, IdleArenas};
use crate::lease::{Lease, LeaseList, MIN_PRUNE_LEN};
use crate::system::FileId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::Access;
use tensorferry_core::pool::{self, OtherCache};
use tensorferry_cuda::ipc::{ArenaId, GpuArena};

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    arenas: BTreeMap::new(),
    addresses: BTreeMap::new(),
    gpu_leases: BTreeMap::new(),
    gpu_prune_len: MIN_PRUNE_LEN,
    block_allocator: BlockAllocator::new(),
    idle_arenas: IdleArenas::new(),
});

/// The idle arenas, for the pool whose limit they share.
static IDLE_ARENA_CACHE: OtherCache = OtherCache { idle: idle_arenas::totals, evict_to: try_evict_to };

pub(crate) struct Registry {
    /// By the address of the first byte.
    arenas: BTreeMap<usize, RegisteredArena>,
    /// Addresses of the first byte, by file and whether the mapping is writable.
    addresses: BTreeMap<(FileId, bool), usize>,
    /// Leases on GPU memory of other processes.
    gpu_leases: BTreeMap<ArenaId, LeaseList>,
    /// The number of GPU arenas at which those without leases are removed.
    gpu_prune_len: usize,
    pub(crate) block_allocator: BlockAllocator,
    pub(crate) idle_arenas: IdleArenas,
}

struct RegisteredArena {
    end: usize,
    arena: Weak<Arena>,
    /// Leases on the memory, if it belongs to another process.
    leases: LeaseList,
}

impl Registry {
    fn find_file(&self, file: FileId, access: Access) -> Option<Arc<Arena>> {
        let address = self.addresses.get(&(file, access == Access::ReadWrite))?;
        self.arenas.get(address)?.arena.upgrade()
    }
}

pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers an arena. Returns the existing one if another thread has mapped the same file meanwhile.
pub(super) fn insert(arena: Arc<Arena>) -> Arc<Arena> {
    let mut registry = lock();
    if let Some(known) = registry.find_file(arena.file_id(), arena.access()) {
        drop(registry);
        return known;
    }
    let start = arena.data() as usize;
    let end = start + arena.bytes();
    registry.addresses.insert((arena.file_id(), arena.access() == Access::ReadWrite), start);
    let registered = RegisteredArena { end, arena: Arc::downgrade(&arena), leases: LeaseList::new() };
    registry.arenas.insert(start, registered);
    drop(registry);
    arena
}

/// Defined here because the registry depends on `Arena`, which must not depend on the registry.
impl Drop for Arena {
    fn drop(&mut self) {
        let mut registry = lock();
        let start = self.data() as usize;
        // An arena that lost the race in `insert` was never registered.
        if registry.arenas.get(&start).is_some_and(|known| std::ptr::eq(known.arena.as_ptr(), self)) {
            registry.arenas.remove(&start);
        }
        let file = (self.file_id(), self.access() == Access::ReadWrite);
        if registry.addresses.get(&file) == Some(&start) {
            registry.addresses.remove(&file);
        }
        drop(registry);
        // Only now can nobody find the arena any more. The mapping outlives this value if it is kept.
        if let Some(idle) = self.to_idle() {
            keep_idle(idle);
        }
    }
}

/// Keeps an arena for later, within the limit that idle arenas share with the pool.
fn keep_idle(idle: IdleArena) {
    let limit = pool::limit_for(idle.mapping.bytes());
    if idle.mapping.bytes() > limit {
        // The system is short of memory, or nothing may be kept.
        if limit == 0 {
            release_idle_arenas();
            pool::make_room(0, 0);
        }
        return;
    }
    pool::register_other_cache(&IDLE_ARENA_CACHE);
    let mut registry = lock();
    let mut released = registry.idle_arenas.put(idle);
    released.extend(registry.idle_arenas.evict_to(limit));
    drop(registry);
    drop(released);
    pool::make_room(idle_arenas::totals().bytes, limit);
}

/// Takes an idle arena for at least `bytes` bytes that no other process uses.
pub(super) fn take_idle(bytes: usize) -> Option<IdleArena> {
    lock().idle_arenas.take(bytes)
}

/// Unmaps all idle arenas; returns their bytes.
pub(crate) fn release_idle_arenas() -> usize {
    let released = lock().idle_arenas.evict_to(0);
    total_bytes(&released)
}

/// Unmaps idle arenas for the pool. It must not wait: the pool may be used on any thread, and around a fork.
fn try_evict_to(limit: usize) -> usize {
    let Ok(mut registry) = REGISTRY.try_lock() else { return 0 };
    let released = registry.idle_arenas.evict_to(limit);
    drop(registry);
    total_bytes(&released)
}

fn total_bytes(arenas: &[IdleArena]) -> usize {
    arenas.iter().map(|idle| idle.mapping.bytes()).sum()
}

/// The arena that maps a file with this access.
pub(super) fn find_file(file: FileId, access: Access) -> Option<Arc<Arena>> {
    lock().find_file(file, access)
}

/// The arena that contains these bytes, and their offset in it; `None` for ordinary memory.
pub fn find_arena(address: *const u8, bytes: usize) -> Option<(Arc<Arena>, usize)> {
    let start = address as usize;
    let registry = lock();
    let (&first, registered) = registry.arenas.range(..=start).next_back()?;
    if start.checked_add(bytes)? > registered.end || start >= registered.end {
        return None;
    }
    Some((registered.arena.upgrade()?, start - first))
}

/// Records that a lease holds the memory of an arena.
pub(crate) fn add_lease(arena: &Arena, lease: &Arc<Lease>) {
    let mut registry = lock();
    if let Some(registered) = registry.arenas.get_mut(&(arena.data() as usize)) {
        registered.leases.add(lease);
    }
}

/// The leases that hold the memory of an arena. A publication of that memory must keep them.
pub(crate) fn leases_of(arena: &Arena) -> Vec<Arc<Lease>> {
    let registry = lock();
    let registered = registry.arenas.get(&(arena.data() as usize));
    registered.map(|registered| registered.leases.live()).unwrap_or_default()
}

/// As [`add_lease`], for GPU memory.
pub(crate) fn add_gpu_lease(arena: &GpuArena, lease: &Arc<Lease>) {
    let mut registry = lock();
    if registry.gpu_leases.len() >= registry.gpu_prune_len {
        registry.gpu_leases.retain(|_, leases| {
            leases.prune();
            !leases.is_empty()
        });
        registry.gpu_prune_len = MIN_PRUNE_LEN.max(2 * registry.gpu_leases.len());
    }
    registry.gpu_leases.entry(*arena.id()).or_insert_with(LeaseList::new).add(lease);
}

/// As [`leases_of`], for GPU memory.
pub(crate) fn gpu_leases_of(arena: &GpuArena) -> Vec<Arc<Lease>> {
    let registry = lock();
    registry.gpu_leases.get(arena.id()).map(LeaseList::live).unwrap_or_default()
}

/// Bytes of the mapped arenas, resident or not.
pub(crate) fn mapped_bytes() -> usize {
    lock().arenas.iter().map(|(start, registered)| registered.end - start).sum()
}

pub(crate) fn arena_count() -> usize {
    lock().arenas.len()
}
