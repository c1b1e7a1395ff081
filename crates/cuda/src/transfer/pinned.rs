//! Host memory that the driver knows, which the GPU reads and writes by itself at the full speed of the link.
//!
//! A block of the host's pool is pinned as a whole, in one call: a copy that runs across two pinned ranges is refused by
//! the driver, also where it is somebody else's copy of a result of ours.

use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::memory::device_of_address;
use crate::transfer::download::{SMALL, TransferPath};
use crate::transfer::ring_buffer::{self, RingOptions};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::host::HostBlock;
use tensorferry_core::pool::{self, BlockUse, PoolBlock};
use tensorferry_core::{Result, workers};

/// Known to all contexts.
const PORTABLE: u32 = 1;
/// The smallest page that a system has.
const PAGE: usize = 4 << 10;
/// Bytes that a thread touches at a time: a huge page.
const TOUCHED: usize = 2 << 20;

/// The GPU whose context knows the pinned memory: the first that was asked.
static KNOWS: OnceLock<&'static Gpu> = OnceLock::new();

/// Bytes from which a result comes from the host's pool anyway.
const KEPT: usize = 4 << 20;
/// How many smaller results are pinned on trust.
const TRUST: usize = 4;

/// How often a smaller result may still be pinned: those that come back earn the next, so that a program that keeps all of
/// its results stops paying for what it does not use.
static TRUSTED: AtomicUsize = AtomicUsize::new(TRUST);

/// What a result lands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadBuffer {
    /// Little memory, which the driver fills in one call.
    Small,
    /// Little memory as well, because what was pinned for such results did not come back, or no more may be pinned.
    Unpinned,
    /// Pinned memory that an earlier result left.
    Kept,
    /// Memory that an earlier result left, or a little of the system's, which is pinned for this and later ones.
    Pin,
    /// Fresh memory, which is filled through buffers.
    Fresh,
}

/// A block that was used before is likely to be used again, so it is pinned. Fresh memory is not, because that takes longer
/// than the transfer, and results that are kept would all become memory that the system can neither move nor swap.
fn choose(bytes: usize, idle: impl Fn(BlockUse) -> bool, may_pin: bool, trusted: bool) -> DownloadBuffer {
    if bytes < SMALL {
        return DownloadBuffer::Small;
    }
    if idle(BlockUse::Pinned) {
        return DownloadBuffer::Kept;
    }
    match (bytes >= KEPT, may_pin) {
        (true, true) if idle(BlockUse::Plain) => DownloadBuffer::Pin,
        (true, _) => DownloadBuffer::Fresh,
        (false, true) if trusted => DownloadBuffer::Pin,
        (false, _) => DownloadBuffer::Unpinned,
    }
}

/// What a result of so many bytes would land in now.
pub fn choose_download_buffer(bytes: usize) -> DownloadBuffer {
    let trusted = TRUSTED.load(Ordering::Relaxed) > 0;
    choose(bytes, |of| pool::has_idle(bytes, of), may_pin(bytes), trusted)
}

fn may_pin(bytes: usize) -> bool {
    pool::may_pin(bytes.next_multiple_of(TOUCHED))
}

impl Gpu {
    /// Host memory for a result of so many bytes, and the road into it.
    ///
    /// # Errors
    /// When the host has no such memory.
    pub fn allocate_download(
        &'static self,
        bytes: usize,
        ring: RingOptions,
    ) -> Result<(HostBlock, TransferPath)> {
        let _relaxed = self.relaxed()?;
        let buffer = choose_download_buffer(bytes);
        if let Some((block, transfer_path)) = self.recycled(buffer, bytes, ring) {
            return Ok((HostBlock::pooled(block), transfer_path));
        }
        let block = HostBlock::new(bytes)?;
        if bytes < KEPT {
            return Ok((block, TransferPath::Driver));
        }
        if let Some(fresh) = NonNull::new(block.data()) {
            // SAFETY: a block of as many bytes, just made, which nobody else has.
            unsafe { ring_buffer::prepare(self, fresh, bytes, ring) };
        }
        Ok((block, TransferPath::Ring(ring)))
    }

    /// A block that is pinned, or is to be.
    fn recycled(
        &'static self,
        buffer: DownloadBuffer,
        bytes: usize,
        ring: RingOptions,
    ) -> Option<(PoolBlock, TransferPath)> {
        let trust = |change: fn(usize) -> Option<usize>| {
            TRUSTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
        };
        let mut block = match buffer {
            DownloadBuffer::Kept => PoolBlock::idle(bytes, BlockUse::Pinned)?,
            DownloadBuffer::Pin if bytes >= KEPT => PoolBlock::idle(bytes, BlockUse::Plain)?,
            DownloadBuffer::Pin if trust(|left| left.checked_sub(1)) => PoolBlock::new(bytes)?,
            _ => return None,
        };
        if buffer == DownloadBuffer::Kept {
            trust(|left| Some((left + 1).min(TRUST)));
            return Some((block, TransferPath::Recycled));
        }
        touch(&mut block, ring.threads);
        let transfer_path = pin(self, &mut block, BlockUse::Pinned)
            .map_or(TransferPath::Ring(ring), |()| TransferPath::Pinned);
        Some((block, transfer_path))
    }

