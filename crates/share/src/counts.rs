//! Counts of what this crate holds in this process.

use crate::lease::Lease;
use crate::memory::registry;
use crate::producer::server;

/// What this crate holds in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareCounts {
    /// Publications whose ticket can be used.
    pub publications: usize,
    /// Leases that consumers hold on publications of this process.
    pub granted_leases: usize,
    /// Leases that this process holds on publications of others.
    pub held_leases: usize,
    /// Mapped arenas.
    pub arenas: usize,
    /// Bytes of the mapped arenas, resident or not.
    pub bytes: usize,
    /// Open descriptors, except those in flight to a consumer and those of GPU memory.
    pub descriptors: usize,
    /// GPU memory and events.
    pub gpu: tensorferry_cuda::ipc::GpuArenaCounts,
}

/// Counts what this crate holds in this process.
pub fn counts() -> ShareCounts {
    let server = server::lock().counts();
    let (held_leases, arenas) = (Lease::count(), registry::arena_count());
    ShareCounts {
        publications: server.publications,
        granted_leases: server.granted_leases,
        held_leases,
        arenas,
        bytes: registry::mapped_bytes(),
        descriptors: server.descriptors + held_leases + arenas,
        gpu: tensorferry_cuda::ipc::counts(),
    }
}
