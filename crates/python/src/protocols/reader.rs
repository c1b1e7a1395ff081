//! Reading objects of unknown frameworks through the protocols that they implement.
//!
//! The protocols are tried in this order: the DLPack C exchange API, `__dlpack__`, the buffer protocol,
//! `__cuda_array_interface__`, `__array_interface__`, `__array_struct__` (through NumPy) and `__array__` (`array_method`).

use crate::conversion::source::{Source, SourceMemory, restore_read_only_flag};
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result, fail, not_a_tensor, type_name, wrap_exception};
use crate::frameworks::dlpack_exchange::Exchange;
use crate::frameworks::numpy;
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use crate::protocols::array_interface;
use crate::protocols::array_method;
use crate::protocols::buffer;
use crate::protocols::capsule;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyType};
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::plan::Pending;
use tensorferry_core::{ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Whether the type implements DLPack. Instances may still do so by themselves.
pub(crate) fn has_dlpack(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__dlpack_c_exchange_api__")? || kind.hasattr("__dlpack__")?)
}

/// Whether the type implements an array interface or `__array__`. Instances may still do so by themselves.
pub(crate) fn has_array_interface(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__cuda_array_interface__")? || ranks_above_arrow(kind)? || kind.hasattr("__array__")?)
}

/// Whether the type implements an array interface of NumPy, which is read rather than its Arrow interface: a type with both is an
/// array, whose shape and element type only the first describes.
pub(crate) fn ranks_above_arrow(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__array_interface__")? || kind.hasattr("__array_struct__")?)
}

/// Reads an object through the first protocol that it implements; through `__array__` with `read_method`.
pub(crate) fn read<'py>(
    object: &Bound<'py, PyAny>,
    read_method: impl FnOnce(&Bound<'py, PyAny>) -> Result<Source<'py>>,
) -> Result<Source<'py>> {
    if let Some((exchange, exported)) = Exchange::export_by_own_table(object) {
        let exported = exported.map_err(|failure| match failure {
            Failure::Python(error) => dlpack_error(object, None, *error),
            other => other,
        });
        let tensor = restore_read_only_flag(owned_tensor::produced(exported?, object));
        let device = tensor.device();
        let source = Source::in_place(object.clone(), "dlpack", tensor);
        if !device.is_cuda() {
            return Ok(source);
        }
        let stream = exchange.stream(object.py(), Device::cuda(device.index))?;
        return Ok(source.with_streams(Streams::on(stream)));
    }
    let dlpack = object.hasattr(interned!(object.py(), "__dlpack__"));
    let dlpack = dlpack.map_err(|error| dlpack_error(object, None, error))?;
    if dlpack && !object.is_instance_of::<PyType>() {
        return from_dlpack(object);
    }
    if objects::has_buffer(object) {
        return buffer::read(object);
    }
    from_array(object, read_method)
}

pub(super) fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let device = device_of(object)?;
    let keywords = [("max_version", DLPACK_VERSION)].into_py_dict(py)?;
    // The sync stream waits until the values are ready; consumers wait for the sync stream.
    let streams = match device {
        Some(device) if device.is_cuda() => {
            let sync_stream = Gpu::get(device.index)?.sync_stream()?;
            keywords.set_item("stream", sync_stream.handle())?;
            Some(Streams::new(SyncPoint::Stream(sync_stream), SyncPoint::AllStreams))
        }
        _ => None,
    };
    let capsule = export(object, &keywords).map_err(|error| dlpack_error(object, device, error))?;
    let tensor = restore_read_only_flag(owned_tensor::produced(capsule::take(&capsule)?, object));
    let device = tensor.device();
    if !device.is_host() && !device.is_cuda() {
        // The array API standard added the two keywords together.
        if !keywords.contains("max_version")? {
            let name = type_name(object);
            let fact = format!(
                "{name} is on {device}, and its __dlpack__ has no dl_device, which copies to the host"
            );
            return Err(fail(ErrorKind::UnsupportedDevice, fact, MOVE_TO_CPU));
        }
        return Ok(downloadable(object, "dlpack", &tensor)?);
    }
    let source = Source::in_place(object.clone(), "dlpack", tensor);
    Ok(if device.is_cuda() { source.with_streams(streams.unwrap_or_else(Streams::unnamed)) } else { source })
}

const MOVE_TO_CPU: &str = "move it to the CPU with its own framework first";

/// The newest version of DLPack that is read.
const DLPACK_VERSION: (i32, i32) = (1, 3);

/// The device that the object states; `None` if it states none.
fn device_of(object: &Bound<'_, PyAny>) -> Result<Option<Device>> {
    let py = object.py();
    let stated = object.call_method0(interned!(py, "__dlpack_device__"));
    let stated = stated.map_err(|error| dlpack_error(object, None, error))?;
    let number =
        |index: usize| -> PyResult<i32> { stated.get_item(index)?.call_method0("__int__")?.extract() };
    let Ok(code) = number(0) else { return Ok(None) };
    let kind = DeviceKind::from_code(code).ok_or_else(|| {
        let fact = format!("{} is on a device of unknown kind {code}", type_name(object));
        fail(ErrorKind::UnsupportedDevice, fact, MOVE_TO_CPU)
    })?;
    Ok(Some(Device { kind, index: number(1).unwrap_or(0) }))
}

