//! Virtual memory management: physical memory, address reservations, mappings and file descriptors.

use crate::abi::{
    ACCESS_READ, ACCESS_READ_WRITE, AccessDescription, AllocationProperties, DEVICE_LOCATION,
    FILE_DESCRIPTOR_HANDLE, MemoryLocation, PINNED_ALLOCATION,
};
use crate::devices::{DEVICE_MEMORY_BYTES, ordinal_of, visible_devices};
use crate::state::driver_functions;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, success_or};
use crate::virtual_memory::GRANULARITY_BYTES;
use std::ffi::{c_int, c_void};
use std::os::fd::{IntoRawFd, RawFd};

driver_functions! {
    cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const AllocationProperties, _option: c_int) |driver| {
        if (*properties).device().is_none() { return INVALID_VALUE; }
        *bytes = GRANULARITY_BYTES;
        SUCCESS
    }
    cuMemCreate(handle: *mut u64, bytes: usize, properties: *const AllocationProperties, flags: u64) |driver| {
        let Some(device) = (*properties).device() else { return INVALID_VALUE };
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY_BYTES) || flags != 0 { return INVALID_VALUE; }
        if driver.used_bytes() + bytes > DEVICE_MEMORY_BYTES { return OUT_OF_MEMORY; }
        let is_exportable = (*properties).handle_types == FILE_DESCRIPTOR_HANDLE;
        let Some(created) = driver.virtual_memory.create(bytes, device, is_exportable) else { return OUT_OF_MEMORY };
        *handle = created;
        SUCCESS
    }
    cuMemRelease(handle: u64) |driver| {
        success_or(driver.virtual_memory.release(handle), INVALID_VALUE)
    }
    cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _hint: u64, flags: u64) |driver| {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY_BYTES) || flags != 0 { return INVALID_VALUE; }
        let Some(start) = driver.virtual_memory.reserve_address(bytes) else { return OUT_OF_MEMORY };
        *address = start as u64;
        SUCCESS
    }
    cuMemAddressFree(address: u64, bytes: usize) |driver| {
        success_or(driver.virtual_memory.free_address(address as usize, bytes), INVALID_VALUE)
    }
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) |driver| {
        if offset != 0 || flags != 0 { return INVALID_VALUE; }
        success_or(driver.virtual_memory.map(address as usize, bytes, handle), INVALID_VALUE)
    }
    cuMemUnmap(address: u64, bytes: usize) |driver| {
        success_or(driver.virtual_memory.unmap(address as usize, bytes), INVALID_VALUE)
    }
    cuMemSetAccess(address: u64, bytes: usize, access: *const AccessDescription, count: usize) |driver| {
        for description in std::slice::from_raw_parts(access, count) {
            let AccessDescription { location, flags } = description;
            if location.kind != DEVICE_LOCATION || location.id as usize >= visible_devices().len() {
                return INVALID_DEVICE;
            }
            if !matches!(*flags, ACCESS_READ | ACCESS_READ_WRITE) { return INVALID_VALUE; }
            let is_writable = *flags == ACCESS_READ_WRITE;
            if !driver.virtual_memory.protect(address as usize, bytes, is_writable) { return INVALID_VALUE; }
        }
        SUCCESS
    }
    cuMemRetainAllocationHandle(handle: *mut u64, address: *mut c_void) |driver| {
        let Some(found) = driver.virtual_memory.retain(address as usize) else { return INVALID_VALUE };
        *handle = found;
        SUCCESS
    }
    cuMemGetAllocationPropertiesFromHandle(into: *mut AllocationProperties, handle: u64) |driver| {
        let Some(found) = driver.virtual_memory.memory(handle) else { return INVALID_VALUE };
        let id = ordinal_of(found.device).map_or(-1, |device| device as c_int);
        *into = AllocationProperties {
            kind: PINNED_ALLOCATION,
            handle_types: if found.is_exportable { FILE_DESCRIPTOR_HANDLE } else { 0 },
            location: MemoryLocation { kind: DEVICE_LOCATION, id },
            security: std::ptr::null_mut(),
            flags: [0; 8],
        };
        SUCCESS
    }
    cuMemExportToShareableHandle(into: *mut RawFd, handle: u64, kind: c_int, flags: u64) |driver| {
        if kind != FILE_DESCRIPTOR_HANDLE || flags != 0 { return INVALID_VALUE; }
        let Some(descriptor) = driver.virtual_memory.export(handle) else { return INVALID_VALUE };
        *into = descriptor.into_raw_fd();
        SUCCESS
    }
    cuMemImportFromShareableHandle(handle: *mut u64, descriptor: *mut c_void, kind: c_int) |driver| {
        if kind != FILE_DESCRIPTOR_HANDLE { return INVALID_VALUE; }
        let imported = driver.virtual_memory.import(descriptor as usize as RawFd);
        let Some(imported) = imported else { return INVALID_VALUE };
        *handle = imported;
        SUCCESS
    }
}