    /// The road into memory of somebody else's, or out of it.
    pub fn transfer_path(&'static self, data: *const u8, bytes: usize, ring: RingOptions) -> TransferPath {
        match bytes {
            0..SMALL => TransferPath::Driver,
            _ if is_pinned(data, bytes) => TransferPath::Pinned,
            _ => TransferPath::Ring(ring),
        }
    }
}

/// Whether the driver knows so many bytes of the host's memory from this address on.
pub fn is_pinned(data: *const u8, bytes: usize) -> bool {
    let known = |data: *const u8| {
        device_of_address(data as usize).is_ok_and(|device| device.kind == DeviceKind::CudaHost)
    };
    known(data) && known(data.wrapping_add(bytes.saturating_sub(1)))
}

/// Pins a block. Fresh memory should be touched first, because the driver would do it on one thread.
///
/// # Errors
/// When the driver refuses; the block is then as it was.
pub(crate) fn pin(gpu: &'static Gpu, block: &mut PoolBlock, of: BlockUse) -> Result<()> {
    if block.is_pinned() {
        return Ok(());
    }
    let gpu = *KNOWS.get_or_init(|| gpu);
    let _entered = gpu.enter()?;
    // SAFETY: a block of ours, as long as it says; `unpin` is what undoes it.
    unsafe {
        gpu.driver.register(block.data().as_ptr().cast(), block.bytes(), PORTABLE)?;
        block.pin(unpin, of);
    }
    Ok(())
}

/// Sees that the system has given a block's pages out, on so many threads. What was in them is lost.
pub(crate) fn touch(block: &mut PoolBlock, threads: usize) {
    let bytes = block.bytes();
    // SAFETY: a block of as many bytes, borrowed until all threads are done.
    let touched = unsafe { Touched::new(block.data(), bytes) };
    workers::run_parallel(threads.min(bytes / TOUCHED), || touched.go_on());
}

/// Fresh memory whose pages several threads ask the system for.
pub(crate) struct Touched {
    data: NonNull<u8>,
    bytes: usize,
    next: AtomicUsize,
}

// SAFETY: each thread touches other pages, of memory that nobody else uses (`Touched::new`).
unsafe impl Sync for Touched {}

impl Touched {
    /// # Safety
    /// So many bytes are writable, and nobody else uses them, for as long as this lives. What is in them is lost.
    pub(crate) unsafe fn new(data: NonNull<u8>, bytes: usize) -> Self {
        Self { data, bytes, next: AtomicUsize::new(0) }
    }

    /// Goes on until all are touched, or somebody says that it is enough.
    pub(crate) fn go_on(&self) {
        while let from = self.next.fetch_add(TOUCHED, Ordering::Relaxed)
            && from < self.bytes
        {
            for page in (from..self.bytes.min(from + TOUCHED)).step_by(PAGE) {
                // SAFETY: a byte of the memory that `new`'s caller vouched for; this thread alone has the page.
                unsafe { self.data.add(page).write_volatile(0) };
            }
        }
    }

    /// Says that it is enough.
    pub(crate) fn stop(&self) {
        self.next.store(self.bytes, Ordering::Relaxed);
    }
}

/// # Safety
/// The memory was pinned here, with this size, and nobody uses it.
unsafe fn unpin(data: NonNull<u8>, _bytes: usize) -> bool {
    // The child of a fork has memory of its own at the same place, which its driver does not know.
    if Driver::get().is_err() {
        return true;
    }
    let Some(gpu) = KNOWS.get() else { return false };
    let Ok(_entered) = gpu.enter() else { return false };
    // SAFETY: the caller's contract. The driver waits for copies that are under way.
    unsafe { gpu.driver.unregister(data.as_ptr().cast()) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_land_where_it_pays() {
        let choose = |bytes, pinned: bool, plain: bool, may_pin, trusted| {
            choose(bytes, |of| if of == BlockUse::Pinned { pinned } else { plain }, may_pin, trusted)
        };
        // Little is the driver's, whatever lies idle.
        assert_eq!(choose(SMALL - 1, true, true, true, true), DownloadBuffer::Small);
        for bytes in [SMALL, KEPT - 1, KEPT, 1 << 30] {
            assert_eq!(choose(bytes, true, true, false, false), DownloadBuffer::Kept);
        }
        // What was used before is pinned, if that is allowed.
        assert_eq!(choose(KEPT, false, true, true, false), DownloadBuffer::Pin);
        assert_eq!(choose(KEPT, false, true, false, true), DownloadBuffer::Fresh);
        assert_eq!(choose(KEPT, false, false, true, true), DownloadBuffer::Fresh);
        // What is too small for the pool is pinned on trust.
        assert_eq!(choose(KEPT - 1, false, true, true, true), DownloadBuffer::Pin);
        assert_eq!(choose(KEPT - 1, false, true, true, false), DownloadBuffer::Unpinned);
        assert_eq!(choose(KEPT - 1, false, true, false, true), DownloadBuffer::Unpinned);
    }
}