/// Calls `__dlpack__`. A producer older than DLPack 1.0 rejects the keyword `max_version`, and is called again without it, which removes
/// it from the keywords.
fn export<'py>(object: &Bound<'py, PyAny>, keywords: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let name = interned!(py, "__dlpack__");
    let rejection = match object.call_method(name, (), Some(keywords)) {
        Err(error) if rejects_keyword(py, &error, "max_version") => error,
        result => return result,
    };
    keywords.del_item("max_version")?;
    object.call_method(name, (), Some(keywords)).inspect_err(|error| {
        // A producer may raise one exception twice, or state a cause of its own.
        if error.cause(py).is_none() && !error.value(py).is(rejection.value(py)) {
            error.set_cause(py, Some(rejection));
        }
    })
}

/// Whether a function of the object rejected a keyword, as far as the exception tells. A call that does not match the signature has
/// no frame of the function; a function that passes its keywords on has one, and the text names the keyword.
fn rejects_keyword(py: Python<'_>, error: &PyErr, keyword: &str) -> bool {
    let names_keyword = || {
        let text = error.value(py).to_string();
        text.contains("unexpected keyword argument") && text.contains(keyword)
    };
    error.is_instance_of::<PyTypeError>(py) && (error.traceback(py).is_none() || names_keyword())
}

/// The error of a producer. Its `BufferError`, which says that the tensor cannot be exported, stays one.
fn dlpack_error(object: &Bound<'_, PyAny>, device: Option<Device>, error: PyErr) -> Failure {
    let py = object.py();
    let kind = match error.is_instance_of::<PyBufferError>(py) {
        true => ErrorKind::InvalidTensor,
        false => ErrorKind::FrameworkFailed,
    };
    let (place, hint) = match device.filter(|device| !device.is_host()) {
        Some(device) => (format!(" on {device}"), MOVE_TO_CPU),
        None => (String::new(), "convert it to a dense tensor first"),
    };
    let about = format!("the __dlpack__ of {}{place} failed", type_name(object));
    wrap_exception(py, error, kind, &about, array_method::table_hint(object).as_deref().unwrap_or(hint))
}

/// The source of a tensor on a device whose memory only its own framework reads.
pub(crate) fn downloadable<'py, O>(
    object: &Bound<'py, PyAny>,
    framework: &'static str,
    tensor: &Tensor<O>,
) -> tensorferry_core::Result<Source<'py>> {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
    let memory = SourceMemory::Pending { pending: Pending::Download, device, dtype, layout, reads: None };
    Ok(Source::pending(object.clone(), framework, memory))
}

/// The values of such a tensor, which its framework copies to the host.
pub(crate) fn download(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let device = device_of(object)?;
    let keywords = [("max_version", DLPACK_VERSION), ("dl_device", (DeviceKind::Cpu as i32, 0))];
    let keywords = keywords.into_py_dict(py)?;
    keywords.set_item("copy", py.None())?;
    let capsule = object.call_method(interned!(py, "__dlpack__"), (), Some(&keywords));
    let capsule = capsule.map_err(|error| dlpack_error(object, device, error))?;
    let mut tensor = owned_tensor::produced(capsule::take(&capsule)?, object);
    if !tensor.device().is_host() {
        return Err(fail(
            ErrorKind::UnsupportedDevice,
            format!(
                "asked for host memory, the __dlpack__ of {} returned memory on {}",
                type_name(object),
                tensor.device()
            ),
            MOVE_TO_CPU,
        ));
    }
    // A device may use host memory, so that the result may still be that of the source.
    tensor.set_read_only();
    Ok(tensor)
}

fn from_array<'py>(
    object: &Bound<'py, PyAny>,
    read_method: impl FnOnce(&Bound<'py, PyAny>) -> Result<Source<'py>>,
) -> Result<Source<'py>> {
    let py = object.py();
    let about = format!("the array interface of {} failed", type_name(object));
    let wrap_error = |failure: Failure| {
        wrap_exception(py, failure, ErrorKind::FrameworkFailed, &about, "convert it to a NumPy array first")
    };
    if !object.is_instance_of::<PyType>()
        && let Some(interface) = object
            .getattr_opt(interned!(py, "__cuda_array_interface__"))
            .map_err(|error| wrap_error(error.into()))?
    {
        return array_interface::read_cuda(object, &interface);
    }
    let attribute = |name| match object.getattr_opt(name) {
        Ok(value) => Ok(value.filter(|value| !value.is_none())),
        Err(error) => Err(wrap_error(error.into())),
    };
    let tensor = if object.is_instance_of::<PyType>() {
        return Err(not_a_tensor(object));
    } else if let Some(interface) = attribute(interned!(py, "__array_interface__"))? {
        array_interface::read(object, &interface).map_err(wrap_error)?
    } else if attribute(interned!(py, "__array_struct__"))?.is_some() {
        numpy::read_array(&numpy::as_array(object).map_err(wrap_error)?)?
    } else if attribute(interned!(py, "__array__"))?.is_some() {
        return read_method(object);
    } else {
        return Err(not_a_tensor(object));
    };
    Ok(Source::in_place(object.clone(), "array", tensor))
}
