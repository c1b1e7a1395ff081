//! `memory_stats` and `empty_cache`: the host memory that tensorferry holds.

use crate::errors::Result;
use crate::interpreter::owner;
use crate::reports::card::Card;
use crate::text::format_bytes;
use pyo3::prelude::*;
use tensorferry_core::plan::count_noun;
use tensorferry_core::pool;

const TITLE: &str = "host memory that tensorferry holds";

/// The host memory that tensorferry holds.
///
/// Example:
///     >>> ferry.memory_stats().pinned_bytes >= 0
///     True
#[pyclass(frozen, get_all, module = "tensorferry", name = "MemoryStats")]
pub(crate) struct MemoryStats {
    /// Bytes of large blocks in use by results.
    used_bytes: usize,
    /// The number of large blocks in use.
    used_blocks: usize,
    /// Bytes of idle large blocks, which are kept for later results, idle shared memory included.
    idle_bytes: usize,
    /// The number of idle large blocks, those of shared memory included.
    idle_blocks: usize,
    /// Bytes of idle shared memory, which is kept for later publications.
    idle_shared_bytes: usize,
    /// Bytes of large blocks that are pinned for GPUs, in use or idle.
    pinned_bytes: usize,
    /// Bytes of mapped shared memory that is not idle, created here or attached. Pages that were never touched use no memory.
    shared_bytes: usize,
    /// The limit of idle bytes, and of pinned bytes.
    limit_bytes: usize,
    /// How often a new result got an idle block.
    hits: usize,
    /// How often a new result got memory from the system.
    misses: usize,
}

#[pymethods]
impl MemoryStats {
    fn __repr__(&self) -> String {
        format!(
            "<MemoryStats {} used in {}, {} idle in {} (at most {})>",
            format_bytes(self.used_bytes),
            count_noun(self.used_blocks, "block"),
            format_bytes(self.idle_bytes),
            count_noun(self.idle_blocks, "block"),
            format_bytes(self.limit_bytes)
        )
    }

    fn __str__(&self) -> String {
        let lines = self.lines().into_iter().map(|(name, line)| format!("\n  {name}: {line}"));
        format!("{TITLE}{}", lines.collect::<String>())
    }

    fn _repr_html_(&self) -> Result<String> {
        let mut card = Card::new();
        card.title(TITLE);
        card.bar(self.idle_bytes as f64 / self.limit_bytes.max(1) as f64);
        card.details(&self.lines());
        Ok(card.finish()?)
    }
}

impl MemoryStats {
    /// The figures, each with its name.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let blocks =
            |bytes: usize, count: usize| format!("{} in {}", format_bytes(bytes), count_noun(count, "block"));
        let idle = blocks(self.idle_bytes, self.idle_blocks);
        let (results, hits) = (self.hits + self.misses, self.hits);
        vec![
            ("in use", blocks(self.used_bytes, self.used_blocks)),
            (
                "idle",
                format!("{idle}, of at most {}; empty_cache() frees it", format_bytes(self.limit_bytes)),
            ),
            (
                "idle and shared",
                format!("{} of the idle ones, for publish", format_bytes(self.idle_shared_bytes)),
            ),
            ("pinned", format!("{} of these, for GPUs", format_bytes(self.pinned_bytes))),
            ("shared", format!("{} mapped with other processes", format_bytes(self.shared_bytes))),
            ("reuse", format!("{hits} of {} got an idle block", count_noun(results, "large result"))),
        ]
    }
}

/// Returns how much host memory tensorferry holds: large blocks in use by results, and idle blocks kept for later results.
///
/// Large results (from some MiB on) come from a pool, because the first access to new memory of the system is slow.
/// Large shared memory is kept for later publications in the same way, within the same limit, once no other process has it.
/// `empty_cache` frees the idle blocks. The environment variable TENSORFERRY_POOL sets the limit of idle bytes ("512M"; "0"
/// keeps none). The default is an eighth of the machine's or container's memory.
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
        idle_shared_bytes: now.other_idle.bytes,
        pinned_bytes: now.pinned_bytes,
        shared_bytes: tensorferry_share::counts().bytes,
        limit_bytes: now.limit,
        hits: now.hits,
        misses: now.misses,
    }
}

/// Frees the idle memory that tensorferry keeps for later results, and shared memory that holds no tensor.
///
/// Returns:
///     The number of bytes freed, idle shared memory included.
///
/// Example:
///     >>> freed = ferry.empty_cache()
///     >>> ferry.memory_stats().idle_bytes
///     0
#[pyfunction]
pub(crate) fn empty_cache(py: Python<'_>) -> usize {
    owner::drop_deferred(py);
    py.detach(|| {
        let shared_bytes = tensorferry_share::release_idle();
        tensorferry_cuda::ipc::release_idle();
        shared_bytes + pool::release_idle()
    })
}
