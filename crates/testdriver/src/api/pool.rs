//! Memory pools that the program creates. tensorferry exports nothing from them; tests check that it refuses.

use crate::abi::{FILE_DESCRIPTOR_HANDLE, PoolProperties};
use crate::devices::{current_device, ordinal_of};
use crate::handles::new_handle;
use crate::memfd::MemfdAllocator;
use crate::memory::BlockOrigin;
use crate::state::{MemoryPool, driver_functions};
use crate::status::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, success_or};
use std::ffi::c_void;

driver_functions! {
    cuMemPoolCreate(pool: *mut *mut c_void, properties: *const PoolProperties) |driver| {
        let properties = &*properties;
        let Some(device) = properties.device() else { return INVALID_VALUE };
        let is_exportable = properties.handle_types == FILE_DESCRIPTOR_HANDLE;
        let handle = new_handle();
        let files = MemfdAllocator::default();
        driver.pools.insert(handle, MemoryPool { device, is_exportable, files });
        *pool = std::ptr::without_provenance_mut(handle);
        SUCCESS
    }
    cuMemPoolDestroy(pool: *mut c_void) |driver| {
        success_or(driver.pools.remove(&(pool as usize)).is_some(), INVALID_VALUE)
    }
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: *mut c_void, _stream: *mut c_void) |driver| {
        let Some(found) = driver.pools.get_mut(&(pool as usize)) else { return INVALID_VALUE };
        if bytes == 0 { return INVALID_VALUE; }
        let Some(mapping) = found.files.allocate(bytes) else { return OUT_OF_MEMORY };
        let device = ordinal_of(found.device).unwrap_or(current_device());
        let origin = BlockOrigin::Pool(pool as usize);
        *address = driver.memory.insert_mapping(mapping, bytes, Some(device), origin) as u64;
        SUCCESS
    }
}
