//! Another cache of idle memory that shares the limit of the pool.
//!
//! Shared memory for other processes has descriptors and its own rules for reuse, so the crate that owns it keeps its idle
//! arenas itself. Both caches together stay within one limit: the memory that became idle last stays, and the other cache
//! makes room for it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How much memory is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTotals {
    /// Bytes of idle blocks.
    pub bytes: usize,
    /// The number of idle blocks.
    pub blocks: usize,
}

/// A cache of idle memory outside of the pool.
///
/// The pool calls these functions on any thread that frees or allocates a block, so they must not wait for a lock that such
/// a thread may hold.
#[derive(Debug)]
pub struct OtherCache {
    /// What is idle. It takes no lock.
    pub idle: fn() -> IdleTotals,
    /// Releases the least recently used memory until at most this many bytes are idle, and returns the bytes released. It
    /// releases nothing if it would have to wait for a lock.
    pub evict_to: fn(usize) -> usize,
}

/// The registered cache.
///
/// An atomic pointer and not a `OnceLock`, which a fork could copy while another thread sets it.
#[derive(Debug)]
pub(super) struct OtherCacheSlot(AtomicPtr<OtherCache>);

impl OtherCacheSlot {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(super) fn set(&self, cache: &'static OtherCache) {
        self.0.store(ptr::from_ref(cache).cast_mut(), Ordering::Release);
    }

    fn get(&self) -> Option<&'static OtherCache> {
        // SAFETY: `as_ref` requires null or a valid reference. `set` alone stores the pointer, and takes it from a
        // `&'static OtherCache`; nothing writes through it.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub(super) fn idle(&self) -> IdleTotals {
        self.get().map(|cache| (cache.idle)()).unwrap_or_default()
    }

    /// Releases memory of the cache until at most `limit` bytes are idle there; returns the bytes released.
    pub(super) fn evict_to(&self, limit: usize) -> usize {
        match self.get() {
            Some(cache) if (cache.idle)().bytes > limit => (cache.evict_to)(limit),
            _ => 0,
        }
    }
}
