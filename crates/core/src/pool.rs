//! Large host blocks, kept for the next tensor of about the same size.
//!
//! # What it promises
//!
//! Fresh memory is slow: the system clears every page when it is first touched, which costs more than the copy
//! that follows. A large block that is dropped therefore stays mapped, as long as all idle blocks together
//! keep within a limit, and the next request of about its size gets it, not cleared. Beyond the limit, what
//! was used least recently is given back to the system first.
//!
//! The limit is an eighth of the memory that the machine has, or that its container may use; or what
//! [`set_limit`] said last. When the system refuses memory for a block of ours, idle ones are given back before anybody
//! hears of it. (What others allocate is not seen here; that is what the limit is for.)
//!
//! # How
//!
//! Blocks are mapped in whole huge pages ([`HUGE`]), where the system has them: they are cleared at twice the
//! speed of small ones. The list of idle blocks has a lock that is held for some instructions, never while
//! the system maps memory. It must not hang the child of a `fork()`, whose parent's thread may have held it at
//! that moment. So it says which process holds it: a child that finds the lock of another process takes it,
//! and forgets the list, which may be half changed. If nobody held it, the child gives the blocks that it
//! inherited back, since its first write to each page would copy what nobody needs. A block that was in the
//! hands of a thread that is not in the child counts as used there for good, which is the truth.
//!
//! # What it knowingly rejects
//!
//! - Small blocks: the allocator keeps those well enough, and a huge page for 1 MiB is cleared in vain.
//! - Handlers at fork (`pthread_atfork`): registering them exactly once needs a lock that lives through forks.
//! - Blocks that are much larger than the request: they would be missing where they are needed.

mod pages;

use std::cell::UnsafeCell;
use std::process;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// Bytes of a huge page; every block starts at one and is some of them long.
const HUGE: usize = 2 << 20;
/// The most idle blocks: looking through them stays quicker than mapping a new one.
const MOST: usize = 256;
/// How often the lock is tried before going without the pool: far longer than anybody holds it.
const TRIES: usize = 10_000;
/// A limit that nobody has set or looked up.
const UNKNOWN: usize = usize::MAX;

/// What the pool holds, and how it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Bytes that are kept and not in use.
    pub idle_bytes: usize,
    /// Blocks that are kept and not in use.
    pub idle_blocks: usize,
    /// Bytes of large blocks that are in use.
    pub used_bytes: usize,
    /// Large blocks that are in use.
    pub used_blocks: usize,
    /// The most idle bytes that are kept.
    pub limit: usize,
    /// Requests that an idle block served.
    pub hits: usize,
    /// Requests that needed memory from the system.
    pub misses: usize,
}

/// What the pool holds now.
///
/// Each number is right at some moment; while other threads allocate, not all of them at the same one.
pub fn memory() -> Memory {
    POOL.memory()
}

/// Gives all idle blocks back to the system; how many bytes those were.
pub fn trim() -> usize {
    POOL.evict_to(0)
}

/// Keeps at most so many idle bytes from now on, and gives back what is over; zero keeps none.
pub fn set_limit(bytes: usize) {
    POOL.set_limit(bytes);
}

/// The process's pool.
static POOL: Pool = Pool::new();

/// A block of whole huge pages, not initialised, that returns to the pool.
#[derive(Debug)]
pub(crate) struct Block {
    pool: &'static Pool,
    memory: Mapped,
}

impl Block {
    /// A block of at least so many bytes; `None` if the system has no such memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        POOL.block(bytes)
    }

    /// Where the block starts.
    pub(crate) fn data(&self) -> NonNull<u8> {
        self.memory.data
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.keep(Mapped { ..self.memory });
    }
}

/// Memory from the system. Whoever has it last unmaps it.
#[derive(Debug)]
struct Mapped {
    data: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn unmap(self) {
        // SAFETY: mapped with this size, and given up by whoever had it: values are moved, never copied, but
        // in the drop of a block, which ends there.
        unsafe { pages::unmap(self.data, self.bytes) }
    }
}

// SAFETY: plain memory with one owner; the system unmaps it from any thread.
unsafe impl Send for Mapped {}
// SAFETY: a shared reference gives an address and a size away, no more.
unsafe impl Sync for Mapped {}

