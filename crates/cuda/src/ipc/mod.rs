//! GPU memory between processes: exporting it, opening what others exported, and events that say when it is ready.
//!
//! # What it promises
//!
//! - Memory is asked what it is before anything is tried ([`Allocation::of`]), by questions that cannot fail: a refused
//!   export leaves some drivers with an error that the next caller finds.
//! - A GPU goes by its UUID ([`Gpu::by_uuid`](crate::Gpu::by_uuid)). Its number is another one in a process that sees
//!   other GPUs.
//! - An allocation is opened once in a process, by one thread at a time, however many tensors of it arrive, and what a process exported itself it
//!   gets back as it is: sixteen random bytes, made at the export, name an allocation everywhere.
//! - What came as read-only is mapped so that the GPU itself refuses to write. Only memory with a handle of its own can be
//!   ([`GpuArena::can_be_read_only`]).
//! - Before memory is unmapped, closed, given back or laid over, all that this process has queued on that GPU is done. The
//!   driver's calls for that are not in the order of any stream, so the host waits.
//! - In the child of a fork, where CUDA cannot be used, everything can be let go of and nothing is called.
//!
//! # Two ways
//!
//! | way | whose memory | goes by |
//! |---|---|---|
//! | a handle of its own ("virtual memory management") | ours, JAX's | a descriptor |
//! | legacy | `cuMemAlloc`: PyTorch, CuPy, TensorFlow | 64 bytes |
//!
//! An export shows the whole allocation, of which the tensor may be a small part; [`Allocation::bytes`] says how much.
//!
//! # When the other process dies
//!
//! Memory with a handle of its own is the driver's, counted by who has it: it stays valid when its maker is killed. For
//! legacy memory the documentation leaves open what a mapping is then. On an H200 with driver 580 it could still be read;
//! nothing here relies on it.
//!
//! # What it knowingly leaves
//!
//! - Memory of pools (`cuMemAllocAsync`). The default pool cannot be exported, and where a pool can, its memory cannot be
//!   opened a second time in a process: on an H200 with driver 580, after it was freed and imported again, copies from it
//!   failed (CUDA_ERROR_INVALID_VALUE) or the process did.
//! - While a stream is captured into a graph, the context cannot be waited for. What would be unmapped then is left as it
//!   is, to the end of the process.
//! - Neighbours in one allocation can be read by whoever is handed one of them. All are of one user.

mod allocation;
mod arena;
mod arena_block;
mod attach;
mod event;
mod physical;
mod registry;
mod uuid;

pub use allocation::{Allocation, ExportMethod};
pub use arena::{ArenaId, ExportHandle, GpuArena};
pub use arena_block::{GpuArenaBlock, release_idle};
pub use attach::ImportHandle;
pub use event::{ReadyEvent, RemoteEvent};
pub use registry::{GpuArenaCounts, counts, find};
pub use uuid::Uuid;

use crate::driver::Driver;
use crate::gpu::Gpu;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use tensorferry_core::{Error, ErrorKind, Result};

impl Gpu {
    /// Waits until nothing that this process has queued on the GPU is left to do; false where that cannot be known, because
    /// a stream is being captured. There is nothing in the child of a fork, nor when the driver is gone.
    pub fn settle(&self) -> bool {
        match (self.enter(), Driver::get()) {
            (Ok(_entered), Ok(driver)) => driver.is_settled(),
            _ => true,
        }
    }
}

/// A descriptor that the driver made: ours, and not for programs that this one starts.
///
/// # Safety
/// It is open, and nobody else's.
unsafe fn take_descriptor(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller's contract.
    unsafe {
        libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        OwnedFd::from_raw_fd(descriptor)
    }
}

/// What another process sent is not what it said.
fn broken(fact: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact.into())
        .with_advice("let both processes use the same version of tensorferry")
}

/// Bytes that name an allocation.
fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: as many bytes as there are may be written; so few come at once or not at all.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 16 {
        return Ok(bytes);
    }
    Err(Error::new(ErrorKind::Io, "random bytes cannot be had")
        .with_errno(std::io::Error::last_os_error().raw_os_error()))
}
