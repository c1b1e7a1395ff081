//! Pinned (page-locked) host memory, which the GPU reads and writes at the full speed of the link.
//!
//! A block of the host pool is pinned as a whole, in one call: the driver rejects a copy that crosses from one pinned range
//! into another, and a framework may copy from our result.

use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::memory::device_of_address;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::pool::{BlockUse, PoolBlock};
use tensorferry_core::{Result, workers};

/// Huge pages of x86-64 and of ARM with 4 KiB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The smallest page of any supported system.
const PAGE_BYTES: usize = 4 << 10;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all contexts.
const PORTABLE: u32 = 1;

/// The GPU in whose context all memory is pinned: the first that a transfer used.
static PINNING_GPU: OnceLock<&'static Gpu> = OnceLock::new();

/// Whether this range of host memory is pinned.
pub fn is_pinned(data: *const u8, bytes: usize) -> bool {
    let is_known = |data: *const u8| {
        device_of_address(data as usize).is_ok_and(|device| device.kind == DeviceKind::CudaHost)
    };
    is_known(data) && is_known(data.wrapping_add(bytes.saturating_sub(1)))
}

/// Pins a block. Prefault fresh memory first, because the driver would do it on one thread.
///
/// # Errors
/// When the driver refuses; the block is then unchanged.
pub(crate) fn pin(gpu: &'static Gpu, block: &mut PoolBlock, block_use: BlockUse) -> Result<()> {
    if block.is_pinned() {
        return Ok(());
    }
    let gpu = *PINNING_GPU.get_or_init(|| gpu);
    let _entered = gpu.enter()?;
    // SAFETY: a block of ours, as long as it says; `unpin` is what undoes it.
    unsafe {
        gpu.driver.register(block.data().as_ptr().cast(), block.bytes(), PORTABLE)?;
        block.pin(unpin, block_use);
    }
    Ok(())
}

/// # Safety
/// The memory was pinned here, with this size, and nobody uses it.
unsafe fn unpin(data: NonNull<u8>, _bytes: usize) -> bool {
    // A forked child has memory of its own at this address, which its driver does not know.
    if Driver::get().is_err() {
        return true;
    }
    let Some(gpu) = PINNING_GPU.get() else { return false };
    let Ok(_entered) = gpu.enter() else { return false };
    // SAFETY: the caller's contract. The driver waits for copies in flight.
    unsafe { gpu.driver.unregister(data.as_ptr().cast()) }.is_ok()
}

/// Makes the system allocate the pages of a block, on several threads. The content is lost.
pub(crate) fn prefault(block: &mut PoolBlock, threads: usize) {
    let bytes = block.bytes();
    // SAFETY: a block of as many bytes, borrowed until all threads are done.
    let job = unsafe { PrefaultJob::new(block.data(), bytes) };
    workers::run_parallel(threads.min(bytes / HUGE_PAGE_BYTES), || job.run());
}

/// Fresh memory whose pages several threads touch, so that the system allocates them in parallel.
pub(crate) struct PrefaultJob {
    data: NonNull<u8>,
    bytes: usize,
    next: AtomicUsize,
}

// SAFETY: each thread touches other pages, of memory that nobody else uses (`PrefaultJob::new`).
unsafe impl Sync for PrefaultJob {}

impl PrefaultJob {
    /// # Safety
    /// The bytes are writable, and nobody else uses them, for as long as this lives. Their content is lost.
    pub(crate) unsafe fn new(data: NonNull<u8>, bytes: usize) -> Self {
        Self { data, bytes, next: AtomicUsize::new(0) }
    }

    /// Touches pages until all are touched or [`PrefaultJob::stop`] is called. Several threads may call it.
    pub(crate) fn run(&self) {
        while let from = self.next.fetch_add(HUGE_PAGE_BYTES, Ordering::Relaxed)
            && from < self.bytes
        {
            for page in (from..self.bytes.min(from + HUGE_PAGE_BYTES)).step_by(PAGE_BYTES) {
                // SAFETY: a byte of the memory that `new`'s caller vouched for; this thread alone has the page.
                unsafe { self.data.add(page).write_volatile(0) };
            }
        }
    }

    /// Makes [`PrefaultJob::run`] return early on all threads.
    pub(crate) fn stop(&self) {
        self.next.store(self.bytes, Ordering::Relaxed);
    }
}