/// Idle blocks behind a lock, and numbers beside it.
#[derive(Debug)]
struct Pool {
    /// The process of which a thread holds the lock; zero if nobody does.
    holder: AtomicU32,
    list: UnsafeCell<List>,
    limit: AtomicUsize,
    idle_bytes: AtomicUsize,
    idle_blocks: AtomicUsize,
    used_bytes: AtomicUsize,
    used_blocks: AtomicUsize,
    hits: AtomicUsize,
    misses: AtomicUsize,
}

// SAFETY: the list is reached through the lock alone.
unsafe impl Sync for Pool {}

/// The idle blocks, least recently used first, and the process whose they are.
#[derive(Debug)]
struct List {
    process: u32,
    blocks: Vec<Mapped>,
}

impl Pool {
    const fn new() -> Self {
        Self {
            holder: AtomicU32::new(0),
            list: UnsafeCell::new(List { process: 0, blocks: Vec::new() }),
            limit: AtomicUsize::new(UNKNOWN),
            idle_bytes: AtomicUsize::new(0),
            idle_blocks: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            used_blocks: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
            misses: AtomicUsize::new(0),
        }
    }

    fn block(&'static self, bytes: usize) -> Option<Block> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE)?;
        let recycled = self.lock().and_then(|mut held| held.take(bytes));
        let count = if recycled.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        let memory = match recycled {
            Some(memory) => memory,
            None => {
                let map = || pages::map(bytes).map(|data| Mapped { data, bytes });
                map().or_else(|| if self.evict_to(0) > 0 { map() } else { None })?
            }
        };
        self.used_bytes.fetch_add(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_add(1, Ordering::Relaxed);
        Some(Block { pool: self, memory })
    }

    /// Keeps a block that is used no more, or gives it back to the system.
    fn keep(&'static self, memory: Mapped) {
        self.used_bytes.fetch_sub(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_sub(1, Ordering::Relaxed);
        let limit = self.limit();
        if memory.bytes > limit {
            return memory.unmap();
        }
        let refused = match self.lock() {
            Some(mut held) => held.put(memory),
            None => Some(memory),
        };
        if let Some(memory) = refused {
            memory.unmap();
        }
        self.evict_to(limit);
    }

    /// Gives the least recently used blocks back until so many bytes are left; how many were given back.
    fn evict_to(&'static self, limit: usize) -> usize {
        let mut freed = 0;
        // One at a time, because the system takes its time and others may want the lock.
        while let Some(memory) = self.lock().and_then(|mut held| held.oldest_over(limit)) {
            freed += memory.bytes;
            memory.unmap();
        }
        freed
    }

    fn limit(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != UNKNOWN {
            return limit;
        }
        let limit = pages::physical_memory() / 8;
        // Unless somebody has said something meanwhile.
        let set = self.limit.compare_exchange(UNKNOWN, limit, Ordering::Relaxed, Ordering::Relaxed);
        set.err().unwrap_or(limit)
    }

    fn set_limit(&'static self, bytes: usize) {
        self.limit.store(bytes.min(UNKNOWN - 1), Ordering::Relaxed);
        self.evict_to(bytes);
    }

    fn memory(&'static self) -> Memory {
        // The child of a fork counts its own idle blocks, not its parent's.
        drop(self.lock());
        let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        Memory {
            idle_bytes: read(&self.idle_bytes),
            idle_blocks: read(&self.idle_blocks),
            used_bytes: read(&self.used_bytes),
            used_blocks: read(&self.used_blocks),
            limit: self.limit(),
            hits: read(&self.hits),
            misses: read(&self.misses),
        }
    }

    /// Takes the lock. `None` after trying for long: the caller then does without the pool, which is slower
    /// and never wrong.
    fn lock(&'static self) -> Option<Held> {
        let process = process::id();
        let mut held = None;
        for _ in 0..TRIES {
            match self.holder.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    held = Some(Held { pool: self });
                    break;
                }
                Err(holder) if holder != process => {
                    let stolen =
                        self.holder.compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed);
                    if stolen.is_ok() {
                        let held = Held { pool: self };
                        // SAFETY: the lock is ours, and the thread that held it is not in this process. What
                        // it was changing is not looked at, only written over.
                        unsafe { ptr::write(self.list.get(), List { process, blocks: Vec::new() }) };
                        return Some(held);
                    }
                }
                Err(_) => thread::yield_now(),
            }
        }
        let mut held = held?;
        let list = held.list();
        if list.process != process {
            list.process = process;
            let inherited = std::mem::take(&mut list.blocks);
            drop(held);
            inherited.into_iter().for_each(Mapped::unmap);
            return self.lock();
        }
        Some(held)
    }
}

