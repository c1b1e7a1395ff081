//! The types of `sync` under loom: the parts of the standard library's interface that the modelled modules use.
//!
//! They are more exact than loom's own in four ways:
//!
//! - A `SeqCst` load is never reordered before a `SeqCst` store of its thread: a fence separates the two. Loom weakens
//!   `SeqCst` accesses to acquire and release, but models fences. Weaker accesses get no fence.
//! - The drop of an atomic must happen after every access to it. Loom therefore reports a helper that uses a job after the
//!   caller has freed it.
//! - `unpark` publishes memory to the `park` that takes its token, and to nothing else. Loom's own publishes it at once, and
//!   wakes a thread that waits for something else. Each thread may also return from `park` without a token once.
//! - `Builder::spawn` fails when the model allows no more threads.

mod atomic;
#[cfg(test)]
mod explore;
pub(crate) mod thread;

pub(crate) use atomic::{AtomicBool, AtomicPtr, AtomicUsize};
#[cfg(test)]
pub(crate) use explore::{Rendezvous, SharedCell, explore};
pub(crate) use loom::sync::{Condvar, Mutex};
use std::sync::atomic::Ordering;

/// A cell that is set once. The flag tells loom what the cell of the standard library publishes.
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}
