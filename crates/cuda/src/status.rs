//! What the driver answers, and which of our errors that is.

use std::ffi::{CStr, c_int};
use tensorferry_core::{Error, ErrorKind};

/// A `CUresult`. A number, because a newer driver has more of them than any list.
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

    /// Whether it says that a stream is being captured.
    pub(crate) fn is_of_a_capture(self) -> bool {
        (900..=908).contains(&self.0)
    }
}

/// The error behind a status.
pub(crate) fn error(symbol: &CStr, status: Status, words: &str) -> Error {
    let call = symbol.to_string_lossy();
    match status {
        Status::OUT_OF_MEMORY => {
            Error::new(ErrorKind::OutOfMemory, format!("the GPU has no memory left ({words})"))
                .with_advice("free something first, or convert a slice at a time")
        }
        Status::NO_DEVICE => Error::new(ErrorKind::UnsupportedDevice, "this process sees no CUDA GPU")
            .with_advice("check CUDA_VISIBLE_DEVICES and nvidia-smi, or keep the tensor on the CPU"),
        Status::INVALID_DEVICE => {
            Error::new(ErrorKind::UnsupportedDevice, format!("there is no such GPU ({words})"))
                .with_advice("name one that nvidia-smi lists")
        }
        Status::NOT_SUPPORTED => {
            Error::new(ErrorKind::UnsupportedDevice, format!("the GPU has no {call} ({words})"))
                .with_advice("update the NVIDIA driver")
        }
        // Kernels fail where somebody next asks; what failed is rarely what was called.
        _ => Error::new(ErrorKind::DeviceFailed, format!("CUDA failed in {call}: {words}"))
            .with_advice("if an earlier kernel failed, run with CUDA_LAUNCH_BLOCKING=1 to see which"),
    }
}
