//! The Python functions `empty_shared` and `empty_aligned`: allocation of shared memory, and of aligned private memory.

use super::SharedBlock;
use crate::api::options::{self, ParsedKeywords};
use crate::api::shape::Lengths;
use crate::conversion::convert;
use crate::conversion::host_copy;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::Source;
use crate::conversion::streams::Streams;
use crate::errors::{Result, describe_argument, fail};
use crate::frameworks;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tensorferry_core::plan::{ConvertOptions, DeviceRequest, SourceMutability, TargetMutability};
use tensorferry_core::{Device, ErrorKind, Layout};
use tensorferry_cuda::{Gpu, SyncPoint};

/// A new, uninitialised tensor in shared memory, which `publish` shares without a copy.
///
/// The memory is aligned, so that every framework can share it.
///
/// Args:
///     shape: The lengths of its dimensions, or one length.
///     dtype: The element type, by name or as a framework's own object.
///     framework: The framework of the tensor, by name or as its module.
///     device: The device of the memory. None is the host, or the GPU for a framework that has only GPU memory.
///
/// Returns:
///     A tensor of the framework.
///
/// Raises:
///     InvalidArgumentError: The shape, dtype or framework is invalid, or the framework's tensors are immutable.
///     OutOfMemoryError: The memory cannot be allocated.
///
/// Example:
///     >>> x = ferry.empty_shared((2, 3), "float32", framework="torch")
///     >>> x.zero_().shape
///     torch.Size([2, 3])
///     >>> ticket = ferry.publish(x, copy=False)
#[pyfunction]
#[pyo3(
    signature = (shape, dtype, *, framework=None, device=None),
    text_signature = "(shape, dtype, *, framework='numpy', device=None)"
)]
pub(crate) fn empty_shared<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    framework: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    allocate("empty_shared", shape, dtype, framework, device, true)
}

/// A new, uninitialised tensor in private memory of this process.
///
/// The memory is aligned to 64 bytes, so that every framework can share it.
///
/// Args:
///     shape: The lengths of its dimensions, or one length.
///     dtype: The element type, by name or as a framework's own object.
///     framework: The framework of the tensor, by name or as its module.
///     device: The device of the memory. None is the host, or the GPU for a framework that has only GPU memory.
///
/// Returns:
///     A tensor of the framework.
///
/// Raises:
///     InvalidArgumentError: The shape, dtype or framework is invalid, or the framework's tensors are immutable.
///     OutOfMemoryError: The memory cannot be allocated.
///
/// Example:
///     >>> x = ferry.empty_aligned(1024, "float32")
///     >>> ferry.plan(x, "jax").shares
///     True
#[pyfunction]
#[pyo3(
    signature = (shape, dtype, *, framework=None, device=None),
    text_signature = "(shape, dtype, *, framework='numpy', device=None)"
)]
pub(crate) fn empty_aligned<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    framework: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    allocate("empty_aligned", shape, dtype, framework, device, false)
}

fn allocate<'py>(
    function: &'static str,
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    framework: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    is_shared: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = shape.py();
    let lengths = parse_shape(shape)?;
    let dtype = match options::parse_concrete_dtype(Some(dtype)) {
        Ok(Some(dtype)) => dtype,
        _ => {
            let fact = format!("dtype is {}, which is not an element type", describe_argument(dtype));
            return Err(fail(ErrorKind::InvalidArgument, fact, "pass a name such as \"float32\""));
        }
    };
    let numpy = PyString::intern(py, "numpy").into_any();
    let target = frameworks::target(framework.unwrap_or(&numpy))?;
    let capabilities = target.capabilities(py)?;
    if capabilities.mutability == TargetMutability::Immutable {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("{} tensors are immutable: a new one cannot be filled", capabilities.title),
            "allocate it with numpy or torch, fill it, and convert it: that shares the memory",
        ));
    }
    let layout = Layout::dense(dtype.size(), &lengths).map_err(|_| {
        let fact = format!("a {dtype} tensor of shape {lengths:?} is larger than the address space");
        fail(ErrorKind::OutOfMemory, fact, "allocate a smaller tensor")
    })?;
    // A framework that copies into its own memory cannot use shared memory: the conversion must fail.
    let options = ConvertOptions {
        copy: is_shared.then_some(false),
        device: parse_device(py, function, device)?,
        ..ConvertOptions::NONE
    };
    let device = match options.device {
        DeviceRequest::At(device) => device,
        DeviceRequest::Default => capabilities.default_device,
        DeviceRequest::Nearest => capabilities.nearest_device(Device::CPU),
    };
    if !is_shared && device.is_cuda() {
        return Ok(target.builtin()?.allocate(py, dtype, &lengths, Gpu::get(device.index)?, None)?.object);
    }
    let tensor = if is_shared {
        SharedBlock::new(py, device, layout.bytes())?.tensor(dtype, layout)?
    } else {
        host_copy::uninitialised(dtype, &lengths)?
    };
    let mut source =
        Source::in_place(shape.clone(), "new memory", tensor).with_mutability(SourceMutability::Temporary);
    if device.is_cuda() {
        source = source.with_streams(Streams::new(SyncPoint::Complete, SyncPoint::Complete));
    }
    convert::convert_by_plan(
        py,
        source,
        &ConversionRequest { options, ..ConversionRequest::new(target) },
        None,
    )
}

fn parse_device(
    py: Python<'_>,
    function: &'static str,
    device: Option<&Bound<'_, PyAny>>,
) -> Result<DeviceRequest> {
    let keywords = PyDict::new(py);
    keywords.set_item("device", device)?;
    let ParsedKeywords { options, .. } = options::parse(function, &keywords, false)?;
    Ok(options.device)
}

fn parse_shape(shape: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    let lengths = shape.extract::<i64>().map(|length| vec![length]);
    let lengths = lengths.or_else(|_| shape.extract().map(Lengths::into_vec));
    lengths.ok().filter(|lengths| lengths.iter().all(|&length| length >= 0)).ok_or_else(|| {
        let text = shape.repr().map_or_else(|_| describe_argument(shape), |text| text.to_string());
        let fact = format!("shape is {text}, not a length or a sequence of lengths");
        fail(ErrorKind::InvalidArgument, fact, "pass lengths, such as (480, 640)")
    })
}
