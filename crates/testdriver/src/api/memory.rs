//! Allocation, host memory and copies.

use crate::devices::{DEVICE_MEMORY_BYTES, current_device};
use crate::state::{Driver, driver_functions};
use crate::status::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, success_or};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

driver_functions! {
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver| {
        *free = DEVICE_MEMORY_BYTES.saturating_sub(driver.used_bytes());
        *total = DEVICE_MEMORY_BYTES;
        SUCCESS
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) |driver| {
        match allocate(driver, bytes, false) {
            Ok(start) => { *address = start; SUCCESS }
            Err(status) => status,
        }
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: *mut c_void) |driver| {
        match allocate(driver, bytes, true) {
            Ok(start) => { *address = start; SUCCESS }
            Err(status) => status,
        }
    }
    cuMemFreeAsync(address: u64, stream: *mut c_void) |driver| {
        let Some(overwrite) = driver.memory.free(address as usize) else { return INVALID_VALUE };
        driver.timeline.queue(stream as usize, overwrite);
        SUCCESS
    }
    cuMemFree_v2(address: u64) |driver| { free(driver, address as usize) }
    cuMemHostAlloc(data: *mut *mut c_void, bytes: usize, _flags: c_uint) |driver| {
        let Some(start) = driver.memory.allocate(bytes, None, false) else { return OUT_OF_MEMORY };
        *data = ptr::with_exposed_provenance_mut(start);
        SUCCESS
    }
    cuMemFreeHost(data: *mut c_void) |driver| { free(driver, data as usize) }
    cuMemHostRegister_v2(data: *mut c_void, bytes: usize, _flags: c_uint) |driver| {
        success_or(driver.memory.register(data as usize, bytes), INVALID_VALUE)
    }
    cuMemHostUnregister(data: *mut c_void) |driver| {
        success_or(driver.memory.unregister(data as usize), INVALID_VALUE)
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) |driver| {
        queue_copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) |driver| {
        queue_copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) |driver| {
        queue_copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyPeerAsync(
        to: u64, _to_context: *mut c_void, from: u64, _from_context: *mut c_void, bytes: usize, stream: *mut c_void
    ) |driver| {
        queue_copy(driver, to as usize, from as usize, bytes, stream)
    }
}

/// Allocates memory of the current device, from the default pool or not. Returns the address, or the status of the call.
fn allocate(driver: &mut Driver, bytes: usize, from_pool: bool) -> Result<u64, c_int> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if driver.used_bytes() + bytes > DEVICE_MEMORY_BYTES {
        return Err(OUT_OF_MEMORY);
    }
    let start = driver.memory.allocate(bytes, Some(current_device()), from_pool);
    start.map(|start| start as u64).ok_or(OUT_OF_MEMORY)
}

/// Frees memory without waiting for queued work.
fn free(driver: &mut Driver, address: usize) -> c_int {
    let Some(overwrite) = driver.memory.free(address) else { return INVALID_VALUE };
    overwrite();
    SUCCESS
}

/// Queues a copy of bytes.
///
/// # Safety
/// `bytes` are readable at `from` and writable at `to` until the stream has passed the copy.
unsafe fn queue_copy(
    driver: &mut Driver,
    to: usize,
    from: usize,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let work = Box::new(move || {
        let from: *const u8 = ptr::with_exposed_provenance(from);
        // SAFETY: `copy_to` needs `bytes` that are readable at `from` and writable at `to`. They are until the stream has
        // passed this work, by the contract of `queue_copy`.
        unsafe { from.copy_to(ptr::with_exposed_provenance_mut(to), bytes) }
    });
    driver.timeline.queue(stream as usize, work);
    SUCCESS
}
