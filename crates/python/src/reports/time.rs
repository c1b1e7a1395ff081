//! Expected durations of conversions, from throughput measured on this machine.

use crate::settings;
use tensorferry_core::plan::{Plan, Reason, SourceDescription};
use tensorferry_core::pool::{self, BlockUse};
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_cuda::DownloadBuffer;

/// The work that determines the duration of a conversion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteWork {
    /// The result shares memory.
    NoCopy,
    Dense,
    Pack,
    Cast,
    Transfer(TransferKind),
    /// A copy that is queued on a GPU, without a wait of the host.
    Queued,
}

/// The duration of a conversion apart from its bytes, as measured for small copies.
const CONVERSION_OVERHEAD_SECONDS: f64 = 2e-6;
/// Results of at least this size come from the pool, and may need fresh pages from the system.
const POOL_THRESHOLD_BYTES: usize = 4 << 20;

impl ByteWork {
    pub(super) fn of(source: &SourceDescription<'_>, plan: &Plan, bytes: usize) -> Self {
        if plan.shares() {
            return Self::NoCopy;
        }
        match (source.device.is_cuda(), plan.device.is_cuda()) {
            (true, true) => Self::Queued,
            (false, true) => Self::Transfer(TransferKind::Upload),
            (true, false) => match tensorferry_cuda::choose_download_buffer(bytes) {
                DownloadBuffer::Recycled | DownloadBuffer::Pin => Self::Transfer(TransferKind::Download),
                _ => Self::Transfer(TransferKind::DownloadThroughBuffers),
            },
            (false, false) => {
                let has = |any: fn(&Reason) -> bool| plan.reasons().iter().any(any);
                if has(|reason| matches!(reason, Reason::Cast { .. } | Reason::Swapped)) {
                    Self::Cast
                } else if source.layout.is_dense() {
                    Self::Dense
                } else {
                    Self::Pack
                }
            }
        }
    }

    /// The expected seconds for a number of bytes, and a description of the rate behind them; `None` if the rate is not known.
    pub(super) fn expected_time(self, bytes: usize) -> Option<(f64, String)> {
        let format_rate = |rate: f64, what: &str| format!("at the {:.1} GB/s {what}", rate / 1e9);
        if let Self::Transfer(kind) = self {
            let rate = throughput::bytes_per_second(kind)?;
            return Some((
                CONVERSION_OVERHEAD_SECONDS + bytes as f64 / rate,
                format_rate(rate, "of earlier transfers"),
            ));
        }
        let host = || throughput::measure_host(settings::threads());
        let (rate, what) = match self {
            Self::Dense => (host()?.dense, "measured here for copies"),
            Self::Pack => (host()?.packed, "measured here for packing"),
            Self::Cast => (host()?.cast, "measured here for casts"),
            _ => return None,
        };
        let mut seconds = CONVERSION_OVERHEAD_SECONDS + bytes as f64 / rate;
        let mut basis = format_rate(rate, what);
        if bytes >= POOL_THRESHOLD_BYTES && !pool::has_idle(bytes, BlockUse::Pageable) {
            let fresh = host()?.fresh;
            seconds += bytes as f64 / fresh;
            basis += &format!(", and {:.1} GB/s for fresh memory", fresh / 1e9);
        }
        Some((seconds, basis))
    }
}
