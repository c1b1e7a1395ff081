//! GPU memory between processes: exporting it, attaching memory that others exported, and events that say when it is ready.
//!
//! # Guarantees
//!
//! - [`Allocation::of`] queries memory before anything is exported, with calls that cannot fail: a refused export leaves
//!   some drivers with an error that the next caller finds.
//! - A GPU is identified by its UUID ([`Gpu::by_uuid`](crate::Gpu::by_uuid)). Its ordinal differs between processes that
//!   see different GPUs.
//! - A process opens an allocation once, on one thread at a time, however many of its tensors arrive. A process that
//!   attaches its own export gets the exported arena. An allocation has the same [`ArenaId`] in every process.
//! - Memory that was published as read-only is mapped so that the GPU itself rejects writes, which only memory with a file
//!   descriptor supports ([`GpuArena::can_be_read_only`]).
//! - Before memory is unmapped, closed, freed or reused, all work that this process has queued on that GPU is complete. The
//!   driver's calls for this are not stream-ordered, so the host waits.
//! - In a forked child, where CUDA cannot be used, everything can be dropped and no driver function is called.
//!
//! # Export methods
//!
//! | method | memory of | handle |
//! |---|---|---|
//! | virtual memory management | tensorferry, JAX | file descriptor |
//! | legacy IPC | `cuMemAlloc`: PyTorch, CuPy, TensorFlow | 64 bytes |
//!
//! An export exposes the whole allocation, of which the tensor may be a small range; [`Allocation::bytes`] is its size.
//!
//! # When the other process dies
//!
//! The driver counts the references to memory with a file descriptor, so the memory stays valid when its producer is killed.
//! For legacy memory the documentation does not say whether a mapping stays valid. On an H200 with driver 580 it could still
//! be read; nothing here relies on it.
//!
//! # Limits
//!
//! - Memory pools (`cuMemAllocAsync`) are not exported. The default pool cannot be. The memory of other pools cannot be
//!   opened a second time in a process: on an H200 with driver 580, after it was freed and imported again, copies from it
//!   failed (`CUDA_ERROR_INVALID_VALUE`) or the process crashed.
//! - While a stream is captured into a graph, the host cannot wait for the context. Memory that would be unmapped then is
//!   leaked.
//! - A consumer of one tensor can read its neighbours in the same allocation. All processes belong to one user.

mod allocation;
mod arena;
mod arena_block;
mod attach;
mod counters;
mod error;
mod event;
mod identity;
mod physical;
mod registry;
mod uuid;

pub use allocation::{Allocation, ExportMethod};
pub use arena::{GpuArena, find};
pub use arena_block::{GpuArenaBlock, release_idle};
pub use attach::ImportHandle;
pub use counters::{GpuArenaCounts, counts};
pub use event::{ReadyEvent, RemoteEvent};
pub use identity::{ArenaId, ExportHandle};
pub use uuid::Uuid;
