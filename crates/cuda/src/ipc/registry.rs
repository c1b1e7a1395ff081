//! Which memory of this process others have or could have, by name and by address. It holds nothing alive.
//!
//! Whoever holds the lock drops no arena: that takes the lock too.

use super::arena::{ArenaId, GpuArena, Name};
use crate::driver::Driver;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tensorferry_core::Access;

/// How many there are of something.
pub(crate) struct Counter(AtomicUsize);

pub(crate) static MADE: Counter = Counter(AtomicUsize::new(0));
pub(crate) static EXPORTS: Counter = Counter(AtomicUsize::new(0));
pub(crate) static IMPORTS: Counter = Counter(AtomicUsize::new(0));
pub(crate) static EVENTS: Counter = Counter(AtomicUsize::new(0));

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What this process has to do with GPU memory of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuArenaCounts {
    /// Allocations of ours that can be exported.
    pub made: usize,
    /// Memory of frameworks that is kept for others.
    pub exports: usize,
    /// Allocations of other processes that are open here.
    pub imports: usize,
    /// Events for others, and of others.
    pub events: usize,
}

/// Counts it. No driver is needed, nor loaded.
pub fn counts() -> GpuArenaCounts {
    GpuArenaCounts { made: MADE.get(), exports: EXPORTS.get(), imports: IMPORTS.get(), events: EVENTS.get() }
}

#[derive(Default)]
struct Registry {
    /// By name, and whether it may be written: several where a framework's memory was exported several times.
    named: HashMap<ArenaId, Vec<(bool, Weak<GpuArena>)>>,
    /// By the first address, with the end: what we made and what we opened.
    places: BTreeMap<usize, (usize, Weak<GpuArena>)>,
    /// Names of frameworks' allocations: by the driver's number of it, its first address and its size.
    exported: HashMap<(u64, u64, usize), Weak<Name>>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn known(&self, id: &ArenaId, access: Access) -> Option<Arc<GpuArena>> {
        let wanted = access == Access::ReadWrite;
        self.named
            .get(id)?
            .iter()
            .filter(|(writable, _)| *writable == wanted)
            .find_map(|(_, one)| one.upgrade())
    }
}

/// Lets one thread at a time open or close memory of other processes, until the guard goes: drivers give two who open one
/// allocation the same address, and close it for both.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that this process has by that name, to be used so.
pub(crate) fn known(id: &ArenaId, access: Access) -> Option<Arc<GpuArena>> {
    lock().as_ref()?.known(id, access)
}

/// Enters memory. Of what another process made, that which another thread was quicker to open is given instead.
pub(crate) fn keep(arena: Arc<GpuArena>) -> Arc<GpuArena> {
    let mut guard = lock();
    let registry = guard.get_or_insert_default();
    if arena.foreign
        && let Some(known) = registry.known(arena.id(), arena.access())
    {
        drop(guard);
        return known;
    }
    let list = registry.named.entry(*arena.id()).or_default();
    list.push((arena.access() == Access::ReadWrite, Arc::downgrade(&arena)));
    if !matches!(arena.hold, super::arena::Hold::Kept(_)) {
        let start = arena.address as usize;
        registry.places.insert(start, (start + arena.bytes, Arc::downgrade(&arena)));
    }
    drop(guard);
    arena
}

/// Strikes out memory that is about to go.
pub(crate) fn forget(arena: &GpuArena) {
    let mut guard = lock();
    let Some(registry) = guard.as_mut() else { return };
    let is_it = |weak: &Weak<GpuArena>| std::ptr::eq(weak.as_ptr(), arena);
    if let Some(list) = registry.named.get_mut(arena.id()) {
        list.retain(|(_, one)| !is_it(one));
        if list.is_empty() {
            registry.named.remove(arena.id());
        }
    }
    let start = arena.address as usize;
    if registry.places.get(&start).is_some_and(|(_, one)| is_it(one)) {
        registry.places.remove(&start);
    }
}

/// The memory of ours, or of another process, in which that address lies, and how far from its beginning; `None` where it
/// is a framework's.
pub fn find(address: *const u8, bytes: usize) -> Option<(Arc<GpuArena>, usize)> {
    let counts = counts();
    if counts.made + counts.imports == 0 || Driver::get().is_err() {
        return None;
    }
    let start = address as usize;
    let guard = lock();
    let (&first, (end, arena)) = guard.as_ref()?.places.range(..=start).next_back()?;
    if start >= *end || start.checked_add(bytes)? > *end {
        return None;
    }
    Some((arena.upgrade()?, start - first))
}

/// The name that a framework's allocation has, or the one that it is given now.
pub(crate) fn name(
    key: (u64, u64, usize),
    make: impl FnOnce() -> tensorferry_core::Result<Name>,
) -> tensorferry_core::Result<Arc<Name>> {
    if let Some(known) = lock().as_ref().and_then(|registry| registry.exported.get(&key)?.upgrade()) {
        return Ok(known);
    }
    let made = Arc::new(make()?);
    let mut guard = lock();
    let exported = &mut guard.get_or_insert_default().exported;
    if let Some(known) = exported.get(&key).and_then(Weak::upgrade) {
        return Ok(known);
    }
    exported.retain(|_, name| name.strong_count() > 0);
    exported.insert(key, Arc::downgrade(&made));
    Ok(made)
}
