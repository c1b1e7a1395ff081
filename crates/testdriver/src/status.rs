//! `CUresult` codes.

use std::ffi::c_int;

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_FOUND: c_int = 500;
pub(crate) const NOT_READY: c_int = 600;
pub(crate) const LAUNCH_FAILED: c_int = 719;
pub(crate) const CAPTURE_UNSUPPORTED: c_int = 900;

/// The status of a call that returns nothing else.
pub(crate) fn success_or(is_success: bool, status: c_int) -> c_int {
    if is_success { SUCCESS } else { status }
}
