//! Tensors between processes: one process's memory in another, without a copy.
//!
//! A producer lays tensors into shared memory ([`ArenaBlock`]), publishes them ([`publish`]) and passes the [`Ticket`] on in
//! whatever way. A consumer attaches it ([`attach`]) and has the same memory, held for it by an open connection. This crate
//! knows Linux alone. Memory of GPUs is that of `tensorferry_cuda::ipc`; no driver is loaded where none is involved. It is
//! read from the bottom up:
//!
//! - [`arena`]: shared memory that stays where it is and as long as it is; [`pieces`]: parts of it, one for each tensor;
//! - [`memory`]: either, the host's or a GPU's;
//! - [`registry`]: which addresses are shared memory, and what happens at a fork;
//! - [`wire`]: what goes over the socket, checked; socket: how descriptors travel;
//! - [`structure`]: how tensors belong together; [`ticket`]: a claim, as bytes and as text;
//! - [`publication`] (with announce): what is handed over; [`server`] (with crowd, answer, poll, reserve and folder): the
//!   producer's side; [`client`]: the consumer's.

mod consumer;
mod errors;
mod memory;
mod producer;
pub mod protocol;
mod socket;
mod system;
mod ticket;

pub use consumer::attach::{Attached, AttachedTensor, ReadyState, attach, attach_cancellable};
pub use memory::arena::Arena;
pub use memory::arena_block::{ArenaBlock, release_idle};
pub use memory::registry::{Lease, find};
pub use memory::shared_memory::SharedMemory;
pub use producer::publication::{Publication, PublishOptions, PublishedTensor, publish, publish_after};
pub use producer::server::shut_down;
pub use protocol::TreeStructure;
pub use ticket::Ticket;

use memory::registry;
use producer::server;

/// What this crate holds in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareCounts {
    /// Publications whose ticket can be used.
    pub publications: usize,
    /// Leases that others have on our publications.
    pub given: usize,
    /// Leases that we have on those of others.
    pub held: usize,
    /// Mappings of shared memory.
    pub arenas: usize,
    /// Bytes of them, touched or not.
    pub bytes: usize,
    /// Open descriptors, but for those that are on their way to a consumer, and those of GPU memory.
    pub descriptors: usize,
    /// Memory of GPUs, and events.
    pub gpu: tensorferry_cuda::ipc::GpuArenaCounts,
}

/// Counts what this crate holds in this process.
pub fn counts() -> ShareCounts {
    let (publications, given, descriptors) = server::lock().counts();
    let (held, arenas) = (Lease::count(), registry::count());
    let (descriptors, gpu) = (descriptors + held + arenas, tensorferry_cuda::ipc::counts());
    ShareCounts { publications, given, held, arenas, bytes: registry::bytes(), descriptors, gpu }
}
