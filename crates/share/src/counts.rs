//! Counts of what this crate holds in this process.

use crate::lease::Lease;
use crate::memory::{idle_arenas, registry};
use crate::producer::server;
use tensorferry_core::pool::IdleTotals;

/// What this crate holds in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareCounts {
    /// Publications whose ticket can be used.
    pub publications: usize,
    /// Leases that consumers hold on publications of this process.
    pub granted_leases: usize,
    /// Leases that this process holds on publications of others.
    pub held_leases: usize,
    /// Mapped arenas, without idle ones.
    pub arenas: usize,
    /// Bytes of these arenas, resident or not.
    pub bytes: usize,
    /// Arenas without tensors that are kept for later, and their bytes.
    pub idle: IdleTotals,
    /// Open descriptors, except those in flight to a consumer and those of GPU memory.
    pub descriptors: usize,
    /// GPU memory and events.
    pub gpu: tensorferry_cuda::ipc::GpuArenaCounts,
}

/// Counts what this crate holds in this process.
pub fn counts() -> ShareCounts {
    let server = server::lock().counts();
    let (held_leases, arenas) = (Lease::count(), registry::arena_count());
    let idle = idle_arenas::totals();
    ShareCounts {
        publications: server.publications,
        granted_leases: server.granted_leases,
        held_leases,
        arenas,
        bytes: registry::mapped_bytes(),
        idle,
        descriptors: server.descriptors + held_leases + arenas + idle.blocks,
        gpu: tensorferry_cuda::ipc::counts(),
    }
}
