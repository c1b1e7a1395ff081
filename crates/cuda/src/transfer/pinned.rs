//! Pinned (page-locked) host memory, which the GPU reads and writes at the full speed of the link.
//!
//! A block of the host pool is pinned as a whole, in one call: the driver rejects a copy that crosses from one pinned range
//! into another, and a framework may copy from our result.

use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::memory::device_of_address;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice::{self, ChunksMut};
use std::sync::{Mutex, OnceLock, PoisonError};
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
    // SAFETY: `cuMemHostRegister` needs memory that stays mapped until it is unregistered. The block is mapped with its
    // size, and the pool unmaps it only after `unpin` returned true (`PoolBlock::pin`). `unpin` unregisters this address
    // in the context that registered it, from any thread, and the driver then waits for copies in flight.
    unsafe {
        gpu.driver.register(block.data().as_ptr().cast(), block.bytes(), PORTABLE)?;
        block.pin(unpin, block_use);
    }
    Ok(())
}

/// # Safety
/// [`pin`] registered the memory, and nobody uses it.
unsafe fn unpin(data: NonNull<u8>, _bytes: usize) -> bool {
    // A forked child has memory of its own at this address, which its driver does not know.
    if Driver::get().is_err() {
        return true;
    }
    let Some(gpu) = PINNING_GPU.get() else { return false };
    let Ok(_entered) = gpu.enter() else { return false };
    // SAFETY: `cuMemHostUnregister` needs the address that `cuMemHostRegister` was given, which is this function's
    // contract. The driver waits for copies in flight.
    unsafe { gpu.driver.unregister(data.as_ptr().cast()) }.is_ok()
}

/// Makes the system allocate the pages of a block, on several threads. The content is lost.
pub(crate) fn prefault(block: &mut PoolBlock, threads: usize) {
    let bytes = block.bytes();
    // SAFETY: a slice needs memory that is mapped, that nobody else uses, and that is at most `isize::MAX` long. The block is
    // mapped with this size, and it has one owner, which is borrowed until the end of this function.
    let memory = unsafe { slice::from_raw_parts_mut(block.data().as_ptr().cast::<MaybeUninit<u8>>(), bytes) };
    let job = PrefaultJob::new(memory);
    workers::run_parallel(threads.min(bytes / HUGE_PAGE_BYTES), || job.run());
}

/// Fresh memory whose pages several threads touch, so that the system allocates them in parallel.
pub(crate) struct PrefaultJob<'a>(Mutex<ChunksMut<'a, MaybeUninit<u8>>>);

impl<'a> PrefaultJob<'a> {
    /// The content of the memory is lost.
    pub(crate) fn new(memory: &'a mut [MaybeUninit<u8>]) -> Self {
        Self(Mutex::new(memory.chunks_mut(HUGE_PAGE_BYTES)))
    }

    /// Touches pages until all are touched or [`PrefaultJob::stop`] is called. Several threads may call it.
    pub(crate) fn run(&self) {
        while let Some(chunk) = self.next() {
            for page in chunk.chunks_mut(PAGE_BYTES) {
                page[0] = MaybeUninit::new(0);
            }
            // The compiler must not remove writes that nothing reads.
            std::hint::black_box(chunk);
        }
    }

    fn next(&self) -> Option<&'a mut [MaybeUninit<u8>]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Makes [`PrefaultJob::run`] return early on all threads.
    pub(crate) fn stop(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = [].chunks_mut(HUGE_PAGE_BYTES);
    }
}
