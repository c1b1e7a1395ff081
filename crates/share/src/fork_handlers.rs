//! Fork handlers: `fork()` never copies a locked mutex of this crate into the child.
//!
//! A child of `fork()` has only the thread that forked; a mutex that another thread held would stay locked in the child
//! forever. The forking thread therefore locks both mutexes of this crate first (server, then registry) and unlocks
//! them on both sides afterwards.
//!
//! The child keeps its tensors, and abandons everything else to the parent: the server with its socket, publications
//! and connections, and the arena in which the allocator was placing blocks.

use crate::fork_count;
use crate::memory::registry::{self, Registry};
use crate::producer::server::{self, Server};
use std::cell::UnsafeCell;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static FORK_GUARDS: ForkGuards = ForkGuards(UnsafeCell::new(None));

/// The guards of both mutexes, from just before a fork to just after it.
struct ForkGuards(UnsafeCell<Option<(MutexGuard<'static, Server>, MutexGuard<'static, Registry>)>>);

// SAFETY: only the thread that holds both mutexes accesses the cell, and it unlocks them after its last access.
unsafe impl Sync for ForkGuards {}

/// Installs the handlers once. A fork between the two lines, while another thread creates the first arena of the
/// process, is not handled.
pub(crate) fn install() {
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the functions are static, and are made to run at a fork.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_in_parent), Some(after_in_child)) };
    }
}

extern "C" fn before_fork() {
    let guards = (server::lock(), registry::lock());
    // SAFETY: this thread holds both mutexes.
    unsafe { *FORK_GUARDS.0.get() = Some(guards) };
}

extern "C" fn after_in_parent() {
    fork_count::increment();
    // SAFETY: this thread holds both mutexes since `before_fork`.
    drop(unsafe { (*FORK_GUARDS.0.get()).take() });
}

extern "C" fn after_in_child() {
    // First, because the drops below may release GPU memory.
    tensorferry_cuda::driver::after_fork();
    fork_count::increment();
    // SAFETY: as above; the only thread here is the copy of the one that locked them.
    let Some((mut server, mut registry)) = (unsafe { (*FORK_GUARDS.0.get()).take() }) else { return };
    let current = registry.block_allocator.retire();
    let abandoned = server.abandon();
    drop(registry);
    drop(server);
    // Dropping arenas locks the registry.
    drop((current, abandoned));
}
