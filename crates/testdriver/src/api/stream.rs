//! Streams, events and captures.

use crate::handles::new_handle;
use crate::ipc_event::IpcEvent;
use crate::state::{complete_after_delay, driver_functions};
use crate::status::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, SUCCESS, success_or};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

driver_functions! {
    cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) |driver| {
        *stream = ptr::without_provenance_mut(new_handle());
        SUCCESS
    }
    cuThreadExchangeStreamCaptureMode(_mode: *mut c_int) |driver| { SUCCESS }
    cuStreamQuery(stream: *mut c_void) |driver| {
        if driver.capture.contains(stream as usize) { return driver.capture.invalidate(); }
        success_or(driver.timeline.is_idle(stream as usize), NOT_READY)
    }
    cuStreamSynchronize(stream: *mut c_void) |driver| {
        if driver.capture.contains(stream as usize) { return driver.capture.invalidate(); }
        driver.timeline.finish(stream as usize);
        SUCCESS
    }
    cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) |driver| {
        // A captured stream cannot wait for one that is not captured.
        let recorded = driver.timeline.streams_of(event as usize);
        let is_outside = recorded.iter().any(|&other| !driver.capture.contains(other));
        if driver.capture.contains(stream as usize) && is_outside { return driver.capture.invalidate(); }
        driver.timeline.wait(stream as usize, event as usize);
        SUCCESS
    }
    cuStreamIsCapturing(stream: *mut c_void, state: *mut c_int) |driver| {
        *state = c_int::from(driver.capture.contains(stream as usize));
        SUCCESS
    }
    cuEventCreate(event: *mut *mut c_void, flags: c_uint) |driver| {
        let handle = new_handle();
        if flags & INTERPROCESS != 0 {
            if flags & DISABLE_TIMING == 0 { return INVALID_VALUE; }
            let Some(ipc_event) = IpcEvent::new() else { return OUT_OF_MEMORY };
            driver.timeline.insert_ipc_event(handle, ipc_event);
        }
        *event = ptr::without_provenance_mut(handle);
        SUCCESS
    }
    cuEventRecord(event: *mut c_void, stream: *mut c_void) |driver| {
        if driver.timeline.is_imported(event as usize) { return INVALID_HANDLE; }
        driver.timeline.record(event as usize, stream as usize);
        if driver.timeline.ipc_event(event as usize).is_some() { complete_after_delay(event as usize); }
        SUCCESS
    }
    cuEventQuery(event: *mut c_void) |driver| {
        success_or(driver.timeline.is_complete(event as usize), NOT_READY)
    }
    cuEventSynchronize(event: *mut c_void) |driver| {
        driver.timeline.finish_event(event as usize);
        SUCCESS
    }
    cuEventDestroy_v2(event: *mut c_void) |driver| {
        driver.timeline.destroy_event(event as usize);
        SUCCESS
    }
}
