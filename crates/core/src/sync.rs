//! The synchronization types of the modules that loom models: those of the standard library, or of loom under `--cfg loom`.
//!
//! `workers` and `drop_queue` name their types through this module, so that `make loom` runs the code of the product and not a
//! copy of it. A normal build only renames the types of the standard library.

#[cfg(loom)]
mod model;

#[cfg(loom)]
pub(crate) use model::{AtomicBool, AtomicPtr, AtomicUsize, Condvar, Mutex, OnceLock, thread};
#[cfg(all(loom, test))]
pub(crate) use model::{Rendezvous, SharedCell, explore};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, OnceLock};
#[cfg(not(loom))]
pub(crate) use std::thread;
