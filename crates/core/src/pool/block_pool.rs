//! The pool itself: a lock-protected list of idle blocks with counters.

use super::other_cache::{IdleTotals, OtherCache, OtherCacheSlot};
use super::pages::{self, HUGE_PAGE_BYTES};
use super::system_memory::{available_memory, physical_memory};
use std::cell::UnsafeCell;
use std::process;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// The maximum number of idle blocks. Searching that many is faster than mapping a new one.
const MAX_IDLE_BLOCKS: usize = 256;
/// The attempts to take the lock before an operation bypasses the pool; the lock is never held that long.
const MAX_LOCK_ATTEMPTS: usize = 10_000;
/// The block size from which a freed block is kept only if the system is not short of memory.
const PRESSURE_CHECK_THRESHOLD_BYTES: usize = 64 << 20;
/// Marks a limit that has neither been set nor computed.
const UNKNOWN_LIMIT: usize = usize::MAX;

/// Statistics of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes of idle blocks, those of the other cache included.
    pub idle_bytes: usize,
    /// The number of idle blocks, those of the other cache included.
    pub idle_blocks: usize,
    /// What of that the other cache holds.
    pub other_idle: IdleTotals,
    /// Bytes of blocks in use.
    pub used_bytes: usize,
    /// The number of blocks in use.
    pub used_blocks: usize,
    /// Bytes of pinned blocks, idle or in use.
    pub pinned_bytes: usize,
    /// The limit in bytes on idle blocks and on pinned blocks.
    pub limit: usize,
    /// The number of requests served by an idle block.
    pub hits: usize,
    /// The number of requests that mapped new memory.
    pub misses: usize,
}

/// The statistics of the pool. While other threads allocate, the numbers are not a consistent snapshot.
pub fn stats() -> PoolStats {
    POOL.stats()
}

/// Unmaps all idle blocks, those of the other cache included; returns their size in bytes.
pub fn release_idle() -> usize {
    POOL.evict_all()
}

/// Sets the limit on idle blocks and unmaps those above it. A limit of zero keeps none.
pub fn set_limit(bytes: usize) {
    POOL.set_limit(bytes);
}

/// Registers the cache that shares the limit of the pool. A later call replaces it.
pub fn register_other_cache(cache: &'static OtherCache) {
    POOL.other_cache.set(cache);
}

/// The limit on idle memory for a cache that may keep `bytes` more. It is zero if the system is short of memory.
pub fn limit_for(bytes: usize) -> usize {
    POOL.limit_for(bytes)
}

/// Unmaps idle blocks until they and `other_bytes` idle bytes of the other cache are within a limit.
pub fn make_room(other_bytes: usize, limit: usize) {
    POOL.evict_to(limit.saturating_sub(other_bytes));
}

/// Counts a request to the other cache, and whether idle memory served it.
pub fn count_request(is_hit: bool) {
    POOL.count_request(is_hit);
}

/// Whether a block of at least this size is idle for a use.
pub fn has_idle(bytes: usize, usage: BlockUse) -> bool {
    POOL.lock().is_some_and(|mut guard| guard.find(bytes, usage).is_some())
}

/// Whether this many more bytes may be pinned.
pub fn may_pin(bytes: usize) -> bool {
    POOL.may_pin(bytes)
}

/// The use that an idle block is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUse {
    /// Pageable memory for any use.
    Pageable,
    /// Pinned memory of results, which a device writes directly.
    Pinned,
    /// Pinned staging buffers, which are never handed out as results.
    Staging,
}

/// Unregisters a block from a device driver, by its start and size; returns whether it may be unmapped.
pub type Unpin = unsafe fn(NonNull<u8>, usize) -> bool;

/// The pool of the process.
static POOL: Pool = Pool::new();

/// An uninitialised block of huge pages, which returns to the pool when it is dropped.
#[derive(Debug)]
pub struct PoolBlock {
    pool: &'static Pool,
    memory: Mapping,
}

impl PoolBlock {
    /// A block of at least this size; `None` if the system has no memory.
    pub fn new(bytes: usize) -> Option<Self> {
        POOL.block(bytes)
    }

