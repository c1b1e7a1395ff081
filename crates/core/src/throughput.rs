//! How quick this machine is, so that a plan can say how long a trip will take.
//!
//! What the host does by itself is measured when it is first asked for: a few milliseconds on memory that is given back. What a
//! GPU's link does is learnt from the transfers that were made; to measure it would disturb whatever the GPU is doing, and break
//! off the capture of a graph on another thread.

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

/// Bytes per second that the host writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostThroughput {
    /// Dense elements as they are.
    pub dense: f64,
    /// Elements that are brought into row-major order.
    pub packed: f64,
    /// Elements that become another type.
    pub cast: f64,
    /// Pages that the system gives out at the first touch.
    pub fresh: f64,
}

/// Bytes of a probe: more than the caches of a core, and soon done.
const PROBE: usize = 8 << 20;
/// How often each probe is made; the quickest counts, because nothing makes a copy too quick.
const TIMES: usize = 3;

/// The host's speeds, measured once with so many threads; `None` where there was no memory for it.
pub fn measure_host(threads: usize) -> Option<HostThroughput> {
    // No thread waits for another that measures, which the child of a fork would do for ever.
    static HOST: OnceBox<Option<HostThroughput>> = OnceBox::new();
    *HOST.get_or_init(|| Box::new(measure(threads).ok()))
}

fn measure(threads: usize) -> Result<HostThroughput> {
    const SIDE: i64 = 1448;
    let elements = PROBE as i64 / 4;
    let (from, to) = (HostBlock::new(PROBE)?, HostBlock::new(PROBE)?);
    for block in [&from, &to] {
        // SAFETY: a block of so many bytes.
        unsafe { block.data().write_bytes(0x3c, PROBE) };
    }
    let speed = |layout: &Layout, dtype: DType| -> Result<f64> {
        let dense = Layout::dense(dtype.size(), layout.shape())?;
        let source =
            pack::CopySource { data: from.data(), dtype: DType::Float32, layout, order: ByteOrder::Native };
        let target = pack::CopyDestination { data: to.data(), dtype, layout: &dense };
        let mut best = Duration::MAX;
        for _ in 0..TIMES {
            let begin = Instant::now();
            // SAFETY: both blocks have room for as many elements, and are nobody else's.
            unsafe { pack::convert(&source, &target, threads)? };
            best = best.min(begin.elapsed());
        }
        Ok(per_second(dense.bytes(), best))
    };
    Ok(HostThroughput {
        dense: speed(&Layout::dense(4, &[elements])?, DType::Float32)?,
        packed: speed(&Layout::strided(4, &[SIDE, SIDE], &[4, 4 * SIDE])?, DType::Float32)?,
        cast: speed(&Layout::dense(4, &[elements])?, DType::Float16)?,
        fresh: pool::touching(PROBE).map_or(f64::INFINITY, |took| per_second(PROBE, took)),
    })
}

fn per_second(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-9)
}

/// A way between a GPU and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Into memory that the GPU writes by itself.
    Download,
    /// Into other memory, through buffers.
    DownloadThroughBuffers,
    /// To the GPU.
    Upload,
}

/// Bytes per second by each way, as the bits of a number; zero where nothing has gone that way.
static LINKS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Bytes from which a transfer says something about the link.
const TELLING: usize = 1 << 20;

/// Notes how long a transfer took. What was before counts as well, because a single one may have had to wait.
pub fn record(link: TransferKind, bytes: usize, took: Duration) {
    if bytes < TELLING {
        return;
    }
    let now = per_second(bytes, took);
    let speed = bytes_per_second(link).map_or(now, |before| before * 0.5 + now * 0.5);
    // Relaxed: two that come at the same time are both as good as the other.
    LINKS[link as usize].store(speed.to_bits(), Ordering::Relaxed);
}

/// Bytes per second by this way, if anything has gone it.
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
            // From a slow interpreter to faster than any memory.
            assert!(speed > 1e3 && (speed < 1e13 || speed.is_infinite()), "{first:?}");
        }
        assert_eq!(measure_host(1), Some(first));
    }

    #[test]
    fn links_are_learnt_from_what_went_by_them() {
        assert_eq!(bytes_per_second(TransferKind::Upload), None);
        record(TransferKind::Upload, TELLING - 1, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), None);
        record(TransferKind::Upload, 2_000_000, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), Some(2e9));
        record(TransferKind::Upload, 4_000_000, Duration::from_millis(1));
        assert_eq!(bytes_per_second(TransferKind::Upload), Some(3e9));
        assert_eq!(bytes_per_second(TransferKind::Download), None);
    }
}
