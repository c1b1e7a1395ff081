//! Fork handlers: `fork()` never copies a locked mutex of this crate into the child.
//!
//! A child of `fork()` has only the thread that forked; a mutex that another thread held would stay locked in the child
//! forever. The forking thread therefore locks both mutexes of this crate first (server, then registry) and unlocks
//! them on both sides afterwards.
//!
//! The child keeps its tensors, and abandons everything else to the parent: the server with its socket, publications
//! and connections, the arena in which the allocator was placing blocks, and idle arenas.

use crate::fork_count;
use crate::libc_calls;
use crate::memory::registry::{self, Registry};
use crate::producer::server::{self, Server};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The guards of both mutexes.
type ForkGuards = (MutexGuard<'static, Server>, MutexGuard<'static, Registry>);

thread_local! {
    /// The guards of the thread that forks, from just before the fork to just after it. `ManuallyDrop` keeps the
    /// variable without a destructor, so that accessing it registers and allocates nothing.
    static FORK_GUARDS: Cell<Option<ManuallyDrop<ForkGuards>>> = const { Cell::new(None) };
}

fn take_guards() -> Option<ForkGuards> {
    FORK_GUARDS.take().map(ManuallyDrop::into_inner)
}

/// Installs the handlers once. A fork between the two lines, while another thread creates the first arena of the
/// process, is not handled.
pub(crate) fn install() {
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        libc_calls::at_fork(before_fork, after_in_parent, after_in_child);
    }
}

extern "C" fn before_fork() {
    FORK_GUARDS.set(Some(ManuallyDrop::new((server::lock(), registry::lock()))));
}

extern "C" fn after_in_parent() {
    fork_count::increment();
    drop(take_guards());
}

extern "C" fn after_in_child() {
    // First, because the drops below may release GPU memory.
    tensorferry_cuda::driver::after_fork();
    fork_count::increment();
    let Some((mut server, mut registry)) = take_guards() else { return };
    let current = registry.block_allocator.retire();
    let idle = registry.idle_arenas.evict_to(0);
    let mut abandoned = server.abandon();
    drop(registry);
    drop(server);
    if let Some(epoll) = abandoned.take_epoll() {
        for descriptor in epoll.descriptors() {
            // SAFETY: `close` requires that nothing uses the descriptor any more. `epoll` is the server's reference,
            // which `take_epoll` removed. The only other one is the server thread's, which the child does not have.
            unsafe { rustix::io::close(descriptor.as_raw_fd()) };
        }
    }
    // Dropping arenas locks the registry.
    drop((current, idle, abandoned));
}
