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
//! hears of it. When a very large block comes back while the machine, or the container, is short of memory, it and all idle
//! ones are given back instead of kept.
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
//! # Pinned blocks
//!
//! A block that a device driver was told of ([`PoolBlock::pin`]) is written and read by the device at the full speed of the link. It
//! stays pinned while it is idle, since telling the driver costs about as much as the transfer. Only those who ask for one get
//! one. Results and buffers have each their own: a result that went may still be on its way somewhere, as pinned memory that
//! somebody copies from without waiting, while a buffer is filled at once. Pinned blocks count as any others, and results among
//! them, used or idle, are pinned only while all that is pinned keeps within the limit ([`may_pin`]), because the system can
//! neither move nor swap it.
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
/// Bytes of a block that is worth asking the system how much memory is left.
const VERY_LARGE: usize = 64 << 20;
/// A limit that nobody has set or looked up.
const UNKNOWN: usize = usize::MAX;

/// What the pool holds, and how it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes that are kept and not in use.
    pub idle_bytes: usize,
    /// Blocks that are kept and not in use.
    pub idle_blocks: usize,
    /// Bytes of large blocks that are in use.
    pub used_bytes: usize,
    /// Large blocks that are in use.
    pub used_blocks: usize,
    /// Bytes of large blocks that are pinned, whether in use or not.
    pub pinned_bytes: usize,
    /// The most idle bytes that are kept, and the most that are pinned.
    pub limit: usize,
    /// Requests that an idle block served.
    pub hits: usize,
    /// Requests that needed memory from the system.
    pub misses: usize,
}

/// What the pool holds now.
///
/// Each number is right at some moment; while other threads allocate, not all of them at the same one.
pub fn stats() -> PoolStats {
    POOL.stats()
}

/// Gives all idle blocks back to the system; how many bytes those were.
pub fn release_idle() -> usize {
    POOL.evict_to(0)
}

/// Keeps at most so many idle bytes from now on, and gives back what is over; zero keeps none.
pub fn set_limit(bytes: usize) {
    POOL.set_limit(bytes);
}

/// Whether a block of at least so many bytes lies idle for a use.
pub fn has_idle(bytes: usize, of: BlockUse) -> bool {
    POOL.lock().is_some_and(|mut held| held.find(bytes, of).is_some())
}

/// Whether so many bytes more may be pinned.
pub fn may_pin(bytes: usize) -> bool {
    POOL.may_pin(bytes)
}

/// How long it takes to touch so many bytes that the system has just given out; `None` where it gives none.
pub(crate) fn touching(bytes: usize) -> Option<std::time::Duration> {
    let bytes = bytes.next_multiple_of(HUGE);
    let data = pages::map(bytes)?;
    let begin = std::time::Instant::now();
    // SAFETY: memory of so many bytes, which is nobody else's, and is given back once.
    unsafe {
        data.as_ptr().write_bytes(1, bytes);
        let took = begin.elapsed();
        pages::unmap(data, bytes);
        Some(took)
    }
}

/// What a block is for while it lies idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUse {
    /// Anything on the host.
    Plain,
    /// Results that a device writes by itself.
    Pinned,
    /// Buffers of transfers, which nobody else ever sees.
    Buffers,
}

/// Tells a device driver that memory is about to go; whether it may. Called with the start and the size of a block.
pub type Unpin = unsafe fn(NonNull<u8>, usize) -> bool;

/// The process's pool.
static POOL: Pool = Pool::new();

/// A block of whole huge pages, not initialised, that returns to the pool.
#[derive(Debug)]
pub struct PoolBlock {
    pool: &'static Pool,
    memory: Mapped,
}

impl PoolBlock {
    /// A block of at least so many bytes; `None` if the system has no such memory.
    pub fn new(bytes: usize) -> Option<Self> {
        POOL.block(bytes)
    }

    /// An idle block of at least so many bytes for a use, if there is one.
    pub fn idle(bytes: usize, of: BlockUse) -> Option<Self> {
        POOL.idle(bytes, of)
    }

