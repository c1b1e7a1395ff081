//! Queries about addresses.

use crate::abi::pointer_attribute::{
    ALLOWED_HANDLE_TYPES, BUFFER_ID, DEVICE_ORDINAL, IS_LEGACY_IPC_CAPABLE, IS_MANAGED, MAPPED,
    MAPPING_BASE_ADDRESS, MAPPING_SIZE, MEMORY_TYPE, MEMPOOL_HANDLE, RANGE_SIZE, RANGE_START,
};
use crate::abi::{DEVICE_MEMORY, FILE_DESCRIPTOR_HANDLE, HOST_MEMORY};
use crate::devices::ordinal_of;
use crate::memory::BlockOrigin;
use crate::state::{Driver, driver_functions};
use crate::status::{INVALID_VALUE, NOT_FOUND, SUCCESS};
use std::ffi::{c_int, c_uint, c_void};

/// Buffer ids of virtual memory begin here, above those of blocks.
const FIRST_VIRTUAL_BUFFER_ID: u64 = 1 << 32;
/// The handle of the default pool.
const DEFAULT_POOL_HANDLE: usize = 0x10;

driver_functions! {
    cuPointerGetAttributes(count: c_uint, attributes: *const c_int, into: *const *mut c_void, address: u64) |driver| {
        for index in 0..count as usize {
            let attribute = *attributes.add(index);
            let value = match pointer_attribute(driver, attribute, address as usize) {
                Ok(value) => value,
                Err(status) => return status,
            };
            match attribute {
                BUFFER_ID | RANGE_START | RANGE_SIZE | ALLOWED_HANDLE_TYPES | MEMPOOL_HANDLE | MAPPING_SIZE
                | MAPPING_BASE_ADDRESS => into.add(index).read().cast::<u64>().write(value),
                _ => into.add(index).read().cast::<c_uint>().write(value as c_uint),
            }
        }
        SUCCESS
    }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) |driver| {
        let block = driver.memory.block_of(address as usize).map(|block| (block.start, block.bytes));
        let Some((start, length)) = block.or_else(|| driver.virtual_memory.reservation_of(address as usize)) else {
            return NOT_FOUND;
        };
        if !base.is_null() { *base = start as u64; }
        if !bytes.is_null() { *bytes = length; }
        SUCCESS
    }
}

/// The value of an attribute of `cuPointerGetAttributes`.
fn pointer_attribute(driver: &Driver, attribute: c_int, address: usize) -> Result<u64, c_int> {
    if let Some(mapping) = driver.virtual_memory.mapping_of(address) {
        let (device, is_exportable) = driver.virtual_memory.device_of(address).unwrap_or_default();
        let (reserved_start, reserved_bytes) =
            driver.virtual_memory.reservation_of(address).unwrap_or_default();
        return Ok(match attribute {
            MEMORY_TYPE => DEVICE_MEMORY,
            BUFFER_ID => FIRST_VIRTUAL_BUFFER_ID | mapping.handle,
            DEVICE_ORDINAL => ordinal_of(device).map_or(u64::MAX, |device| device as u64),
            RANGE_START => reserved_start as u64,
            RANGE_SIZE => reserved_bytes as u64,
            MAPPED => 1,
            ALLOWED_HANDLE_TYPES if is_exportable => FILE_DESCRIPTOR_HANDLE as u64,
            MAPPING_SIZE => mapping.bytes as u64,
            MAPPING_BASE_ADDRESS => mapping.start as u64,
            IS_MANAGED | IS_LEGACY_IPC_CAPABLE | MEMPOOL_HANDLE | ALLOWED_HANDLE_TYPES => 0,
            _ => return Err(INVALID_VALUE),
        });
    }
    let Some(block) = driver.memory.block_of(address) else {
        let is_pinned = attribute == MEMORY_TYPE && driver.memory.is_registered(address);
        return Ok(if is_pinned { HOST_MEMORY } else { 0 });
    };
    let pool = if let BlockOrigin::Pool(pool) = block.origin { Some(pool) } else { None };
    Ok(match attribute {
        MEMORY_TYPE if block.device.is_some() => DEVICE_MEMORY,
        MEMORY_TYPE => HOST_MEMORY,
        BUFFER_ID => block.buffer_id,
        DEVICE_ORDINAL => block.device.unwrap_or(0) as u64,
        IS_LEGACY_IPC_CAPABLE => u64::from(block.origin == BlockOrigin::Allocated),
        RANGE_START | MAPPING_BASE_ADDRESS => block.start as u64,
        RANGE_SIZE | MAPPING_SIZE => block.bytes as u64,
        MAPPED => 1,
        ALLOWED_HANDLE_TYPES => {
            let created = pool.and_then(|pool| driver.pools.get(&pool));
            u64::from(created.is_some_and(|pool| pool.is_exportable))
        }
        MEMPOOL_HANDLE => pool.map_or(0, |pool| pool.max(DEFAULT_POOL_HANDLE) as u64),
        IS_MANAGED => 0,
        _ => return Err(INVALID_VALUE),
    })
}
