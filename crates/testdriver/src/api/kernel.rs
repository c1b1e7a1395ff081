//! Modules and kernel launches.

use crate::handles::new_handle;
use crate::kernels;
use crate::state::driver_functions;
use crate::status::{INVALID_VALUE, NOT_FOUND, SUCCESS};
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr;

driver_functions! {
    cuModuleLoadData(module: *mut *mut c_void, _image: *const c_void) |driver| {
        *module = ptr::without_provenance_mut(new_handle());
        SUCCESS
    }
    cuModuleGetFunction(function: *mut *mut c_void, _module: *mut c_void, name: *const c_char) |driver| {
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        if !kernels::is_known(&name) { return NOT_FOUND; }
        driver.kernels.push(name);
        *function = ptr::without_provenance_mut(driver.kernels.len());
        SUCCESS
    }
    cuLaunchKernel(
        function: *mut c_void, _grid_x: c_uint, _grid_y: c_uint, grid_z: c_uint, _block_x: c_uint, _block_y: c_uint,
        _block_z: c_uint, _shared: c_uint, stream: *mut c_void, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) |driver| {
        let Some(name) = driver.kernels.get((function as usize).wrapping_sub(1)) else { return INVALID_VALUE };
        let work = kernels::work(name, grid_z, arguments);
        driver.timeline.queue(stream as usize, work);
        SUCCESS
    }
}
