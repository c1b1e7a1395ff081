//! A registry of arenas, by id and by address. It keeps none of them alive.
//!
//! It is generic so that arenas can use it: an arena removes itself when it is dropped.

use super::identity::ArenaId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Weak};
use tensorferry_core::Access;

/// Weak references to the arenas of this process.
pub(crate) struct Registry<T> {
    /// By id, with whether the arena is writable: several if a framework's memory was exported several times.
    by_id: HashMap<ArenaId, Vec<(bool, Weak<T>)>>,
    /// By the first address, with the end: arenas that this process made or imported.
    by_address: BTreeMap<usize, (usize, Weak<T>)>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), by_address: BTreeMap::new() }
    }
}

impl<T> Registry<T> {
    /// The arena with this id and access.
    pub(crate) fn find_id(&self, id: &ArenaId, access: Access) -> Option<Arc<T>> {
        let is_writable = access == Access::ReadWrite;
        self.by_id
            .get(id)?
            .iter()
            .filter(|(writable, _)| *writable == is_writable)
            .find_map(|(_, arena)| arena.upgrade())
    }

    /// The arena that contains this range, and the offset of the range in it.
    pub(crate) fn find_range(&self, start: usize, bytes: usize) -> Option<(Arc<T>, usize)> {
        let (&first, (end, arena)) = self.by_address.range(..=start).next_back()?;
        if start >= *end || start.checked_add(bytes)? > *end {
            return None;
        }
        Some((arena.upgrade()?, start - first))
    }

    /// Adds an arena; with `addresses`, [`Registry::find_range`] finds it too.
    pub(crate) fn insert(
        &mut self,
        arena: &Arc<T>,
        id: &ArenaId,
        access: Access,
        addresses: Option<Range<usize>>,
    ) {
        let list = self.by_id.entry(*id).or_default();
        list.push((access == Access::ReadWrite, Arc::downgrade(arena)));
        if let Some(addresses) = addresses {
            self.by_address.insert(addresses.start, (addresses.end, Arc::downgrade(arena)));
        }
    }

    /// Removes an arena that is being dropped.
    pub(crate) fn remove(&mut self, arena: &T, id: &ArenaId, start: usize) {
        let is_same = |weak: &Weak<T>| std::ptr::eq(weak.as_ptr(), arena);
        if let Some(list) = self.by_id.get_mut(id) {
            list.retain(|(_, other)| !is_same(other));
            if list.is_empty() {
                self.by_id.remove(id);
            }
        }
        if self.by_address.get(&start).is_some_and(|(_, other)| is_same(other)) {
            self.by_address.remove(&start);
        }
    }
}
