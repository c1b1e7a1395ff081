//! Failures of loading, with what the reader of a pickle can do about them.

use crate::errors::{Failure, fail};
use tensorferry_core::plan::TargetCapabilities;
use tensorferry_core::{Error, ErrorKind};

/// The failure to find the framework of a tensor, with the option that chooses another one.
pub(super) fn name_framework_option(failure: Failure) -> Failure {
    match failure {
        Failure::Ferry(error)
            if error.kind() == ErrorKind::FrameworkMissing && error.fact().ends_with("is not installed") =>
        {
            fail(
                ErrorKind::FrameworkMissing,
                format!("the pickle has a tensor of a framework that this process lacks: {}", error.fact()),
                "install the framework, or pass another one: ferry.pickling.loads(data, buffers, \"numpy\") or \
             ferry.ray.get(ref, \"numpy\")",
            )
        }
        other => other,
    }
}

/// The failure of a framework that lacks the element type, with what the reader of a pickle can do.
pub(super) fn name_other_types(error: &Error, target: &TargetCapabilities) -> Failure {
    let hint = if target.keeps_64_bit {
        "load it as another framework, such as \"numpy\", and cast there"
    } else {
        "turn on jax_enable_x64, or load it as another framework, such as \"numpy\", and cast there"
    };
    fail(ErrorKind::UnsupportedDType, error.fact().to_owned(), hint)
}

/// The failure to find the device of a tensor, with the option that chooses another one.
pub(super) fn name_device_option(failure: Failure) -> Failure {
    match failure {
        Failure::Ferry(error)
            if matches!(error.kind(), ErrorKind::UnsupportedDevice | ErrorKind::DeviceFailed) =>
        {
            let hint = "pass the device on which the tensors should arrive: device=\"cpu\"";
            fail(error.kind(), error.fact().to_owned(), hint)
        }
        other => other,
    }
}
