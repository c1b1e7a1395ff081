//! Resolves the element type and the device of the result, and rejects requests that the target cannot fulfil.

use super::inputs::{
    ConvertOptions, DTypeRequest, DeviceRequest, SourceDescription, SupportedDevices, TargetCapabilities,
    TargetMutability,
};
use super::reason::Pending;
use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, DTypeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::hints;

/// The element type of the result.
pub(super) fn result_dtype(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<DType> {
    let dtype = match options.dtype {
        _ if source.pending == Some(Pending::Offsets) && !target.keeps_64_bit => source.dtype.narrowed(),
        DTypeRequest::Type(_) if matches!(source.pending, Some(Pending::Validity | Pending::Offsets)) => {
            source.dtype
        }
        DTypeRequest::Type(dtype) => dtype,
        DTypeRequest::Same => source.dtype,
        DTypeRequest::Default if !target.keeps_64_bit => source.dtype.narrowed(),
        DTypeRequest::Default
            if target.narrow_by_default
                && matches!(source.dtype.kind(), DTypeKind::Float | DTypeKind::Complex) =>
        {
            source.dtype.narrowed()
        }
        DTypeRequest::Default => source.dtype,
    };
    if !target.keeps_64_bit && dtype.narrowed() != dtype {
        let fact = format!("{} has no {dtype} while 64-bit types are off", target.title);
        return Err(Error::new(ErrorKind::UnsupportedDType, fact)
            .with_hint_value(hints::USE_DEFAULT_DTYPE, dtype.narrowed().name()));
    }
    if !target.dtypes.contains(dtype) {
        let fact = format!("{} has no type {dtype}", target.title);
        let near = match dtype.kind() {
            DTypeKind::Float => DType::Float32,
            DTypeKind::Complex => DType::Complex64,
            _ => DType::Int32,
        };
        return Err(Error::new(ErrorKind::UnsupportedDType, fact)
            .with_hint_value(hints::CAST_TO_SUPPORTED_DTYPE, near.name()));
    }
    // As bool, a complex number is true if either part is.
    if source.dtype.kind() == DTypeKind::Complex
        && !matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Bool)
    {
        let fact = format!("{} has no imaginary part, and the source has type {}", dtype, source.dtype);
        let real_part = match source.framework {
            "tensorflow" => "tf.math.real(x)",
            "paddle" => "x.real()",
            "torch" | "jax" | "mlx" | "cupy" => "x.real",
            _ => "numpy.real(x)",
        };
        return Err(
            Error::new(ErrorKind::UnsupportedDType, fact).with_hint_value(hints::TAKE_REAL_PART, real_part)
        );
    }
    Ok(dtype)
}

/// The device of the result.
pub(super) fn result_device(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<Device> {
    let device = match options.device {
        DeviceRequest::Nearest
            if source.framework == target.framework && target.supports_device(source.device) =>
        {
            return Ok(source.device);
        }
        DeviceRequest::Nearest => return Ok(target.nearest_device(source.device)),
        DeviceRequest::Default => return Ok(target.default_device),
        DeviceRequest::At(device) => device,
    };
    if device.kind == DeviceKind::Cpu && target.supports_device(device) && device.index >= target.cpu_count {
        return Err(no_such_cpu(target, device));
    }
    if target.supports_device(device) {
        return Ok(device);
    }
    let (supported, hint) = match target.devices {
        // NumPy never has GPU memory; JAX and TensorFlow do not in a build without CUDA.
        SupportedDevices::Host => {
            ("host memory only in this process", hints::OMIT_DEVICE_OR_CHOOSE_GPU_FRAMEWORK)
        }
        SupportedDevices::Cuda => ("GPU memory only", hints::OMIT_DEVICE_OR_CHOOSE_HOST_FRAMEWORK),
        SupportedDevices::Both => ("host and CUDA memory only", hints::OMIT_DEVICE_OR_NAME_ONE),
    };
    let fact = format!("{} holds {supported}, and {device} was requested", target.title);
    Err(Error::new(ErrorKind::UnsupportedDevice, fact).with_hint(hint))
}

fn no_such_cpu(target: &TargetCapabilities, device: Device) -> Error {
    let count = target.cpu_count;
    let available = match count {
        1 => "one CPU device, cpu".to_owned(),
        _ => format!("{count} CPU devices, cpu:0 to cpu:{}", count - 1),
    };
    let last = Device { kind: DeviceKind::Cpu, index: count - 1 };
    let fact = format!("{} has {available}, and {device} was requested", target.title);
    Error::new(ErrorKind::UnsupportedDevice, fact)
        .with_hint_value(hints::OMIT_DEVICE_OR_NAME_CPU, last.to_string())
}

/// Checks that the source can be read at all and has few enough dimensions.
pub(super) fn check_source(source: &SourceDescription<'_>, target: &TargetCapabilities) -> Result<()> {
    if !source.values_device().is_host() && !source.device.is_cuda() {
        return Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the source is on {}, and only host and CUDA memory is supported", source.device),
        )
        .with_hint(hints::MOVE_TO_CPU));
    }
    if source.layout.rank() > target.max_rank {
        return Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!(
                "the source has {} dimensions and {} holds at most {}",
                source.layout.rank(),
                target.title,
                target.max_rank
            ),
        )
        .with_hint(hints::REDUCE_DIMENSIONS));
    }
    Ok(())
}

/// Checks that the target supports the type on the device of the result.
pub(super) fn check_dtype_on_device(target: &TargetCapabilities, dtype: DType, device: Device) -> Result<()> {
    if !device.is_cuda() || !target.host_only.contains(dtype) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::UnsupportedDType,
        format!("{} does not support {dtype} on a GPU", target.title),
    )
    .with_hint(hints::USE_CPU_OR_VIEW_AS_BYTES))
}

/// Checks that the target can fulfil the request for a writable or a read-only result.
pub(super) fn check_writable(target: &TargetCapabilities, options: &ConvertOptions) -> Result<()> {
    match (options.writable, target.mutability) {
        (Some(true), TargetMutability::Immutable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a writable result was requested, and {} tensors are immutable", target.title),
        )
        .with_hint(hints::CHOOSE_WRITABLE_FRAMEWORK)),
        (Some(false), TargetMutability::Writable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a read-only result was requested, and {} has no read-only tensors", target.title),
        )
        .with_hint(hints::CHOOSE_READ_ONLY_FRAMEWORK)),
        _ => Ok(()),
    }
}

/// Checks that a copy of this size is possible and within the caller's budget.
///
/// # Errors
/// When it is not.
pub fn check_budget(bytes: usize, options: &ConvertOptions) -> Result<()> {
    let (fact, hint) = match options.budget {
        _ if bytes > isize::MAX as usize => {
            (format!("the copy needs {bytes} bytes, more than can be addressed"), hints::CONVERT_SLICES)
        }
        Some(budget) if bytes > budget => {
            (format!("the copy needs {bytes} bytes and the budget is {budget}"), hints::RAISE_BUDGET)
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::OutOfMemory, fact).with_hint(hint))
}
