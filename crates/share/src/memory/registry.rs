//! Which shared memory this process has mapped, and the locks that live through forks.
//!
//! The registry answers whether an address lies in shared memory, so that publishing it copies nothing, also when it came
//! from somebody else. It holds no memory alive itself.
//!
//! # Locks and forks
//!
//! A child of `fork()` has only the thread that forked; a lock that another thread held stays locked in it for good. So
//! the thread that forks takes both locks of this crate first (server, then registry) and lets go of them on both sides
//! afterwards: the child finds everything whole. Whoever holds the registry's lock takes no other and drops no arena.

use crate::memory::arena::Arena;
use crate::memory::arena_block::Allocator;
use crate::producer::server;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::Access;
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::{ArenaId, GpuArena};

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    places: BTreeMap::new(),
    files: BTreeMap::new(),
    of_gpus: BTreeMap::new(),
    strike_gpus_at: FEW,
    allocator: Allocator::new(),
});
static FORKS: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);
static HELD: Held = Held(UnsafeCell::new(None));
static LEASES: AtomicUsize = AtomicUsize::new(0);

/// A connection to a producer, which holds memory for us until this is dropped.
///
/// A child of `fork()` has it too: the producer then holds the memory until both have let go, or are gone.
///
/// Where it holds memory of GPUs, all that this process has queued there is waited for first: the producer may lay
/// something else over that memory at once, also where this process still has its allocation mapped for another tensor.
#[derive(Debug)]
pub struct Lease {
    gpus: Vec<&'static Gpu>,
    connection: Option<OwnedFd>,
}

