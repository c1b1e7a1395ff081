//! What tensorferry holds, as Python sees it.

use crate::interpreter::owner;
use pyo3::prelude::*;
use tensorferry_core::pool;

/// What tensorferry holds of the host's memory.
///
/// Example:
///     >>> ferry.memory_stats().pinned_bytes >= 0
///     True
#[pyclass(frozen, get_all, module = "tensorferry", name = "MemoryStats")]
pub(crate) struct MemoryStats {
    /// Bytes of large blocks that results use.
    used_bytes: usize,
    /// How many such blocks there are.
    used_blocks: usize,
    /// Bytes of large blocks that no result uses any more, kept for the next one.
    idle_bytes: usize,
    /// How many such blocks there are.
    idle_blocks: usize,
    /// Bytes of large blocks that are pinned for GPUs, used or idle.
    pinned_bytes: usize,
    /// Bytes of shared memory that is mapped, made here or attached. Those that were never touched take no room.
    shared_bytes: usize,
    /// The most idle bytes that are kept, and the most that are pinned.
    limit_bytes: usize,
    /// How often a kept block served a new result.
    hits: usize,
    /// How often a new result needed memory from the system.
    misses: usize,
}

#[pymethods]
impl MemoryStats {
    fn __repr__(&self) -> String {
        format!(
            "<MemoryStats {} used in {} blocks, {} idle in {} (at most {})>",
            crate::text::format_bytes(self.used_bytes),
            self.used_blocks,
            crate::text::format_bytes(self.idle_bytes),
            self.idle_blocks,
            crate::text::format_bytes(self.limit_bytes)
        )
    }
}

/// What tensorferry holds: the large blocks behind results, and those that it keeps for the next ones.
///
/// Large results (from some MiB on) come from a pool, because memory from the system is slow when it is first
/// touched. `empty_cache` gives the idle blocks back; the environment variable TENSORFERRY_POOL sets how many bytes are
/// kept at most ("512M"; "0" keeps none; an eighth of the machine's or container's memory otherwise).
///
/// Returns:
///     A MemoryStats.
///
/// Example:
///     >>> stats = ferry.memory_stats()
///     >>> stats.idle_bytes <= stats.limit_bytes
///     True
#[pyfunction]
pub(crate) fn memory_stats() -> MemoryStats {
    let now = pool::stats();
    MemoryStats {
        used_bytes: now.used_bytes,
        used_blocks: now.used_blocks,
        idle_bytes: now.idle_bytes,
        idle_blocks: now.idle_blocks,
        pinned_bytes: now.pinned_bytes,
        shared_bytes: tensorferry_share::counts().bytes,
        limit_bytes: now.limit,
        hits: now.hits,
        misses: now.misses,
    }
}

/// Gives the memory that tensorferry keeps for later results, and shared memory in which nothing lies, back to the system.
///
/// Returns:
///     The number of bytes given back, shared memory not counted.
///
/// Example:
///     >>> freed = ferry.empty_cache()
///     >>> ferry.memory_stats().idle_bytes
///     0
#[pyfunction]
pub(crate) fn empty_cache(py: Python<'_>) -> usize {
    owner::drop_deferred();
    py.detach(|| {
        tensorferry_share::release_idle();
        tensorferry_cuda::ipc::release_idle();
        pool::release_idle()
    })
}