    /// Where the block starts.
    pub fn data(&self) -> NonNull<u8> {
        self.memory.data
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Whether a device driver knows it.
    pub fn is_pinned(&self) -> bool {
        self.memory.pin.is_some()
    }

    /// Notes that a device driver was told of the block, and what it is for from now on.
    ///
    /// # Safety
    /// `unpin` undoes that, from any thread, and once it has said that the memory may go, nobody but us knows it.
    pub unsafe fn pin(&mut self, unpin: Unpin, of: BlockUse) {
        if self.memory.pin.replace((unpin, of)).is_none() {
            self.pool.pinned_bytes.fetch_add(self.memory.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for PoolBlock {
    fn drop(&mut self) {
        self.pool.keep(Mapped { ..self.memory });
    }
}

/// Memory from the system. Whoever has it last unmaps it.
#[derive(Debug)]
struct Mapped {
    data: NonNull<u8>,
    bytes: usize,
    /// What has to be done before it goes, and what it is for.
    pin: Option<(Unpin, BlockUse)>,
}

impl Mapped {
    fn of(&self) -> BlockUse {
        self.pin.map_or(BlockUse::Plain, |(_, of)| of)
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
    pinned_bytes: AtomicUsize,
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
            pinned_bytes: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
            misses: AtomicUsize::new(0),
        }
    }

    fn block(&'static self, bytes: usize) -> Option<PoolBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE)?;
        let recycled = self.lock().and_then(|mut held| held.take(bytes, BlockUse::Plain));
        let count = if recycled.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        let memory = match recycled {
            Some(memory) => memory,
            None => {
                let map = || pages::map(bytes).map(|data| Mapped { data, bytes, pin: None });
                map().or_else(|| if self.evict_to(0) > 0 { map() } else { None })?
            }
        };
        Some(self.used(memory))
    }

    fn idle(&'static self, bytes: usize, of: BlockUse) -> Option<PoolBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE)?;
        let memory = self.lock().and_then(|mut held| held.take(bytes, of))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(self.used(memory))
    }

    fn used(&'static self, memory: Mapped) -> PoolBlock {
        self.used_bytes.fetch_add(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_add(1, Ordering::Relaxed);
        PoolBlock { pool: self, memory }
    }

    fn may_pin(&'static self, bytes: usize) -> bool {
        self.pinned_bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit()
    }

    /// Gives a block back to the system.
    fn unmap(&self, memory: Mapped) {
        let Mapped { data, bytes, pin } = memory;
        if let Some((unpin, _)) = pin {
            // SAFETY: whoever pinned the block named this function for it, and nobody uses it any more.
            if !unsafe { unpin(data, bytes) } {
                // A driver that still writes to the memory must not write to somebody else's.
                return;
            }
            self.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        // SAFETY: mapped with this size, and given up by whoever had it: values are moved, never copied, but
        // in the drop of a block, which ends there.
        unsafe { pages::unmap(data, bytes) }
    }

    /// Keeps a block that is used no more, or gives it back to the system.
    fn keep(&'static self, memory: Mapped) {
        self.used_bytes.fetch_sub(memory.bytes, Ordering::Relaxed);
        self.used_blocks.fetch_sub(1, Ordering::Relaxed);
        // The system takes some microseconds to say how much memory there is, and milliseconds to clear a large block.
        let asks = memory.bytes >= VERY_LARGE;
        let short = asks && is_short(pages::available_memory(), pages::physical_memory());
        let limit = if short { 0 } else { self.limit() };
        if memory.bytes > limit {
            return self.unmap(memory);
        }
        let refused = match self.lock() {
            Some(mut held) => held.put(memory),
            None => Some(memory),
        };
        if let Some(memory) = refused {
            self.unmap(memory);
        }
        self.evict_to(limit);
    }

    /// Gives the least recently used blocks back until so many bytes are left; how many were given back.
    fn evict_to(&'static self, limit: usize) -> usize {
        let mut freed = 0;
        // One at a time, because the system takes its time and others may want the lock.
        while let Some(memory) = self.lock().and_then(|mut held| held.oldest_over(limit)) {
            freed += memory.bytes;
            self.unmap(memory);
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

    fn stats(&'static self) -> PoolStats {
        // The child of a fork counts its own idle blocks, not its parent's.
        drop(self.lock());
        let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        PoolStats {
            idle_bytes: read(&self.idle_bytes),
            idle_blocks: read(&self.idle_blocks),
            used_bytes: read(&self.used_bytes),
            used_blocks: read(&self.used_blocks),
            pinned_bytes: read(&self.pinned_bytes),
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
            inherited.into_iter().for_each(|memory| self.unmap(memory));
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
    fn take(&mut self, bytes: usize, of: BlockUse) -> Option<Mapped> {
        let index = self.find(bytes, of)?;
        Some(self.list().blocks.remove(index))
    }

    fn find(&mut self, bytes: usize, of: BlockUse) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE)?;
        let blocks = &mut self.list().blocks;
        let fits =
            |memory: &Mapped| memory.of() == of && memory.bytes >= bytes && memory.bytes - bytes <= bytes / 4;
        let candidates = blocks.iter().enumerate().rev().filter(|(_, memory)| fits(memory));
        candidates.min_by_key(|(_, memory)| memory.bytes).map(|(index, _)| index)
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

/// Whether so little memory is left that none should lie idle: less than a sixteenth.
fn is_short(available: Option<usize>, physical: usize) -> bool {
    available.is_some_and(|available| available < physical / 16)
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
mod tests;
