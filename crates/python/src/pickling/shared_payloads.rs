//! The payloads that are being written, by the address of their memory.
//!
//! Tensors with the same memory and the same view of it (tied weights) get one payload, so that pickle's memo makes one copy of
//! them. A pickler keeps the payloads that it has written until it is dropped, and a payload keeps its memory alive: an
//! address in the table belongs to one allocation.
//!
//! The lock is held under the GIL and released before Python code can run, so that a fork never copies it locked.

use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The addresses of payload objects, of which the table has no references.
type Objects = SmallVec<[usize; 1]>;

static PAYLOADS: LazyLock<Mutex<HashMap<usize, Objects>>> = LazyLock::new(Mutex::default);

fn payloads() -> MutexGuard<'static, HashMap<usize, Objects>> {
    PAYLOADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first payload with memory at this address that `is_same` accepts.
pub(super) fn find<'py>(
    py: Python<'py>,
    address: usize,
    is_same: impl Fn(&Bound<'py, PyAny>) -> bool,
) -> Option<Bound<'py, PyAny>> {
    let payloads = payloads();
    // SAFETY: `from_borrowed_ptr` requires live objects: the contract of `add` says that an object removes itself when it is
    // dropped. Its drop and this function run with the GIL held, and no Python code runs between the release of the last
    // reference and the drop.
    let object = |&object: &usize| unsafe { Bound::from_borrowed_ptr(py, object as *mut ffi::PyObject) };
    payloads.get(&address)?.iter().map(object).find(is_same)
}

/// Adds a payload with memory at this address.
///
/// # Safety
/// The drop of the object calls [`remove`] with the same addresses, before anything else.
pub(super) unsafe fn add(address: usize, object: &Bound<'_, PyAny>) {
    payloads().entry(address).or_default().push(object.as_ptr() as usize);
}

/// Removes the payload object at this address, if it is in the table.
pub(super) fn remove(address: usize, object: usize) {
    let mut payloads = payloads();
    if let Some(objects) = payloads.get_mut(&address) {
        objects.retain(|known| *known != object);
        if objects.is_empty() {
            payloads.remove(&address);
        }
    }
}
