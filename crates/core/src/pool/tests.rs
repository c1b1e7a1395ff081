//! What the pool promises.

use super::*;

const LIMIT: usize = 16 * HUGE;

macro_rules! pool {
    ($limit:expr) => {{
        static POOL: Pool = Pool::new();
        POOL.set_limit($limit);
        &POOL
    }};
}

fn idle(pool: &'static Pool) -> (usize, usize) {
    let memory = pool.stats();
    (memory.idle_blocks, memory.idle_bytes / HUGE)
}

#[test]
fn a_dropped_block_comes_back() {
    let pool = pool!(LIMIT);
    let block = pool.block(3 * HUGE - 5).unwrap();
    let place = block.data();
    assert_eq!(place.as_ptr() as usize % HUGE, 0);
    assert_eq!((pool.stats().used_blocks, pool.stats().used_bytes), (1, 3 * HUGE));
    // SAFETY: the last byte that was asked for.
    unsafe { place.add(3 * HUGE - 6).write(7) };
    drop(block);
    assert_eq!(idle(pool), (1, 3));
    let block = pool.block(2 * HUGE + HUGE / 2).unwrap();
    assert_eq!(block.data(), place);
    assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
    assert_eq!(idle(pool), (0, 0));
    drop(block);
    assert_eq!(pool.evict_to(0), 3 * HUGE);
    assert_eq!((idle(pool), pool.stats().used_blocks, pool.stats().used_bytes), ((0, 0), 0, 0));
}

#[test]
fn the_smallest_that_fits_is_taken_and_no_giant() {
    let pool = pool!(40 * HUGE);
    let blocks = [10, 8, 9].map(|pages| pool.block(pages * HUGE).unwrap());
    let [_, eight, nine] = [0, 1, 2].map(|i| blocks[i].data());
    drop(blocks);
    let first = pool.block(8 * HUGE).unwrap();
    let second = pool.block(8 * HUGE).unwrap();
    assert_eq!((first.data(), second.data()), (eight, nine));
    // Ten for seven would waste more than a quarter.
    let _third = pool.block(7 * HUGE).unwrap();
    assert_eq!(idle(pool), (1, 10));
    pool.evict_to(0);
}

#[test]
fn the_least_recently_used_goes_first() {
    let pool = pool!(5 * HUGE);
    let [one, two, three] = [1, 2, 3].map(|pages| pool.block(pages * HUGE).unwrap());
    drop(two);
    drop(one);
    drop(three);
    // Six pages are one too many: the two go.
    assert_eq!(idle(pool), (2, 4));
    // A block over the limit is not kept and pushes nothing out.
    drop(pool.block(6 * HUGE).unwrap());
    assert_eq!(idle(pool), (2, 4));
    pool.set_limit(3 * HUGE);
    assert_eq!(idle(pool), (1, 3));
    pool.set_limit(0);
    drop(pool.block(HUGE).unwrap());
    assert_eq!(idle(pool), (0, 0));
}

#[test]
fn no_memory_is_no_block() {
    let pool = pool!(LIMIT);
    assert!(pool.block(usize::MAX).is_none());
    // Miri ends the program instead of refusing.
    if !cfg!(miri) {
        drop(pool.block(HUGE).unwrap());
        assert!(pool.block(isize::MAX as usize - 2 * HUGE).is_none());
        // What was idle was given back for the second try.
        assert_eq!((idle(pool), pool.stats().used_blocks), ((0, 0), 0));
    }
}

#[test]
fn many_threads_share_it() {
    let pool = pool!(6 * HUGE);
    thread::scope(|scope| {
        for seed in 0..4usize {
            scope.spawn(move || {
                for turn in 0..if cfg!(miri) { 3 } else { 2000 } {
                    let block = pool.block((1 + (turn * 7 + seed) % 4) * HUGE).unwrap();
                    // SAFETY: the block's first byte.
                    unsafe {
                        block.data().write(seed as u8);
                        assert_eq!(block.data().read(), seed as u8);
                    }
                }
            });
        }
    });
    assert!(pool.stats().idle_bytes <= 6 * HUGE);
    assert_eq!(pool.stats().used_blocks, 0);
    pool.evict_to(0);
}

