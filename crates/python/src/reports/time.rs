//! How long a trip will take, from what this machine was measured to do.

use crate::settings;
use tensorferry_core::plan::{Plan, Reason, SourceDescription};
use tensorferry_core::pool::{self, BlockUse};
use tensorferry_core::throughput::{self, TransferKind};
use tensorferry_cuda::DownloadBuffer;

/// What is done with the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing: none moves.
    Nothing,
    Dense,
    Pack,
    Cast,
    Cross(TransferKind),
    /// Queued on a GPU, which nobody waits for.
    Queued,
}

/// Seconds that a trip takes besides its bytes: about what a small copy is measured at.
const START: f64 = 2e-6;
/// Bytes from which a result comes from the pool, and may have to be given out by the system.
const POOLED: usize = 4 << 20;

impl Work {
    pub(super) fn of(source: &SourceDescription<'_>, plan: &Plan, bytes: usize) -> Self {
        if plan.shares() {
            return Self::Nothing;
        }
        match (source.device.is_cuda(), plan.device.is_cuda()) {
            (true, true) => Self::Queued,
            (false, true) => Self::Cross(TransferKind::Upload),
            (true, false) => match tensorferry_cuda::choose_download_buffer(bytes) {
                DownloadBuffer::Kept | DownloadBuffer::Pin => Self::Cross(TransferKind::Download),
                _ => Self::Cross(TransferKind::DownloadThroughBuffers),
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

    /// The seconds for so many bytes, and the speed behind it in words; `None` where it is not known.
    pub(super) fn expected(self, bytes: usize) -> Option<(f64, String)> {
        let at = |speed: f64, what: &str| format!("at the {:.1} GB/s {what}", speed / 1e9);
        if let Self::Cross(link) = self {
            let speed = throughput::bytes_per_second(link)?;
            return Some((START + bytes as f64 / speed, at(speed, "of earlier transfers")));
        }
        let host = || throughput::measure_host(settings::threads());
        let (speed, what) = match self {
            Self::Dense => (host()?.dense, "measured here for copies"),
            Self::Pack => (host()?.packed, "measured here for packing"),
            Self::Cast => (host()?.cast, "measured here for casts"),
            _ => return None,
        };
        let mut seconds = START + bytes as f64 / speed;
        let mut words = at(speed, what);
        if bytes >= POOLED && !pool::has_idle(bytes, BlockUse::Plain) {
            let fresh = host()?.fresh;
            seconds += bytes as f64 / fresh;
            words += &format!(", and {:.1} GB/s for fresh memory", fresh / 1e9);
        }
        Some((seconds, words))
    }
}
