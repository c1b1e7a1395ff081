//! A small cache from the address of a Python object to a value, which replaces look-ups by name.
//!
//! Every call looks up a type and a framework name, and a program uses few of either. The cache holds a reference to every
//! key, so an address identifies one object while it is in the cache. A new key evicts the key that has its slot.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;

const SLOT_COUNT: usize = 256;

/// A cache for values of type `V`.
pub(crate) struct Cache<V: Copy> {
    slots: UnsafeCell<[Option<(usize, V)>; SLOT_COUNT]>,
}

// SAFETY: every access goes through `get` or `put`, which take a `Python` token: the module declares that it
// needs the GIL, and neither runs Python code while it accesses the table.
unsafe impl<V: Copy + Send> Sync for Cache<V> {}

impl<V: Copy> Cache<V> {
    pub(crate) const fn new() -> Self {
        Self { slots: UnsafeCell::new([None; SLOT_COUNT]) }
    }

    fn slot(key: *mut ffi::PyObject) -> usize {
        // Objects are 16 bytes apart; the multiplication spreads neighbours over the slots.
        ((key as usize >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) & (SLOT_COUNT - 1)
    }

    /// The value for this object.
    pub(crate) fn get(&self, _py: Python<'_>, key: *mut ffi::PyObject) -> Option<V> {
        // SAFETY: see the `Sync` impl.
        match unsafe { (*self.slots.get())[Self::slot(key)] } {
            Some((known, value)) if known == key as usize => Some(value),
            _ => None,
        }
    }

    /// Stores `value` for this object, and keeps the object alive.
    pub(crate) fn put(&self, key: &Bound<'_, PyAny>, value: V) {
        let address = key.clone().into_ptr();
        // SAFETY: see the `Sync` impl; the old key is released after the table is whole again.
        let old = unsafe { (*self.slots.get())[Self::slot(address)].replace((address as usize, value)) };
        if let Some((old, _)) = old {
            // SAFETY: the table owned one reference to its key.
            drop(unsafe { Bound::from_owned_ptr(key.py(), old as *mut ffi::PyObject) });
        }
    }

    /// Removes all values, which may no longer be valid.
    pub(crate) fn clear(&self, py: Python<'_>) {
        for slot in 0..SLOT_COUNT {
            // SAFETY: as in `put`.
            let old = unsafe { (*self.slots.get())[slot].take() };
            if let Some((old, _)) = old {
                // SAFETY: the table owned one reference to its key.
                drop(unsafe { Bound::from_owned_ptr(py, old as *mut ffi::PyObject) });
            }
        }
    }
}
