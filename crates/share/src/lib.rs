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

mod announce;
mod answer;
pub mod arena;
pub mod client;
mod crowd;
mod fault;
mod folder;
pub mod memory;
pub mod pieces;
mod poll;
pub mod publication;
pub mod registry;
mod reserve;
pub mod server;
mod socket;
pub mod structure;
mod system;
pub mod ticket;
pub mod wire;

pub use arena::Arena;
pub use client::{Attached, AttachedTensor, ReadyState, attach, attach_cancellable};
pub use memory::SharedMemory;
pub use pieces::{ArenaBlock, release_idle};
pub use publication::{Publication, PublishOptions, PublishedTensor, publish, publish_after};
pub use registry::{Lease, find};
pub use server::shut_down;
pub use structure::TreeStructure;
pub use ticket::Ticket;

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
