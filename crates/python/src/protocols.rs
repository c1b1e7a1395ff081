//! Objects of no framework that we know, through the protocols that they speak.
//!
//! Asked in this order: the DLPack C exchange API, `__dlpack__`, the buffer protocol, `__array_interface__`,
//! `__array__`. The last two go through NumPy, which knows them best.

use crate::buffers;
use crate::call;
use crate::errors::{Failure, Result, fail, foreign, not_a_tensor, type_name};
use crate::frameworks::exchange::Exchange;
use crate::frameworks::numpy;
use crate::owner::Owner;
use crate::source::{Source, still_frozen};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::{ErrorKind, Tensor};

/// Whether objects of this type speak DLPack, as far as the type tells.
pub(crate) fn speaks_dlpack(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__dlpack_c_exchange_api__")? || kind.hasattr("__dlpack__")?)
}

/// Whether objects of this type give an array, as far as the type tells.
pub(crate) fn speaks_array(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(kind.hasattr("__array_interface__")? || kind.hasattr("__array__")?)
}

/// Reads an object through the first protocol that it speaks.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let kind = object.get_type();
    if let Some(exchange) = Exchange::of(&kind) {
        let tensor = exchange.export(object)?.map_owner(Owner::managed);
        return Ok(Source::here(object.clone(), "dlpack", still_frozen(tensor)));
    }
    let dlpack = object.hasattr(intern!(object.py(), "__dlpack__")).map_err(|error| {
        let about = format!("the __dlpack__ of {} failed", type_name(object));
        foreign(
            object.py(),
            error,
            ErrorKind::FrameworkRefused,
            &about,
            "make a plain dense tensor of it first",
        )
    })?;
    if dlpack && !object.is_instance_of::<PyType>() {
        return Ok(Source::here(object.clone(), "dlpack", still_frozen(from_dlpack(object)?)));
    }
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
        return buffers::read(object);
    }
    from_array(object)
}

fn from_dlpack(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let about = format!("the __dlpack__ of {} failed", type_name(object));
    let ours = |error: PyErr| {
        foreign(py, error, ErrorKind::FrameworkRefused, &about, "make a plain dense tensor of it first")
    };
    let device = object.call_method0(intern!(py, "__dlpack_device__")).map_err(ours)?;
    if let Ok(kind) = device.get_item(0).and_then(|kind| kind.call_method0("__int__")?.extract::<i32>())
        && kind != DeviceKind::Cpu as i32
    {
        let name = DeviceKind::from_code(kind).map_or("unknown", DeviceKind::name);
        return Err(fail(
            ErrorKind::UnsupportedDevice,
            format!("the source is on a device of kind {name}, and only host memory is carried"),
            "move it to the CPU with its own framework first",
        ));
    }
    let keywords = [("max_version", (1, 3))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&keywords)) {
        // A producer from before DLPack had versions does not know the keyword; other errors are its own.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                && error.value(py).to_string().contains("argument") =>
        {
            call::method(object, intern!(py, "__dlpack__"))
        }
        answer => answer,
    };
    Ok(crate::capsule::take(&capsule.map_err(ours)?)?.map_owner(Owner::managed))
}

fn from_array<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let about = format!("the array of {} could not be had", type_name(object));
    let ours = |failure: Failure| {
        foreign(py, failure, ErrorKind::FrameworkRefused, &about, "make a NumPy array of it first")
    };
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
    let array = numpy::as_array(object).map_err(ours)?;
    let mut source = Source::here(object.clone(), "array", numpy::read_array(&array)?);
    source.through_array = interface.is_none();
    Ok(source)
}
