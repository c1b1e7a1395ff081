//! Initialisation, error texts, devices and contexts.

use crate::control::wait_while_held;
use crate::devices::{context_of, current_context, pop_context, push_context, visible_devices};
use crate::state::driver_functions;
use crate::status::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, LAUNCH_FAILED, OUT_OF_MEMORY, SUCCESS, success_or,
};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

/// `cuDriverGetVersion` of CUDA 13.0.
const DRIVER_VERSION: c_int = 13_000;

/// Device attributes that both devices have: virtual memory management and its file descriptors, memory pools and their
/// file descriptors, interprocess events.
const SUPPORTED_ATTRIBUTES: [c_int; 5] = [102, 103, 115, 119, 125];

driver_functions! {
    cuInit(_flags: c_uint) |driver| { SUCCESS }
    cuDriverGetVersion(version: *mut c_int) |driver| { *version = DRIVER_VERSION; SUCCESS }
    cuGetErrorName(status: c_int, text: *mut *const c_char) |driver| {
        *text = match status {
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
            LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
            _ => return INVALID_VALUE,
        }
        .as_ptr();
        SUCCESS
    }
    cuGetErrorString(status: c_int, text: *mut *const c_char) |driver| {
        *text = match status {
            OUT_OF_MEMORY => c"out of memory",
            INVALID_DEVICE => c"invalid device ordinal",
            LAUNCH_FAILED => c"unspecified launch failure",
            _ => return INVALID_VALUE,
        }
        .as_ptr();
        SUCCESS
    }
    cuDeviceGetCount(count: *mut c_int) |driver| { *count = visible_devices().len() as c_int; SUCCESS }
    cuDeviceGet(device: *mut c_int, index: c_int) |driver| {
        if !(0..visible_devices().len() as c_int).contains(&index) { return INVALID_DEVICE; }
        *device = index;
        SUCCESS
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |driver| {
        let Some(&index) = visible_devices().get(device as usize) else { return INVALID_DEVICE };
        *uuid = [index as u8 + 0xa0; 16];
        SUCCESS
    }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) |driver| {
        if device as usize >= visible_devices().len() { return INVALID_DEVICE; }
        *value = c_int::from(SUPPORTED_ATTRIBUTES.contains(&attribute));
        SUCCESS
    }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) |driver| {
        *context = ptr::without_provenance_mut(context_of(device as usize));
        SUCCESS
    }
    cuCtxPushCurrent_v2(context: *mut c_void) |driver| { push_context(context as usize); SUCCESS }
    cuCtxPopCurrent_v2(context: *mut *mut c_void) |driver| {
        let popped = pop_context();
        *context = ptr::without_provenance_mut(popped.unwrap_or(0));
        success_or(popped.is_some(), INVALID_CONTEXT)
    }
    cuCtxGetCurrent(context: *mut *mut c_void) |driver| {
        *context = ptr::without_provenance_mut(current_context().unwrap_or(0));
        SUCCESS
    }
    cuCtxSynchronize() |driver| {
        wait_while_held();
        driver.timeline.finish_all();
        SUCCESS
    }
    cuCtxRecordEvent(_context: *mut c_void, event: *mut c_void) |driver| {
        if !driver.capture.streams.is_empty() { return driver.capture.invalidate(); }
        driver.timeline.record_all(event as usize);
        SUCCESS
    }
    cuCtxWaitEvent(_context: *mut c_void, event: *mut c_void) |driver| {
        if !driver.capture.streams.is_empty() { return driver.capture.invalidate(); }
        driver.timeline.wait_all(event as usize);
        SUCCESS
    }
}
