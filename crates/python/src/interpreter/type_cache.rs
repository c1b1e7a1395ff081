//! A small cache from the address of a Python object to a value, which replaces look-ups by name.
//!
//! Every call looks up a type and a framework name, and a program uses few of either. The cache holds a reference to every
//! key, so an address identifies one object while it is in the cache. A new key evicts the key that has its slot.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;

const SLOT_COUNT: usize = 256;

/// A cache for values of type `V`.
pub(crate) struct Cache<V: Copy> {
    /// The address of each key, of which the slot owns one reference, and its value.
    slots: [Cell<Option<(usize, V)>>; SLOT_COUNT],
}

// SAFETY: sharing requires that no two threads access a `Cell` at the same time. Every method takes a `Python` token or a
// `Bound`, so its thread has the GIL: the module declares that it needs the GIL, and refuses subinterpreters. A `Cell` runs no
// code between its read and its write that could release the GIL, because `V` is `Copy`.
unsafe impl<V: Copy + Send> Sync for Cache<V> {}

impl<V: Copy> Cache<V> {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Cell::new(None) }; SLOT_COUNT] }
    }

    fn slot(key: *mut ffi::PyObject) -> usize {
        // Objects are 16 bytes apart; the multiplication spreads neighbours over the slots.
        ((key as usize >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) & (SLOT_COUNT - 1)
    }

    /// The value for the object at this address, which is not dereferenced.
    pub(crate) fn get(&self, _py: Python<'_>, key: *mut ffi::PyObject) -> Option<V> {
        match self.slots[Self::slot(key)].get() {
            Some((known, value)) if known == key as usize => Some(value),
            _ => None,
        }
    }

    /// Stores `value` for this object, and keeps the object alive.
    pub(crate) fn put(&self, key: &Bound<'_, PyAny>, value: V) {
        self.replace(key.py(), Self::slot(key.as_ptr()), Some((key.clone().unbind(), value)));
    }

    /// Removes all values, which may no longer be valid.
    pub(crate) fn clear(&self, py: Python<'_>) {
        (0..SLOT_COUNT).for_each(|slot| self.replace(py, slot, None));
    }

    fn replace(&self, py: Python<'_>, slot: usize, new: Option<(Py<PyAny>, V)>) {
        let new = new.map(|(key, value)| (key.into_ptr() as usize, value));
        if let Some((old, _)) = self.slots[slot].replace(new) {
            // SAFETY: `from_owned_ptr` takes over one reference: `into_ptr` above gave it to the slot, which has lost the address
            // now. The drop comes last, because a destructor may run Python code that uses the cache.
            drop(unsafe { Bound::from_owned_ptr(py, old as *mut ffi::PyObject) });
        }
    }
}