    /// An idle block of at least this size for a use; `None` if the pool has none.
    pub fn idle(bytes: usize, usage: BlockUse) -> Option<Self> {
        POOL.idle(bytes, usage)
    }

    /// The start of the block.
    pub fn data(&self) -> NonNull<u8> {
        self.memory.data
    }

    /// The size of the block.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Whether the block is pinned.
    pub fn is_pinned(&self) -> bool {
        self.memory.pin.is_some()
    }

    /// Records that a device driver has pinned the block, and its use from now on.
    ///
    /// # Safety
    /// `unpin` undoes the pinning from any thread. Once it returns true, the driver does not access the memory any more.
    pub unsafe fn pin(&mut self, unpin: Unpin, usage: BlockUse) {
        if self.memory.pin.replace((unpin, usage)).is_none() {
            self.pool.pinned_bytes.fetch_add(self.memory.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for PoolBlock {
    fn drop(&mut self) {
        self.pool.recycle(Mapping { ..self.memory });
    }
}

/// A mapping of huge pages. It has no `Drop`: its last holder unmaps it.
#[derive(Debug)]
struct Mapping {
    data: NonNull<u8>,
    bytes: usize,
    /// How to unpin it before it is unmapped, and its use.
    pin: Option<(Unpin, BlockUse)>,
}

impl Mapping {
    fn usage(&self) -> BlockUse {
        self.pin.map_or(BlockUse::Pageable, |(_, usage)| usage)
    }
}

// SAFETY: the holder of a mapping is the only one of its memory. `munmap` works on any thread, and so does `unpin` (the
// contract of `PoolBlock::pin`).
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address, the size and the use of the memory, and no access to it.
unsafe impl Sync for Mapping {}

/// Idle blocks behind a lock, with counters that are read without it.
#[derive(Debug)]
struct Pool {
    /// The process whose thread holds the lock; zero if it is free.
    holder: AtomicU32,
    /// The attempts to take the lock.
    max_lock_attempts: usize,
    idle: UnsafeCell<IdleList>,
    limit: AtomicUsize,
    idle_bytes: AtomicUsize,
    idle_blocks: AtomicUsize,
    used_bytes: AtomicUsize,
    used_blocks: AtomicUsize,
    pinned_bytes: AtomicUsize,
    hits: AtomicUsize,
    misses: AtomicUsize,
    other_cache: OtherCacheSlot,
}

// SAFETY: every field but `idle` is an atomic, or never changes. `idle` is accessed in `PoolGuard::list` and in `lock`, by the
// thread that holds the lock; taking the lock acquires what its previous holder released. The mappings in the list are `Send`.
unsafe impl Sync for Pool {}

/// The idle blocks, least recently used first, and the process that they belong to.
#[derive(Debug)]
struct IdleList {
    process: u32,
    blocks: Vec<Mapping>,
}

impl Pool {
    const fn new() -> Self {
        Self::with_lock_attempts(MAX_LOCK_ATTEMPTS)
    }

    const fn with_lock_attempts(max_lock_attempts: usize) -> Self {
        Self {
            holder: AtomicU32::new(0),
            max_lock_attempts,
            idle: UnsafeCell::new(IdleList { process: 0, blocks: Vec::new() }),
            limit: AtomicUsize::new(UNKNOWN_LIMIT),
            idle_bytes: AtomicUsize::new(0),
            idle_blocks: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            used_blocks: AtomicUsize::new(0),
            pinned_bytes: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
            misses: AtomicUsize::new(0),
            other_cache: OtherCacheSlot::new(),
        }
    }

    fn block(&'static self, bytes: usize) -> Option<PoolBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let recycled = self.lock().and_then(|mut guard| guard.take(bytes, BlockUse::Pageable));
        self.count_request(recycled.is_some());
        let memory = match recycled {
            Some(memory) => memory,
            None => {
                let map = || pages::map(bytes).map(|data| Mapping { data, bytes, pin: None });
                map().or_else(|| if self.evict_all() > 0 { map() } else { None })?
            }
        };
        Some(self.block_in_use(memory))
    }

    fn idle(&'static self, bytes: usize, usage: BlockUse) -> Option<PoolBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let memory = self.lock().and_then(|mut guard| guard.take(bytes, usage))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(self.block_in_use(memory))
    }

    fn count_request(&self, is_hit: bool) {
        let count = if is_hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn block_in_use(&'static self, memory: Mapping) -> PoolBlock {
        self.used_bytes.fetch_add(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_add(1, Ordering::Relaxed);
        PoolBlock { pool: self, memory }
    }

    fn may_pin(&'static self, bytes: usize) -> bool {
        self.pinned_bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit()
    }

    /// Unpins and unmaps a block.
    fn unmap(&self, memory: Mapping) {
        let Mapping { data, bytes, pin } = memory;
        if let Some((unpin, _)) = pin {
            // SAFETY: the contract of `PoolBlock::pin` is that this function undoes the pinning of this memory, from any
            // thread. It is called once, because the mapping ends here.
            if !unsafe { unpin(data, bytes) } {
                // Leak the memory: a driver that still writes to it must not write to another allocation.
                return;
            }
            self.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        // SAFETY: `pages::map` returned the memory for this size in `block`, which made the mapping. Nothing uses it any more:
        // this function consumes the mapping, which is not `Clone`, and the copy in the drop of a block replaces the block.
        unsafe { pages::unmap(data, bytes) }
    }

    /// Adds a freed block to the idle list, or unmaps it.
    fn recycle(&'static self, memory: Mapping) {
        self.used_bytes.fetch_sub(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_sub(1, Ordering::Relaxed);
        let limit = self.limit_for(memory.bytes);
        if memory.bytes > limit {
            self.unmap(memory);
            if limit == 0 {
                self.evict_all();
            }
            return;
        }
        let evicted = match self.lock() {
            Some(mut guard) => guard.put(memory),
            None => Some(memory),
        };
        if let Some(memory) = evicted {
            self.unmap(memory);
        }
        self.evict_to(limit);
        let own_bytes = self.idle_bytes.load(Ordering::Relaxed);
        self.other_cache.evict_to(limit.saturating_sub(own_bytes));
    }

    /// The limit on idle blocks when a block of `bytes` bytes is freed. It is zero if the system is short of memory.
    fn limit_for(&self, bytes: usize) -> usize {
        // The query takes microseconds; clearing a block of this size takes milliseconds.
        let is_under_pressure =
            bytes >= PRESSURE_CHECK_THRESHOLD_BYTES && is_short(available_memory(), physical_memory());
        if is_under_pressure { 0 } else { self.limit() }
    }

    /// Unmaps all idle blocks, those of the other cache included; returns the bytes unmapped.
    fn evict_all(&'static self) -> usize {
        self.evict_to(0) + self.other_cache.evict_to(0)
    }

    /// Unmaps the least recently used blocks until at most `limit` bytes are idle; returns the bytes unmapped.
    fn evict_to(&'static self, limit: usize) -> usize {
        let mut freed = 0;
        // One at a time, because unmapping is slow and other threads may need the lock.
        while let Some(memory) = self.lock().and_then(|mut guard| guard.oldest_over(limit)) {
            freed += memory.bytes;
            self.unmap(memory);
        }
        freed
    }

    fn limit(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != UNKNOWN_LIMIT {
            return limit;
        }
        let limit = physical_memory() / 8;
        // Unless another thread has set a limit meanwhile.
        let set = self.limit.compare_exchange(UNKNOWN_LIMIT, limit, Ordering::Relaxed, Ordering::Relaxed);
        set.err().unwrap_or(limit)
    }

    fn set_limit(&'static self, bytes: usize) {
        self.limit.store(bytes.min(UNKNOWN_LIMIT - 1), Ordering::Relaxed);
        self.evict_to(bytes);
        self.other_cache.evict_to(bytes.saturating_sub(self.idle_bytes.load(Ordering::Relaxed)));
    }

    fn stats(&'static self) -> PoolStats {
        // Taking the lock discards the parent's idle blocks in the child of a fork.
        drop(self.lock());
        let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let other_idle = self.other_cache.idle();
        PoolStats {
            idle_bytes: read(&self.idle_bytes) + other_idle.bytes,
            idle_blocks: read(&self.idle_blocks) + other_idle.blocks,
            other_idle,
            used_bytes: read(&self.used_bytes),
            used_blocks: read(&self.used_blocks),
            pinned_bytes: read(&self.pinned_bytes),
            limit: self.limit(),
            hits: read(&self.hits),
            misses: read(&self.misses),
        }
    }

    /// Takes the lock; `None` after too many attempts. The caller then bypasses the pool, which is slower but correct.
    fn lock(&'static self) -> Option<PoolGuard> {
        let process = process::id();
        let mut guard = None;
        for _ in 0..self.max_lock_attempts {
            match self.holder.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    guard = Some(PoolGuard { pool: self });
                    break;
                }
                Err(holder) if holder != process => {
                    let stolen =
                        self.holder.compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed);
                    if stolen.is_ok() {
                        let guard = PoolGuard { pool: self };
                        // SAFETY: the exchange gave the lock to this thread, and its previous holder is a thread of another
                        // process, so nothing else accesses the list. `write` does not read or drop the old list, which the
                        // holder may have left half changed.
                        unsafe { ptr::write(self.idle.get(), IdleList { process, blocks: Vec::new() }) };
                        return Some(guard);
                    }
                }
                Err(_) => thread::yield_now(),
            }
        }
        let mut guard = guard?;
        let list = guard.list();
        if list.process != process {
            list.process = process;
            let inherited = std::mem::take(&mut list.blocks);
            drop(guard);
            inherited.into_iter().for_each(|memory| self.unmap(memory));
            return self.lock();
        }
        Some(guard)
    }
}

/// The held lock of a pool.
struct PoolGuard {
    pool: &'static Pool,
}

impl PoolGuard {
    fn list(&mut self) -> &mut IdleList {
        // SAFETY: `lock` makes a `PoolGuard` only after its exchange took the lock, and the drop of the guard releases it, so
        // there is one guard in the process. The reference borrows the guard mutably, so it is the only one to the list.
        unsafe { &mut *self.pool.idle.get() }
    }

    /// Takes the smallest idle block that is large enough and wastes at most a quarter. Of several equal blocks it takes the
    /// most recently used, which is the most likely to be cached.
    fn take(&mut self, bytes: usize, usage: BlockUse) -> Option<Mapping> {
        let index = self.find(bytes, usage)?;
        Some(self.list().blocks.remove(index))
    }

    fn find(&mut self, bytes: usize, usage: BlockUse) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let blocks = &mut self.list().blocks;
        let fits = |memory: &Mapping| {
            memory.usage() == usage && memory.bytes >= bytes && memory.bytes - bytes <= bytes / 4
        };
        let candidates = blocks.iter().enumerate().rev().filter(|(_, memory)| fits(memory));
        candidates.min_by_key(|(_, memory)| memory.bytes).map(|(index, _)| index)
    }

    /// Adds a block as the most recently used. Returns the block that has no room in the list: the least recently used.
    fn put(&mut self, memory: Mapping) -> Option<Mapping> {
        let blocks = &mut self.list().blocks;
        if blocks.try_reserve(1).is_err() {
            return Some(memory);
        }
        let oldest = (blocks.len() >= MAX_IDLE_BLOCKS).then(|| blocks.remove(0));
        blocks.push(memory);
        oldest
    }

    /// Takes the least recently used block if more than `limit` bytes are idle.
    fn oldest_over(&mut self, limit: usize) -> Option<Mapping> {
        let blocks = &mut self.list().blocks;
        let bytes: usize = blocks.iter().map(|memory| memory.bytes).sum();
        (bytes > limit).then(|| blocks.remove(0))
    }
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        let pool = self.pool;
        let blocks = &self.list().blocks;
        let bytes = blocks.iter().map(|memory| memory.bytes).sum();
        pool.idle_bytes.store(bytes, Ordering::Relaxed);
        pool.idle_blocks.store(blocks.len(), Ordering::Relaxed);
        pool.holder.store(0, Ordering::Release);
    }
}

/// Whether less than a sixteenth of the memory is available, so that no block should stay idle.
fn is_short(available: Option<usize>, physical: usize) -> bool {
    available.is_some_and(|available| available < physical / 16)
}

#[cfg(test)]
mod tests;
