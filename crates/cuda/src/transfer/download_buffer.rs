//! The host memory of a download's result: which memory to use, and whether to pin it.
//!
//! A block that was used before is likely to be used again, so it is pinned. Fresh memory is not: pinning takes longer than
//! the transfer, and results that a program keeps would all become memory that the system can neither move nor swap.
//!
//! Results too small for the host pool are pinned on credit. Each such result costs one credit, and each that comes back
//! earns one, so a program that keeps all of its results soon stops paying for pinning.

use super::options::RingOptions;
use super::path::{SMALL_DOWNLOAD_BYTES, TransferPath};
use super::pinned::{self, HUGE_PAGE_BYTES};
use super::ring_buffer::RingBuffer;
use crate::gpu::Gpu;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::Result;
use tensorferry_core::host::HostBlock;
use tensorferry_core::pool::{self, BlockUse, PoolBlock};

/// Results from this size on come from the host pool in any case.
const MIN_POOLED_BYTES: usize = 4 << 20;

/// Credits for pinning smaller results, at the start and at most.
const MAX_PIN_CREDITS: usize = 4;
static PIN_CREDITS: AtomicUsize = AtomicUsize::new(MAX_PIN_CREDITS);

/// The memory that a download's result is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadBuffer {
    /// A small block, which the driver fills in one call.
    Small,
    /// A small block as well, because the pin credits are used up or the limit on pinned memory is reached.
    Unpinned,
    /// Pinned memory of an earlier result.
    Recycled,
    /// Memory of an earlier result, or a small new block, which is pinned for this and later results.
    Pin,
    /// Fresh memory, which is filled through a ring buffer.
    Fresh,
}

/// The memory that a result of this size would use now.
pub fn choose_download_buffer(bytes: usize) -> DownloadBuffer {
    let has_credit = PIN_CREDITS.load(Ordering::Relaxed) > 0;
    let may_pin = pool::may_pin(bytes.next_multiple_of(HUGE_PAGE_BYTES));
    choose(bytes, |block_use| pool::has_idle(bytes, block_use), may_pin, has_credit)
}

fn choose(
    bytes: usize,
    has_idle: impl Fn(BlockUse) -> bool,
    may_pin: bool,
    has_credit: bool,
) -> DownloadBuffer {
    if bytes < SMALL_DOWNLOAD_BYTES {
        return DownloadBuffer::Small;
    }
    if has_idle(BlockUse::Pinned) {
        return DownloadBuffer::Recycled;
    }
    match (bytes >= MIN_POOLED_BYTES, may_pin) {
        (true, true) if has_idle(BlockUse::Pageable) => DownloadBuffer::Pin,
        (true, _) => DownloadBuffer::Fresh,
        (false, true) if has_credit => DownloadBuffer::Pin,
        (false, _) => DownloadBuffer::Unpinned,
    }
}

impl Gpu {
    /// Host memory for a result of this size, and the transfer path into it.
    ///
    /// # Errors
    /// If the host is out of memory.
    pub fn allocate_download(
        &'static self,
        bytes: usize,
        ring: RingOptions,
    ) -> Result<(HostBlock, TransferPath)> {
        let _relaxed = self.relax_capture_mode()?;
        let buffer = choose_download_buffer(bytes);
        if let Some((block, transfer_path)) = self.take_pinned_block(buffer, bytes, ring) {
            return Ok((HostBlock::pooled(block), transfer_path));
        }
        let block = HostBlock::new(bytes)?;
        if bytes < MIN_POOLED_BYTES {
            return Ok((block, TransferPath::Driver));
        }
        // SAFETY: a slice needs memory that is mapped, that nobody else uses, and that is at most `isize::MAX` long.
        // `HostBlock::new` allocated this many bytes above, and nothing else has their address yet.
        let fresh = unsafe { slice::from_raw_parts_mut(block.data().cast(), bytes) };
        RingBuffer::prepare(self, fresh, ring);
        Ok((block, TransferPath::Ring(ring)))
    }

    /// A pool block that is pinned, or that is pinned now.
    fn take_pinned_block(
        &'static self,
        buffer: DownloadBuffer,
        bytes: usize,
        ring: RingOptions,
    ) -> Option<(PoolBlock, TransferPath)> {
        let update_credits = |change: fn(usize) -> Option<usize>| {
            PIN_CREDITS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
        };
        let mut block = match buffer {
            DownloadBuffer::Recycled => PoolBlock::idle(bytes, BlockUse::Pinned)?,
            DownloadBuffer::Pin if bytes >= MIN_POOLED_BYTES => PoolBlock::idle(bytes, BlockUse::Pageable)?,
            DownloadBuffer::Pin if update_credits(|credits| credits.checked_sub(1)) => PoolBlock::new(bytes)?,
            _ => return None,
        };
        if buffer == DownloadBuffer::Recycled {
            update_credits(|credits| Some((credits + 1).min(MAX_PIN_CREDITS)));
            return Some((block, TransferPath::Recycled));
        }
        pinned::prefault(&mut block, ring.threads);
        let transfer_path = pinned::pin(self, &mut block, BlockUse::Pinned)
            .map_or(TransferPath::Ring(ring), |()| TransferPath::Pinned);
        Some((block, transfer_path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_use_the_memory_that_pays() {
        let choose = |bytes, pinned: bool, plain: bool, may_pin, has_credit| {
            let has_idle = |block_use| if block_use == BlockUse::Pinned { pinned } else { plain };
            choose(bytes, has_idle, may_pin, has_credit)
        };
        // The driver copies small results, whatever is idle.
        assert_eq!(choose(SMALL_DOWNLOAD_BYTES - 1, true, true, true, true), DownloadBuffer::Small);
        for bytes in [SMALL_DOWNLOAD_BYTES, MIN_POOLED_BYTES - 1, MIN_POOLED_BYTES, 1 << 30] {
            assert_eq!(choose(bytes, true, true, false, false), DownloadBuffer::Recycled);
        }
        // Memory that was used before is pinned, if that is allowed.
        assert_eq!(choose(MIN_POOLED_BYTES, false, true, true, false), DownloadBuffer::Pin);
        assert_eq!(choose(MIN_POOLED_BYTES, false, true, false, true), DownloadBuffer::Fresh);
        assert_eq!(choose(MIN_POOLED_BYTES, false, false, true, true), DownloadBuffer::Fresh);
        // Results too small for the pool are pinned on credit.
        assert_eq!(choose(MIN_POOLED_BYTES - 1, false, true, true, true), DownloadBuffer::Pin);
        assert_eq!(choose(MIN_POOLED_BYTES - 1, false, true, true, false), DownloadBuffer::Unpinned);
        assert_eq!(choose(MIN_POOLED_BYTES - 1, false, true, false, true), DownloadBuffer::Unpinned);
    }
}
