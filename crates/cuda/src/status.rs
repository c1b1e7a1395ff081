//! The driver's status codes, and the errors that they become.

use crate::hints;
use std::ffi::{CStr, c_int};
use tensorferry_core::{Error, ErrorKind, hints as core_hints};

/// `CUresult`. An integer, because newer drivers have codes that an enum would not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) c_int);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const CAPTURE_IMPLICIT: Self = Self(906);

    /// Whether a stream capture forbids the call.
    pub(crate) fn is_capture_error(self) -> bool {
        (900..=908).contains(&self.0)
    }
}

/// The error for a status of a driver function. `description` is the driver's own.
pub(crate) fn error(symbol: &CStr, status: Status, description: &str) -> Error {
    let function = symbol.to_string_lossy();
    match status {
        Status::OUT_OF_MEMORY => {
            Error::new(ErrorKind::OutOfMemory, format!("the GPU is out of memory ({description})"))
                .with_hint(core_hints::FREE_MEMORY)
        }
        Status::NO_DEVICE => Error::new(ErrorKind::UnsupportedDevice, "this process sees no CUDA GPU")
            .with_hint(hints::CHECK_VISIBLE_DEVICES),
        Status::INVALID_DEVICE => {
            Error::new(ErrorKind::UnsupportedDevice, format!("the GPU does not exist ({description})"))
                .with_hint(hints::CHOOSE_VISIBLE_DEVICE)
        }
        Status::NOT_SUPPORTED => Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the GPU does not support {function} ({description})"),
        )
        .with_hint(hints::UPDATE_DRIVER),
        // The error of a kernel surfaces in a later call, which is rarely the one that caused it.
        _ => Error::new(ErrorKind::DeviceFailed, format!("CUDA failed in {function}: {description}"))
            .with_hint(hints::FIND_FAILED_KERNEL),
    }
}
