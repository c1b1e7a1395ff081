//! Throughput of host copies and of GPU links, from which plans estimate how long a conversion takes.
//!
//! Host throughput is measured once, at the first use, in a few milliseconds. Link throughput is recorded from actual
//! transfers: a measurement would disturb the work on the GPU and abort graph captures on other threads.

use crate::dtype::DType;
use crate::error::Result;
use crate::host::HostBlock;
use crate::layout::Layout;
use crate::pack;
use crate::pool;
use crate::tensor::ByteOrder;
use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Host throughput in bytes written per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostThroughput {
    /// Copies of dense elements.
    pub dense: f64,
    /// Copies of strided elements into row-major order.
    pub packed: f64,
    /// Casts of dense elements.
    pub cast: f64,
    /// First writes to freshly mapped pages.
    pub fresh: f64,
}

/// The size of a measured copy: larger than the caches of a core. Miri, whose times mean nothing, gets by with less.
const PROBE_BYTES: usize = if cfg!(miri) { 32 << 10 } else { 8 << 20 };
/// The number of measurements; the fastest counts, because disturbances only slow a copy down.
const PROBE_REPETITIONS: usize = 3;

/// The throughput of the host, measured once with `threads` threads; `None` if there was no memory for it.
pub fn measure_host(threads: usize) -> Option<HostThroughput> {
    // Threads do not wait for another that measures: in the child of a fork they would wait forever.
    static HOST: OnceBox<Option<HostThroughput>> = OnceBox::new();
    *HOST.get_or_init(|| Box::new(measure(threads).ok()))
}

fn measure(threads: usize) -> Result<HostThroughput> {
    const SIDE: i64 = (PROBE_BYTES / 4).isqrt() as i64;
    let elements = PROBE_BYTES as i64 / 4;
    let (from, to) = (HostBlock::new(PROBE_BYTES)?, HostBlock::new(PROBE_BYTES)?);
    for block in [&from, &to] {
        // SAFETY: `HostBlock::new` allocated this many bytes, which nothing else uses.
        unsafe { block.data().write_bytes(0x3c, PROBE_BYTES) };
    }
    let speed = |layout: &Layout, dtype: DType| -> Result<f64> {
        let dense = Layout::dense(dtype.size(), layout.shape())?;
        let source =
            pack::CopySource { data: from.data(), dtype: DType::Float32, layout, order: ByteOrder::Native };
        let target = pack::CopyDestination { data: to.data(), dtype, layout: &dense };
        let mut best = Duration::MAX;
        for _ in 0..PROBE_REPETITIONS {
            let begin = Instant::now();
            // SAFETY: the layouts have at most `PROBE_BYTES / 4` elements of at most four bytes, which fit in either block, and
            // start at offset zero. The source is written, the blocks do not overlap, the destination is dense, and nothing
            // else uses them.
            unsafe { pack::convert(&source, &target, threads)? };
            best = best.min(begin.elapsed());
        }
        Ok(per_second(dense.bytes(), best))
    };
    Ok(HostThroughput {
        dense: speed(&Layout::dense(4, &[elements])?, DType::Float32)?,
        packed: speed(&Layout::strided(4, &[SIDE, SIDE], &[4, 4 * SIDE])?, DType::Float32)?,
        cast: speed(&Layout::dense(4, &[elements])?, DType::Float16)?,
        fresh: pool::time_first_touch(PROBE_BYTES)
            .map_or(f64::INFINITY, |elapsed| per_second(PROBE_BYTES, elapsed)),
    })
}

fn per_second(bytes: usize, elapsed: Duration) -> f64 {
    bytes as f64 / elapsed.as_secs_f64().max(1e-9)
}

/// A kind of transfer between a GPU and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// To the host, directly into pinned memory.
    Download,
    /// To the host, through pinned staging buffers.
    DownloadThroughBuffers,
    /// To the GPU.
    Upload,
}

/// Bytes per second by kind of transfer, as the bits of an `f64`; zero if none was recorded.
static LINKS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The transfer size from which the throughput is recorded: latency dominates smaller ones.
const MIN_RECORDED_BYTES: usize = 1 << 20;

/// Records the duration of a transfer, averaged with earlier ones because a single transfer may have had to wait.
pub fn record(link: TransferKind, bytes: usize, elapsed: Duration) {
    if bytes < MIN_RECORDED_BYTES {
        return;
    }
    let now = per_second(bytes, elapsed);
    let speed = bytes_per_second(link).map_or(now, |before| before * 0.5 + now * 0.5);
    // Relaxed: of two concurrent records either may win.
    LINKS[link as usize].store(speed.to_bits(), Ordering::Relaxed);
}

/// The recorded throughput of a kind of transfer in bytes per second.
pub fn bytes_per_second(link: TransferKind) -> Option<f64> {
    let bits = LINKS[link as usize].load(Ordering::Relaxed);
    (bits != 0).then(|| f64::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_measured_once() {
        let first = measure_host(2).unwrap();
        for speed in [first.dense, first.packed, first.cast, first.fresh] {
            // The bounds cover a slow interpreter (Miri) and the fastest memory.
            assert!(speed > 1e3 && (speed < 1e13 || speed.is_infinite()), "{first:?}");
        }
        assert_eq!(measure_host(1), Some(first));
    }

    #[test]
    fn link_throughput_is_recorded_from_transfers() {
        assert_eq!(bytes_per_second(TransferKind::Upload), None);
        record(TransferKind::Upload, MIN_RECORDED_BYTES - 1, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), None);
        record(TransferKind::Upload, 2_000_000, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), Some(2e9));
        record(TransferKind::Upload, 4_000_000, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), Some(3e9));
        assert_eq!(bytes_per_second(TransferKind::Download), None);
    }
}
