//! Tests of the pool.

use super::*;

const LIMIT: usize = 16 * HUGE_PAGE_BYTES;

macro_rules! pool {
    ($limit:expr) => {{
        static POOL: Pool = Pool::new();
        POOL.set_limit($limit);
        &POOL
    }};
}

fn idle(pool: &'static Pool) -> (usize, usize) {
    let memory = pool.stats();
    (memory.idle_blocks, memory.idle_bytes / HUGE_PAGE_BYTES)
}

#[test]
fn a_dropped_block_comes_back() {
    let pool = pool!(LIMIT);
    let block = pool.block(3 * HUGE_PAGE_BYTES - 5).unwrap();
    let address = block.data();
    assert_eq!(address.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
    assert_eq!((pool.stats().used_blocks, pool.stats().used_bytes), (1, 3 * HUGE_PAGE_BYTES));
    // SAFETY: the request was for five bytes less than three huge pages, of which this is the last. Only this test uses the
    // block.
    unsafe { address.add(3 * HUGE_PAGE_BYTES - 6).write(7) };
    drop(block);
    assert_eq!(idle(pool), (1, 3));
    let block = pool.block(2 * HUGE_PAGE_BYTES + HUGE_PAGE_BYTES / 2).unwrap();
    assert_eq!(block.data(), address);
    assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
    assert_eq!(idle(pool), (0, 0));
    drop(block);
    assert_eq!(pool.evict_to(0), 3 * HUGE_PAGE_BYTES);
    assert_eq!((idle(pool), pool.stats().used_blocks, pool.stats().used_bytes), ((0, 0), 0, 0));
}

#[test]
fn the_smallest_block_that_fits_is_taken() {
    let pool = pool!(40 * HUGE_PAGE_BYTES);
    let blocks = [10, 8, 9].map(|pages| pool.block(pages * HUGE_PAGE_BYTES).unwrap());
    let [_, eight, nine] = [0, 1, 2].map(|i| blocks[i].data());
    drop(blocks);
    let first = pool.block(8 * HUGE_PAGE_BYTES).unwrap();
    let second = pool.block(8 * HUGE_PAGE_BYTES).unwrap();
    assert_eq!((first.data(), second.data()), (eight, nine));
    // Ten for seven would waste more than a quarter.
    let _third = pool.block(7 * HUGE_PAGE_BYTES).unwrap();
    assert_eq!(idle(pool), (1, 10));
    pool.evict_to(0);
}

#[test]
fn the_least_recently_used_block_is_evicted_first() {
    let pool = pool!(5 * HUGE_PAGE_BYTES);
    let [one, two, three] = [1, 2, 3].map(|pages| pool.block(pages * HUGE_PAGE_BYTES).unwrap());
    drop(two);
    drop(one);
    drop(three);
    // Six pages exceed the limit: the block of two is evicted.
    assert_eq!(idle(pool), (2, 4));
    // A block over the limit is not kept and evicts nothing.
    drop(pool.block(6 * HUGE_PAGE_BYTES).unwrap());
    assert_eq!(idle(pool), (2, 4));
    pool.set_limit(3 * HUGE_PAGE_BYTES);
    assert_eq!(idle(pool), (1, 3));
    pool.set_limit(0);
    drop(pool.block(HUGE_PAGE_BYTES).unwrap());
    assert_eq!(idle(pool), (0, 0));
}

#[test]
fn without_memory_there_is_no_block() {
    let pool = pool!(LIMIT);
    assert!(pool.block(usize::MAX).is_none());
    // Miri aborts instead of failing the allocation.
    if !cfg!(miri) {
        drop(pool.block(HUGE_PAGE_BYTES).unwrap());
        assert!(pool.block(isize::MAX as usize - 2 * HUGE_PAGE_BYTES).is_none());
        // The idle block was unmapped before the second attempt.
        assert_eq!((idle(pool), pool.stats().used_blocks), ((0, 0), 0));
    }
}

#[test]
fn many_threads_share_the_pool() {
    let pool = pool!(6 * HUGE_PAGE_BYTES);
    thread::scope(|scope| {
        for seed in 0..4usize {
            scope.spawn(move || {
                for round in 0..if cfg!(miri) { 3 } else { 2000 } {
                    let block = pool.block((1 + (round * 7 + seed) % 4) * HUGE_PAGE_BYTES).unwrap();
                    // SAFETY: the block has at least one huge page, and only this thread uses it.
                    unsafe {
                        block.data().write(seed as u8);
                        assert_eq!(block.data().read(), seed as u8);
                    }
                }
            });
        }
    });
    assert!(pool.stats().idle_bytes <= 6 * HUGE_PAGE_BYTES);
    assert_eq!(pool.stats().used_blocks, 0);
    pool.evict_to(0);
}

#[test]
fn the_lock_of_a_parent_thread_is_taken_over() {
    // Few attempts, because each of them yields, which takes long beside busy threads.
    static POOL: Pool = Pool::with_lock_attempts(3);
    let pool = &POOL;
    pool.set_limit(LIMIT);
    let block = pool.block(HUGE_PAGE_BYTES).unwrap();
    pool.holder.store(process::id() + 1, Ordering::Relaxed);
    drop(block);
    assert_eq!(idle(pool), (1, 1));
    assert_eq!(pool.evict_to(0), HUGE_PAGE_BYTES);
    // A thread of this process that never releases the lock does not block others either.
    if !cfg!(miri) {
        pool.holder.store(process::id(), Ordering::Relaxed);
        drop(pool.block(HUGE_PAGE_BYTES).unwrap());
        assert_eq!(pool.evict_to(0), 0);
    }
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn the_child_of_a_fork_starts_without_idle_blocks() {
    let pool = pool!(LIMIT);
    let used = pool.block(HUGE_PAGE_BYTES).unwrap();
    drop(pool.block(2 * HUGE_PAGE_BYTES).unwrap());
    // SAFETY: the child of a process with threads may call only functions that take no lock of the parent. It calls the pool,
    // whose lock survives forks, and `_exit`. (glibc keeps its allocator usable in the child of a fork.)
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inherited = pool.stats();
        let fresh = pool.block(2 * HUGE_PAGE_BYTES);
        let right = (inherited.idle_blocks, inherited.used_blocks) == (0, 1)
            && fresh.is_some()
            && pool.stats().hits == 0;
        drop(fresh);
        drop(used);
        let right = right && pool.stats().idle_blocks == 2 && pool.stats().used_blocks == 0;
        // SAFETY: `_exit` has no preconditions, and ends the child without running destructors of the parent's values.
        unsafe { libc::_exit(if right { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `waitpid` writes the status to a local variable.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    assert_eq!(idle(pool), (1, 2));
    drop(used);
    pool.evict_to(0);
}

#[test]
fn a_full_list_evicts_the_oldest_block() {
    let pool = pool!(usize::MAX);
    let blocks: Vec<_> = (0..MAX_IDLE_BLOCKS + 2).map(|_| pool.block(HUGE_PAGE_BYTES).unwrap()).collect();
    let addresses: Vec<_> = blocks.iter().map(PoolBlock::data).collect();
    drop(blocks);
    assert_eq!(idle(pool).0, MAX_IDLE_BLOCKS);
    assert_eq!(pool.block(HUGE_PAGE_BYTES).unwrap().data(), addresses[MAX_IDLE_BLOCKS + 1]);
    pool.evict_to(0);
}

/// Counts unpinned pages, and refuses if `REFUSES` is set.
static UNPINNED: AtomicUsize = AtomicUsize::new(0);
static REFUSES: AtomicUsize = AtomicUsize::new(0);

unsafe fn unpin(_: NonNull<u8>, bytes: usize) -> bool {
    UNPINNED.fetch_add(bytes / HUGE_PAGE_BYTES, Ordering::Relaxed);
    REFUSES.load(Ordering::Relaxed) == 0
}

#[test]
fn pinned_blocks_stay_pinned_until_they_are_unmapped() {
    let pool = pool!(4 * HUGE_PAGE_BYTES);
    assert!(pool.idle(HUGE_PAGE_BYTES, BlockUse::Pinned).is_none());
    let mut block = pool.block(3 * HUGE_PAGE_BYTES).unwrap();
    assert!(!block.is_pinned() && pool.may_pin(4 * HUGE_PAGE_BYTES));
    // SAFETY: no driver has pinned the block, so `unpin` has nothing to undo.
    unsafe {
        block.pin(unpin, BlockUse::Pinned);
        block.pin(unpin, BlockUse::Pinned);
    }
    assert_eq!(
        (pool.stats().pinned_bytes, pool.may_pin(HUGE_PAGE_BYTES), pool.may_pin(2 * HUGE_PAGE_BYTES)),
        (3 * HUGE_PAGE_BYTES, true, false)
    );
    let address = block.data();
    drop(block);
    // Requests for another use get another block.
    assert!(
        pool.idle(3 * HUGE_PAGE_BYTES, BlockUse::Staging).is_none()
            && pool.idle(3 * HUGE_PAGE_BYTES, BlockUse::Pageable).is_none()
    );
    let pageable = pool.block(3 * HUGE_PAGE_BYTES).unwrap();
    assert!(pageable.data() != address && !pageable.is_pinned());
    let block = pool.idle(3 * HUGE_PAGE_BYTES, BlockUse::Pinned).unwrap();
    assert!(block.data() == address && block.is_pinned());
    drop(block);
    assert_eq!(UNPINNED.load(Ordering::Relaxed), 0);
    assert_eq!(pool.evict_to(0), 3 * HUGE_PAGE_BYTES);
    assert_eq!((UNPINNED.load(Ordering::Relaxed), pool.stats().pinned_bytes), (3, 0));
    // Memory that the driver does not release stays mapped and counts as pinned.
    REFUSES.store(1, Ordering::Relaxed);
    let mut block = pool.block(HUGE_PAGE_BYTES).unwrap();
    // SAFETY: no driver has pinned the block, so `unpin` has nothing to undo.
    unsafe { block.pin(unpin, BlockUse::Pinned) };
    let address = block.data();
    drop(block);
    pool.evict_to(0);
    assert_eq!(pool.stats().pinned_bytes, HUGE_PAGE_BYTES);
    // SAFETY: the pool mapped the block, and leaks it because `unpin` returns false. Nothing else uses or unmaps it.
    unsafe {
        address.write(1);
        pages::unmap(address, HUGE_PAGE_BYTES);
    }
}

#[test]
fn memory_is_short_when_little_is_left() {
    assert!(is_short(Some(0), 1 << 30) && is_short(Some((1 << 26) - 1), 1 << 30));
    assert!(!is_short(Some(1 << 26), 1 << 30) && !is_short(None, 1 << 30) && !is_short(Some(0), 0));
}

/// The idle bytes of a cache beside a pool, for the test below.
static OTHER_IDLE: AtomicUsize = AtomicUsize::new(0);

fn other_idle() -> IdleTotals {
    let bytes = OTHER_IDLE.load(Ordering::Relaxed);
    IdleTotals { bytes, blocks: usize::from(bytes > 0) }
}

fn evict_other_to(limit: usize) -> usize {
    let before = OTHER_IDLE.load(Ordering::Relaxed);
    OTHER_IDLE.store(before.min(limit), Ordering::Relaxed);
    before.saturating_sub(limit)
}

#[test]
fn another_cache_shares_the_limit() {
    let pool = pool!(4 * HUGE_PAGE_BYTES);
    pool.other_cache.set(&OtherCache { idle: other_idle, evict_to: evict_other_to });
    let blocks = [1, 2].map(|pages| pool.block(pages * HUGE_PAGE_BYTES).unwrap());
    OTHER_IDLE.store(3 * HUGE_PAGE_BYTES, Ordering::Relaxed);
    assert_eq!((idle(pool), pool.stats().other_idle), ((1, 3), other_idle()));
    // Blocks that become idle displace the memory of the other cache.
    drop(blocks);
    assert_eq!((idle(pool), other_idle().bytes), ((3, 4), HUGE_PAGE_BYTES));
    // A lower limit affects both.
    pool.set_limit(2 * HUGE_PAGE_BYTES);
    assert_eq!((idle(pool), other_idle().bytes), ((1, 2), 0));
    OTHER_IDLE.store(HUGE_PAGE_BYTES, Ordering::Relaxed);
    assert_eq!(pool.evict_all(), 3 * HUGE_PAGE_BYTES);
    assert_eq!((idle(pool), other_idle()), ((0, 0), IdleTotals::default()));
}
