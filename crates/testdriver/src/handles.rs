//! Handles of streams, events, modules and pools, and buffer ids. Each is used once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Handles start here, so that none looks like a default stream.
const FIRST_HANDLE: usize = 0x1100;
const HANDLE_STEP: usize = 0x100;

/// A handle that was not used before.
pub(crate) fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(FIRST_HANDLE);
    NEXT.fetch_add(HANDLE_STEP, Ordering::Relaxed)
}