#[test]
fn the_lock_of_a_thread_that_a_fork_left_behind_is_taken() {
    let pool = pool!(LIMIT);
    let block = pool.block(HUGE).unwrap();
    pool.holder.store(process::id() + 1, Ordering::Relaxed);
    drop(block);
    assert_eq!(idle(pool), (1, 1));
    assert_eq!(pool.evict_to(0), HUGE);
    // A thread of this process that never lets go is not waited for either.
    if !cfg!(miri) {
        pool.holder.store(process::id(), Ordering::Relaxed);
        drop(pool.block(HUGE).unwrap());
        assert_eq!(pool.evict_to(0), 0);
    }
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn the_child_of_a_fork_starts_without_idle_blocks() {
    let pool = pool!(LIMIT);
    let used = pool.block(HUGE).unwrap();
    drop(pool.block(2 * HUGE).unwrap());
    // SAFETY: the child runs only the pool, and leaves without cleaning up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inherited = pool.stats();
        let fresh = pool.block(2 * HUGE);
        let right = (inherited.idle_blocks, inherited.used_blocks) == (0, 1)
            && fresh.is_some()
            && pool.stats().hits == 0;
        drop(fresh);
        drop(used);
        let right = right && pool.stats().idle_blocks == 2 && pool.stats().used_blocks == 0;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    assert_eq!(idle(pool), (1, 2));
    drop(used);
    pool.evict_to(0);
}

#[test]
fn a_full_list_lets_the_oldest_go() {
    let pool = pool!(usize::MAX);
    let blocks: Vec<_> = (0..MOST + 2).map(|_| pool.block(HUGE).unwrap()).collect();
    let places: Vec<_> = blocks.iter().map(PoolBlock::data).collect();
    drop(blocks);
    assert_eq!(idle(pool).0, MOST);
    assert_eq!(pool.block(HUGE).unwrap().data(), places[MOST + 1]);
    pool.evict_to(0);
}

#[test]
fn sizes_are_read_as_people_write_them() {
    let right = [("0", 0), ("12", 12), (" 3K ", 3 << 10), ("5 m", 5 << 20), ("7b", 7), ("2G", 2 << 30)];
    let long = [("512MB", 512 << 20), ("2GiB", 2 << 30), ("1 TiB", 1 << 40), ("9kb", 9 << 10)];
    for (text, bytes) in right.into_iter().chain(long) {
        assert_eq!(parse_bytes(text), Some(bytes), "{text:?}");
    }
    let wrong =
        ["", "G", "-1", "1.5G", "1P", "1iB", "5 5", "0x10", "99999999999999999999", "18014398509481984K"];
    for text in wrong {
        assert_eq!(parse_bytes(text), None, "{text:?}");
    }
}

/// Counts the blocks that were unpinned, and refuses while told so.
static UNPINNED: AtomicUsize = AtomicUsize::new(0);
static REFUSES: AtomicUsize = AtomicUsize::new(0);

unsafe fn unpin(_: NonNull<u8>, bytes: usize) -> bool {
    UNPINNED.fetch_add(bytes / HUGE, Ordering::Relaxed);
    REFUSES.load(Ordering::Relaxed) == 0
}

#[test]
fn pinned_blocks_stay_pinned_and_are_unpinned_before_they_go() {
    let pool = pool!(4 * HUGE);
    assert!(pool.idle(HUGE, BlockUse::Pinned).is_none());
    let mut block = pool.block(3 * HUGE).unwrap();
    assert!(!block.is_pinned() && pool.may_pin(4 * HUGE));
    // SAFETY: nobody else knows the block.
    unsafe {
        block.pin(unpin, BlockUse::Pinned);
        block.pin(unpin, BlockUse::Pinned);
    }
    assert_eq!(
        (pool.stats().pinned_bytes, pool.may_pin(HUGE), pool.may_pin(2 * HUGE)),
        (3 * HUGE, true, false)
    );
    let place = block.data();
    drop(block);
    // Those who did not ask, or for something else, get another.
    assert!(
        pool.idle(3 * HUGE, BlockUse::Buffers).is_none() && pool.idle(3 * HUGE, BlockUse::Plain).is_none()
    );
    let plain = pool.block(3 * HUGE).unwrap();
    assert!(plain.data() != place && !plain.is_pinned());
    let block = pool.idle(3 * HUGE, BlockUse::Pinned).unwrap();
    assert!(block.data() == place && block.is_pinned());
    drop(block);
    assert_eq!(UNPINNED.load(Ordering::Relaxed), 0);
    assert_eq!(pool.evict_to(0), 3 * HUGE);
    assert_eq!((UNPINNED.load(Ordering::Relaxed), pool.stats().pinned_bytes), (3, 0));
    // What the driver does not let go stays where it is, and counts as pinned for good.
    REFUSES.store(1, Ordering::Relaxed);
    let mut block = pool.block(HUGE).unwrap();
    // SAFETY: as above.
    unsafe { block.pin(unpin, BlockUse::Pinned) };
    let place = block.data();
    drop(block);
    pool.evict_to(0);
    // SAFETY: still mapped, which is what this is about.
    unsafe { place.write(1) };
    assert_eq!(pool.stats().pinned_bytes, HUGE);
}

#[test]
fn memory_is_short_when_little_is_left() {
    assert!(is_short(Some(0), 1 << 30) && is_short(Some((1 << 26) - 1), 1 << 30));
    assert!(!is_short(Some(1 << 26), 1 << 30) && !is_short(None, 1 << 30) && !is_short(Some(0), 0));
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn the_system_says_how_much_is_left() {
    let (available, physical) = (pages::available_memory().unwrap(), pages::physical_memory());
    assert!(available <= physical && physical > 0);
}
