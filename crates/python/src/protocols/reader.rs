//! Objects of no framework that we know, through the protocols that they speak.
//!
//! Asked in this order: the DLPack C exchange API, `__dlpack__`, the buffer protocol, `__cuda_array_interface__`,
//! `__array_interface__`, which goes through NumPy, and `__array__` (`array_method`).

use crate::conversion::source::{Source, still_frozen};
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result, fail, foreign, not_a_tensor, type_name};
use crate::frameworks::exchange::Exchange;
use crate::frameworks::numpy;
use crate::protocols::array_method;
use crate::protocols::buffer;
use crate::protocols::cuda_array;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};
use tensorferry_core::ErrorKind;
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Whether objects of this type speak DLPack, as far as the type tells.
pub(crate) fn speaks_dlpack(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__dlpack_c_exchange_api__")? || kind.hasattr("__dlpack__")?)
}

/// Whether objects of this type give an array, as far as the type tells.
pub(crate) fn speaks_array(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__cuda_array_interface__")?
        || kind.hasattr("__array_interface__")?
        || kind.hasattr("__array__")?)
}

/// Reads an object through the first protocol that it speaks.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let kind = object.get_type();
    if let Ok(exchange) = Exchange::of(&kind) {
        let tensor = still_frozen(crate::protocols::capsule::owned(exchange.export(object)?));
        let device = tensor.device();
        let source = Source::here(object.clone(), "dlpack", tensor);
        if !device.is_cuda() {
            return Ok(source);
        }
        let stream = exchange.stream(object.py(), Device::cuda(device.index))?;
        return Ok(source.with_streams(Streams::on(stream)));
    }
    let dlpack = object.hasattr(intern!(object.py(), "__dlpack__")).map_err(|error| {
        let about = format!("the __dlpack__ of {} failed", type_name(object));
        foreign(
            object.py(),
            error,
            ErrorKind::FrameworkFailed,
            &about,
            "make a plain dense tensor of it first",
        )
    })?;
    if dlpack && !object.is_instance_of::<PyType>() {
        return from_dlpack(object);
    }
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
        return buffer::read(object);
    }
    from_array(object)
}

fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let about = format!("the __dlpack__ of {} failed", type_name(object));
    let ours = |error: PyErr| {
        let hint = array_method::table_hint(object).unwrap_or("make a plain dense tensor of it first");
        foreign(py, error, ErrorKind::FrameworkFailed, &about, hint)
    };
    let device = object.call_method0(intern!(py, "__dlpack_device__")).map_err(ours)?;
    let number =
        |place: usize| -> PyResult<i32> { device.get_item(place)?.call_method0("__int__")?.extract() };
    let keywords = [("max_version", (1, 3))].into_py_dict(py)?;
    // A stream of ours waits until the values are there; whoever uses them waits for it.
    let streams = match number(0).ok().map(|code| DeviceKind::from_code(code).ok_or(code)) {
        Some(Ok(kind @ (DeviceKind::Cuda | DeviceKind::CudaManaged))) => {
            let place = Device { kind, index: number(1).unwrap_or(0) };
            let meeting = Gpu::get(place.index)?.sync_stream()?;
            keywords.set_item("stream", meeting.handle())?;
            Some(Streams::between(SyncPoint::Stream(meeting), SyncPoint::Everything))
        }
        Some(Ok(DeviceKind::Cpu | DeviceKind::CudaHost)) | None => None,
        Some(other) => {
            let name = other.map_or("unknown", DeviceKind::name);
            return Err(fail(
                ErrorKind::UnsupportedDevice,
                format!(
                    "the source is on a device of kind {name}, and only memory of the host and of CUDA GPUs is \
                     carried"
                ),
                "move it to the CPU with its own framework first",
            ));
        }
    };
    let capsule = match object.call_method("__dlpack__", (), Some(&keywords)) {
        // A producer from before DLPack had versions does not know the keyword; other errors are its own.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                && error.value(py).to_string().contains("argument") =>
        {
            keywords.del_item("max_version")?;
            object.call_method("__dlpack__", (), Some(&keywords))
        }
        answer => answer,
    };
    let tensor = still_frozen(crate::protocols::capsule::owned(crate::protocols::capsule::take(
        &capsule.map_err(ours)?,
    )?));
    let on_gpu = tensor.device().is_cuda();
    let source = Source::here(object.clone(), "dlpack", tensor);
    Ok(match streams {
        Some(streams) if on_gpu => source.with_streams(streams),
        None if on_gpu => source.with_streams(Streams::unnamed()),
        _ => source,
    })
}

fn from_array<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let about = format!("the array of {} could not be had", type_name(object));
    let ours = |failure: Failure| {
        foreign(py, failure, ErrorKind::FrameworkFailed, &about, "make a NumPy array of it first")
    };
    if !object.is_instance_of::<PyType>()
        && let Some(interface) =
            object.getattr_opt(intern!(py, "__cuda_array_interface__")).map_err(|error| ours(error.into()))?
    {
        return cuda_array::read(object, &interface);
    }
    let interface =
        object.getattr_opt(intern!(py, "__array_interface__")).map_err(|error| ours(error.into()))?;
    let is_type = object.is_instance_of::<PyType>();
    let silent = interface.is_none()
        && !object.hasattr(intern!(py, "__array__")).map_err(|error| ours(error.into()))?;
    if is_type || silent {
        return Err(not_a_tensor(object));
    }
    if let Some(interface) = &interface
        && let Ok(mask) = interface.call_method1("get", ("mask",))
        && !mask.is_none()
    {
        return Err(fail(
            ErrorKind::NotATensor,
            "the source's array interface has a mask, which no target can keep",
            "pass the data and the mask separately",
        ));
    }
    if interface.is_none() {
        return array_method::read(object);
    }
    let array = numpy::as_array(object).map_err(ours)?;
    Ok(Source::here(object.clone(), "array", numpy::read_array(&array)?))
}