/// The lock of a pool, taken.
struct Held {
    pool: &'static Pool,
}

impl Held {
    fn list(&mut self) -> &mut List {
        // SAFETY: there is one `Held` at a time, and it is borrowed for as long as the list.
        unsafe { &mut *self.pool.list.get() }
    }

    /// The smallest idle block that is large enough and wastes at most a quarter; of several the one that was
    /// used last, which is the likeliest to be in a cache.
    fn take(&mut self, bytes: usize) -> Option<Mapped> {
        let blocks = &mut self.list().blocks;
        let fits = |memory: &Mapped| memory.bytes >= bytes && memory.bytes - bytes <= bytes / 4;
        let candidates = blocks.iter().enumerate().rev().filter(|(_, memory)| fits(memory));
        let (index, _) = candidates.min_by_key(|(_, memory)| memory.bytes)?;
        Some(blocks.remove(index))
    }

    /// Adds a block as the one used last. Back comes what there is no room for in the list: the one that was used
    /// least recently.
    fn put(&mut self, memory: Mapped) -> Option<Mapped> {
        let blocks = &mut self.list().blocks;
        if blocks.try_reserve(1).is_err() {
            return Some(memory);
        }
        let oldest = (blocks.len() >= MOST).then(|| blocks.remove(0));
        blocks.push(memory);
        oldest
    }

    /// The block that was used least recently, if there are more than so many bytes.
    fn oldest_over(&mut self, limit: usize) -> Option<Mapped> {
        let blocks = &mut self.list().blocks;
        let bytes: usize = blocks.iter().map(|memory| memory.bytes).sum();
        (bytes > limit).then(|| blocks.remove(0))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let pool = self.pool;
        let blocks = &self.list().blocks;
        let bytes = blocks.iter().map(|memory| memory.bytes).sum();
        pool.idle_bytes.store(bytes, Ordering::Relaxed);
        pool.idle_blocks.store(blocks.len(), Ordering::Relaxed);
        pool.holder.store(0, Ordering::Release);
    }
}

/// A number of bytes as people write it: digits, then perhaps K, M, G or T, and B or iB after those.
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.trim_end().parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
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
        let memory = pool.memory();
        (memory.idle_blocks, memory.idle_bytes / HUGE)
    }

    #[test]
    fn a_dropped_block_comes_back() {
        let pool = pool!(LIMIT);
        let block = pool.block(3 * HUGE - 5).unwrap();
        let place = block.data();
        assert_eq!(place.as_ptr() as usize % HUGE, 0);
        assert_eq!((pool.memory().used_blocks, pool.memory().used_bytes), (1, 3 * HUGE));
        // SAFETY: the last byte that was asked for.
        unsafe { place.add(3 * HUGE - 6).write(7) };
        drop(block);
        assert_eq!(idle(pool), (1, 3));
        let block = pool.block(2 * HUGE + HUGE / 2).unwrap();
        assert_eq!(block.data(), place);
        assert_eq!((pool.memory().hits, pool.memory().misses), (1, 1));
        assert_eq!(idle(pool), (0, 0));
        drop(block);
        assert_eq!(pool.evict_to(0), 3 * HUGE);
        assert_eq!((idle(pool), pool.memory().used_blocks, pool.memory().used_bytes), ((0, 0), 0, 0));
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
            assert_eq!((idle(pool), pool.memory().used_blocks), ((0, 0), 0));
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
        assert!(pool.memory().idle_bytes <= 6 * HUGE);
        assert_eq!(pool.memory().used_blocks, 0);
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
            let inherited = pool.memory();
            let fresh = pool.block(2 * HUGE);
            let right = (inherited.idle_blocks, inherited.used_blocks) == (0, 1)
                && fresh.is_some()
                && pool.memory().hits == 0;
            drop(fresh);
            drop(used);
            let right = right && pool.memory().idle_blocks == 2 && pool.memory().used_blocks == 0;
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
        let places: Vec<_> = blocks.iter().map(Block::data).collect();
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
}
