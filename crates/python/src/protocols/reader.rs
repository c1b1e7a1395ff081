//! Reading objects of unknown frameworks through the protocols that they implement.
//!
//! The protocols are tried in this order: the DLPack C exchange API, `__dlpack__`, the buffer protocol,
//! `__cuda_array_interface__`, `__array_interface__`, `__array_struct__` (through NumPy) and `__array__` (`array_method`).

use crate::conversion::source::{Source, restore_read_only_flag};
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result, fail, not_a_tensor, type_name, wrap_exception};
use crate::frameworks::dlpack_exchange::Exchange;
use crate::frameworks::numpy;
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::protocols::array_interface;
use crate::protocols::array_method;
use crate::protocols::buffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};
use tensorferry_core::ErrorKind;
use tensorferry_core::device::{Device, DeviceKind};
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

/// Reads an object through the first protocol that it implements.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    if let Some((exchange, exported)) = Exchange::export_by_own_table(object) {
        let tensor = restore_read_only_flag(owned_tensor::managed(exported?));
        let device = tensor.device();
        let source = Source::in_place(object.clone(), "dlpack", tensor);
        if !device.is_cuda() {
            return Ok(source);
        }
        let stream = exchange.stream(object.py(), Device::cuda(device.index))?;
        return Ok(source.with_streams(Streams::on(stream)));
    }
    let dlpack = object.hasattr(interned!(object.py(), "__dlpack__")).map_err(|error| {
        let about = format!("the __dlpack__ of {} failed", type_name(object));
        wrap_exception(
            object.py(),
            error,
            ErrorKind::FrameworkFailed,
            &about,
            "convert it to a dense tensor first",
        )
    })?;
    if dlpack && !object.is_instance_of::<PyType>() {
        return from_dlpack(object);
    }
    if objects::has_buffer(object) {
        return buffer::read(object);
    }
    from_array(object)
}

fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let about = format!("the __dlpack__ of {} failed", type_name(object));
    let wrap_error = |error: PyErr| {
        let hint = array_method::table_hint(object).unwrap_or("convert it to a dense tensor first");
        wrap_exception(py, error, ErrorKind::FrameworkFailed, &about, hint)
    };
    let device = object.call_method0(interned!(py, "__dlpack_device__")).map_err(wrap_error)?;
    let number =
        |index: usize| -> PyResult<i32> { device.get_item(index)?.call_method0("__int__")?.extract() };
    let keywords = [("max_version", (1, 3))].into_py_dict(py)?;
    // The sync stream waits until the values are ready; consumers wait for the sync stream.
    let streams = match number(0).ok().map(|code| DeviceKind::from_code(code).ok_or(code)) {
        Some(Ok(kind @ (DeviceKind::Cuda | DeviceKind::CudaManaged))) => {
            let device = Device { kind, index: number(1).unwrap_or(0) };
            let sync_stream = Gpu::get(device.index)?.sync_stream()?;
            keywords.set_item("stream", sync_stream.handle())?;
            Some(Streams::new(SyncPoint::Stream(sync_stream), SyncPoint::AllStreams))
        }
        Some(Ok(DeviceKind::Cpu | DeviceKind::CudaHost)) | None => None,
        Some(other) => {
            let name = other.map_or("unknown", DeviceKind::name);
            return Err(fail(
                ErrorKind::UnsupportedDevice,
                format!(
                    "the source is on a device of kind {name}; only host memory and CUDA GPUs are supported"
                ),
                "move it to the CPU with its own framework first",
            ));
        }
    };
    let capsule = match object.call_method("__dlpack__", (), Some(&keywords)) {
        // A producer older than DLPack 1.0 rejects the keyword `max_version`; other errors are reported.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                && error.value(py).to_string().contains("argument") =>
        {
            keywords.del_item("max_version")?;
            object.call_method("__dlpack__", (), Some(&keywords))
        }
        result => result,
    };
    let tensor = restore_read_only_flag(owned_tensor::managed(crate::protocols::capsule::take(
        &capsule.map_err(wrap_error)?,
    )?));
    let on_gpu = tensor.device().is_cuda();
    let source = Source::in_place(object.clone(), "dlpack", tensor);
    Ok(match streams {
        Some(streams) if on_gpu => source.with_streams(streams),
        None if on_gpu => source.with_streams(Streams::unnamed()),
        _ => source,
    })
}

fn from_array<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
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
    let attribute = |name| object.getattr_opt(name).map_err(|error| wrap_error(error.into()));
    let tensor = if object.is_instance_of::<PyType>() {
        return Err(not_a_tensor(object));
    } else if let Some(interface) = attribute(interned!(py, "__array_interface__"))? {
        array_interface::read(object, &interface).map_err(wrap_error)?
    } else if attribute(interned!(py, "__array_struct__"))?.is_some() {
        numpy::read_array(&numpy::as_array(object).map_err(wrap_error)?)?
    } else if attribute(interned!(py, "__array__"))?.is_some() {
        return array_method::read(object);
    } else {
        return Err(not_a_tensor(object));
    };
    Ok(Source::in_place(object.clone(), "array", tensor))
}
