//! `empty_shared`: new memory that can be published without a copy; `empty_aligned`: new private memory.

use super::Room;
use crate::api::options::{self, Keywords};
use crate::api::shape::Lengths;
use crate::conversion::convert;
use crate::conversion::host_copy;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::Source;
use crate::conversion::streams::Streams;
use crate::errors::{Result, describe, fail};
use crate::frameworks;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{ConvertOptions, DeviceRequest, SourceMutability, TargetMutability};
use tensorferry_core::{Device, ErrorKind, Layout};
use tensorferry_cuda::{Gpu, SyncPoint};

/// A new, uninitialised tensor in shared memory, which `publish` gives to other processes without a copy.
///
/// The memory is aligned, so that every framework can share it.
///
/// Args:
///     shape: The lengths of its dimensions, or one length.
///     dtype: The element type, by name or as a framework's own object.
///     framework: The framework of the tensor, by name or as its module.
///     device: The device of the memory. None is the host, or the GPU for a framework that has GPU memory only.
///
/// Returns:
///     A tensor of the framework.
///
/// Raises:
///     InvalidArgumentError: The shape, the type or the framework is not one, or its tensors are immutable.
///     OutOfMemoryError: There is not so much memory.
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

/// A new, uninitialised tensor in memory of this process alone.
///
/// The memory is aligned to 64 bytes, so that every framework can share it.
///
/// Args:
///     shape: The lengths of its dimensions, or one length.
///     dtype: The element type, by name or as a framework's own object.
///     framework: The framework of the tensor, by name or as its module.
///     device: The device of the memory. None is the host, or the GPU for a framework that has GPU memory only.
///
/// Returns:
///     A tensor of the framework.
///
/// Raises:
///     InvalidArgumentError: The shape, the type or the framework is not one, or its tensors are immutable.
///     OutOfMemoryError: There is not so much memory.
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
    shared: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = shape.py();
    let lengths = lengths(shape)?;
    let dtype = match options::plain_dtype(Some(dtype)) {
        Ok(Some(dtype)) => dtype,
        _ => {
            let fact = format!("dtype is {}, which names no element type", describe(dtype));
            return Err(fail(ErrorKind::InvalidArgument, fact, "write a name such as \"float32\""));
        }
    };
    let numpy = PyString::intern(py, "numpy").into_any();
    let target = frameworks::target(framework.unwrap_or(&numpy))?;
    let facts = target.facts(py)?;
    if facts.mutability == TargetMutability::Immutable {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("a new {} tensor could never be filled", facts.title),
            "make it with numpy or torch, fill it, and carry it over: that shares it",
        ));
    }
    let layout = Layout::dense(dtype.size(), &lengths).map_err(|_| {
        let fact = format!("no memory holds {dtype} of shape {lengths:?}");
        fail(ErrorKind::OutOfMemory, fact, "make less at a time")
    })?;
    // A framework that would copy it into memory of its own has none to share.
    let options = ConvertOptions {
        copy: shared.then_some(false),
        device: place(py, function, device)?,
        ..ConvertOptions::NONE
    };
    let device = match options.device {
        DeviceRequest::At(device) => device,
        DeviceRequest::Home => facts.default_device,
        DeviceRequest::Nearest => facts.nearest_device(Device::CPU),
    };
    if !shared && device.is_cuda() {
        return Ok(target.builtin()?.allocate(py, dtype, &lengths, Gpu::get(device.index)?, None)?.object);
    }
    let tensor = if shared {
        Room::new(py, device, layout.bytes())?.tensor(dtype, layout)?
    } else {
        host_copy::of_block(HostBlock::new(layout.bytes())?, dtype, layout)?
    };
    let mut source =
        Source::here(shape.clone(), "new memory", tensor).with_mutability(SourceMutability::Temporary);
    if device.is_cuda() {
        source = source.with_streams(Streams::between(SyncPoint::Nothing, SyncPoint::Nothing));
    }
    convert::convert_by_plan(
        py,
        source,
        &ConversionRequest { options, ..ConversionRequest::new(target) },
        None,
    )
}

fn place(py: Python<'_>, function: &'static str, device: Option<&Bound<'_, PyAny>>) -> Result<DeviceRequest> {
    let given = PyDict::new(py);
    given.set_item("device", device)?;
    let Keywords { options, .. } = options::parse(function, &given, false)?;
    Ok(options.device)
}

fn lengths(shape: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    let lengths = shape.extract::<i64>().map(|length| vec![length]);
    let lengths = lengths.or_else(|_| shape.extract().map(Lengths::into_vec));
    lengths.ok().filter(|lengths| lengths.iter().all(|&length| length >= 0)).ok_or_else(|| {
        let text = shape.repr().map_or_else(|_| describe(shape), |text| text.to_string());
        let fact = format!("{text} is no shape");
        fail(ErrorKind::InvalidArgument, fact, "write lengths, such as (480, 640)")
    })
}
