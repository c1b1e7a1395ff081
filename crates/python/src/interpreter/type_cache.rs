//! A small table from the address of a Python object to a value: what replaces look-ups by name.
//!
//! Types and framework names are asked about in every call, and there are few of them. The table holds a
//! reference to every key, so an address stands for one object as long as it is in the table; a new key
//! that falls on a taken place evicts the old one.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;

const PLACES: usize = 256;

/// A table for values of type `V`.
pub(crate) struct Cache<V: Copy> {
    places: UnsafeCell<[Option<(usize, V)>; PLACES]>,
}

// SAFETY: every access goes through `get` or `put`, which take a `Python` token: the module declares that it
// needs the GIL, and neither runs Python code while it looks at the table.
unsafe impl<V: Copy + Send> Sync for Cache<V> {}

impl<V: Copy> Cache<V> {
    pub(crate) const fn new() -> Self {
        Self { places: UnsafeCell::new([None; PLACES]) }
    }

    fn place(key: *mut ffi::PyObject) -> usize {
        // Objects are 16 bytes apart; the multiplication spreads neighbours over the table.
        ((key as usize >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) & (PLACES - 1)
    }

    /// The value kept for this object.
    pub(crate) fn get(&self, _py: Python<'_>, key: *mut ffi::PyObject) -> Option<V> {
        // SAFETY: see the `Sync` impl.
        match unsafe { (*self.places.get())[Self::place(key)] } {
            Some((known, value)) if known == key as usize => Some(value),
            _ => None,
        }
    }

    /// Keeps `value` for this object, and the object alive.
    pub(crate) fn put(&self, key: &Bound<'_, PyAny>, value: V) {
        let address = key.clone().into_ptr();
        // SAFETY: see the `Sync` impl; the old key is released after the table is whole again.
        let old = unsafe { (*self.places.get())[Self::place(address)].replace((address as usize, value)) };
        if let Some((old, _)) = old {
            // SAFETY: the table owned one reference to its key.
            drop(unsafe { Bound::from_owned_ptr(key.py(), old as *mut ffi::PyObject) });
        }
    }

    /// Forgets everything, when what was concluded may no longer hold.
    pub(crate) fn clear(&self, py: Python<'_>) {
        for place in 0..PLACES {
            // SAFETY: as in `put`.
            let old = unsafe { (*self.places.get())[place].take() };
            if let Some((old, _)) = old {
                // SAFETY: the table owned one reference to its key.
                drop(unsafe { Bound::from_owned_ptr(py, old as *mut ffi::PyObject) });
            }
        }
    }
}