impl Lease {
    pub(crate) fn new(connection: OwnedFd, gpus: Vec<&'static Gpu>) -> Arc<Self> {
        LEASES.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { gpus, connection: Some(connection) })
    }

    /// Whether the producer has ended, or closed the connection.
    pub(crate) fn is_torn(&self) -> bool {
        let Some(connection) = &self.connection else { return true };
        let mut poll = libc::pollfd { fd: connection.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one struct, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    /// How many this process holds.
    pub(crate) fn count() -> usize {
        LEASES.load(Ordering::Relaxed)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        LEASES.fetch_sub(1, Ordering::Relaxed);
        // A dead producer lays nothing over it.
        if !self.gpus.is_empty() && !self.is_torn() && !self.gpus.iter().all(|gpu| gpu.settle()) {
            // Somebody may still use the memory: it stays held until this process ends.
            std::mem::forget(self.connection.take());
        }
    }
}

struct Place {
    end: usize,
    arena: Weak<Arena>,
    /// What holds the memory for us, where it is another process's.
    leases: Leases,
}

/// Leases on one memory. Those that are over are struck out when as many have come as there were, so that one more costs
/// the same however many there are.
struct Leases {
    held: Vec<Weak<Lease>>,
    strike_at: usize,
}

impl Leases {
    const fn new() -> Self {
        Self { held: Vec::new(), strike_at: FEW }
    }

    fn add(&mut self, lease: &Arc<Lease>) {
        if self.held.len() >= self.strike_at {
            self.strike();
        }
        self.held.push(Arc::downgrade(lease));
    }

    fn strike(&mut self) {
        self.held.retain(|held| held.strong_count() > 0);
        self.strike_at = FEW.max(2 * self.held.len());
    }

    fn all(&self) -> Vec<Arc<Lease>> {
        self.held.iter().filter_map(Weak::upgrade).collect()
    }
}

/// So many are looked through at any time.
const FEW: usize = 16;

pub(crate) struct Registry {
    /// By the first address.
    places: BTreeMap<usize, Place>,
    /// The first address, by file and whether it may be written.
    files: BTreeMap<((u64, u64), bool), usize>,
    /// What holds memory of GPUs for us, where it is another process's.
    of_gpus: BTreeMap<ArenaId, Leases>,
    /// How many of those there are before they are looked through.
    strike_gpus_at: usize,
    pub(crate) allocator: Allocator,
}

impl Registry {
    fn known(&self, key: (u64, u64), access: Access) -> Option<Arc<Arena>> {
        let address = self.files.get(&(key, access == Access::ReadWrite))?;
        self.places.get(address)?.arena.upgrade()
    }
}

pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a mapping, or finds that another thread was quicker and gives that one's.
pub(crate) fn keep(arena: Arc<Arena>) -> Arc<Arena> {
    watch_forks();
    let mut registry = lock();
    if let Some(known) = registry.known(arena.key(), arena.access()) {
        drop(registry);
        return known;
    }
    let start = arena.data() as usize;
    let place = Place { end: start + arena.bytes(), arena: Arc::downgrade(&arena), leases: Leases::new() };
    registry.files.insert((arena.key(), arena.access() == Access::ReadWrite), start);
    registry.places.insert(start, place);
    drop(registry);
    arena
}

/// Strikes out a mapping that is about to end.
pub(crate) fn forget(arena: &Arena) {
    let mut registry = lock();
    let start = arena.data() as usize;
    // One that another thread was quicker with was never entered.
    if registry.places.get(&start).is_some_and(|place| ptr_is(&place.arena, arena)) {
        registry.places.remove(&start);
    }
    let file = (arena.key(), arena.access() == Access::ReadWrite);
    if registry.files.get(&file) == Some(&start) {
        registry.files.remove(&file);
    }
}

fn ptr_is(weak: &Weak<Arena>, arena: &Arena) -> bool {
    std::ptr::eq(weak.as_ptr(), arena)
}

/// The mapping of a file, if there is one.
pub(crate) fn known(key: (u64, u64), access: Access) -> Option<Arc<Arena>> {
    lock().known(key, access)
}

/// The arena in which that memory lies, and how far from its beginning; `None` where it is ordinary memory.
pub fn find(address: *const u8, bytes: usize) -> Option<(Arc<Arena>, usize)> {
    let start = address as usize;
    let registry = lock();
    let (&first, place) = registry.places.range(..=start).next_back()?;
    if start.checked_add(bytes)? > place.end || start >= place.end {
        return None;
    }
    Some((place.arena.upgrade()?, start - first))
}

/// Notes that a lease holds an arena's memory for us.
pub(crate) fn hold(arena: &Arena, lease: &Arc<Lease>) {
    let mut registry = lock();
    if let Some(place) = registry.places.get_mut(&(arena.data() as usize)) {
        place.leases.add(lease);
    }
}

/// All that hold an arena's memory for us: who hands it on must keep them.
pub(crate) fn leases_of(arena: &Arena) -> Vec<Arc<Lease>> {
    let registry = lock();
    let place = registry.places.get(&(arena.data() as usize));
    place.map(|place| place.leases.all()).unwrap_or_default()
}

/// The same for memory of a GPU.
pub(crate) fn hold_gpu(arena: &GpuArena, lease: &Arc<Lease>) {
    let mut registry = lock();
    if registry.of_gpus.len() >= registry.strike_gpus_at {
        registry.of_gpus.retain(|_, leases| {
            leases.strike();
            !leases.held.is_empty()
        });
        registry.strike_gpus_at = FEW.max(2 * registry.of_gpus.len());
    }
    registry.of_gpus.entry(*arena.id()).or_insert_with(Leases::new).add(lease);
}

/// The same for memory of a GPU.
pub(crate) fn leases_of_gpu(arena: &GpuArena) -> Vec<Arc<Lease>> {
    let registry = lock();
    registry.of_gpus.get(arena.id()).map(Leases::all).unwrap_or_default()
}

/// Bytes of shared memory that are mapped, used or not.
pub(crate) fn bytes() -> usize {
    lock().places.iter().map(|(start, place)| place.end - start).sum()
}

/// How many arenas are mapped.
pub(crate) fn count() -> usize {
    lock().places.len()
}

/// How often this process or those it came from have forked since the first arena.
pub(crate) fn forks() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Both locks, from just before a fork to just after it.
struct Held(UnsafeCell<Option<(server::Guard, MutexGuard<'static, Registry>)>>);

// SAFETY: only the thread that has just taken both locks touches it, and it lets go of them after it has.
unsafe impl Sync for Held {}

/// Has the system call us at forks. (A thread that forks between these two lines, while another makes the very first
/// arena of the process, is not noticed.)
pub(crate) fn watch_forks() {
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: the functions live as long as the program, and are made for this.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    }
}

extern "C" fn before() {
    let guards = (server::lock(), lock());
    // SAFETY: this thread has both locks.
    unsafe { *HELD.0.get() = Some(guards) };
}

extern "C" fn after_in_parent() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: this thread has both locks, since `before`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_in_child() {
    // What is let go below may be memory of a GPU.
    tensorferry_cuda::driver::after_fork();
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above; the only thread here is the copy of the one that took them.
    let Some((mut server, mut registry)) = (unsafe { (*HELD.0.get()).take() }) else { return };
    let current = registry.allocator.leave();
    let abandoned = server.abandon();
    drop(registry);
    drop(server);
    // Only now: dropping arenas takes the registry's lock.
    drop((current, abandoned));
}
