//! Objects of no framework that we know, through the protocols that they speak.
//!
//! Asked in this order: the DLPack C exchange API, `__dlpack__`, the buffer protocol, `__array_interface__`,
//! `__array__`. The last two go through NumPy, which knows them best.

use crate::call;
use crate::errors::{Failure, Result, fail, foreign, type_name};
use crate::frameworks::exchange::Exchange;
use crate::frameworks::numpy;
use crate::owner::{Buffer, Owner};
use crate::source::Source;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};
use std::ffi::CStr;
use tensorferry_core::device::DeviceKind;
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor, frozen};

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
        return read_buffer(object);
    }
    from_array(object)
}

/// Memory that we lent to a framework as read-only may come back through a wrapper that does not know.
pub(crate) fn still_frozen(mut tensor: Tensor<Owner>) -> Tensor<Owner> {
    if frozen::covers(tensor.data() as usize) {
        tensor.set_read_only();
    }
    tensor
}

/// Reads an object through the buffer protocol.
#[inline(always)]
pub(crate) fn read_buffer<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let buffer = Buffer::export(object).map_err(|error| {
        let about = format!("the buffer of {} could not be had", type_name(object));
        foreign(object.py(), error, ErrorKind::InvalidTensor, &about, "pass a buffer that is still open")
    })?;
    Ok(Source::here(object.clone(), "buffer", from_buffer(buffer)?))
}

/// The object is nothing that we can read.
pub(crate) fn not_a_tensor(object: &Bound<'_, PyAny>) -> Failure {
    let name = type_name(object);
    let hint = match name.as_str() {
        "int" | "float" | "complex" | "bool" => "make a tensor of it first: numpy.asarray(x)",
        _ => "pass a tensor, a buffer, or a dict, list, tuple or dataclass of them",
    };
    fail(ErrorKind::NotATensor, format!("an object of type {name} is no tensor"), hint)
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

/// Reads an exported buffer.
#[inline(always)]
pub(crate) fn from_buffer(buffer: Buffer) -> Result<Tensor<Owner>> {
    let view = buffer.view();
    if !view.suboffsets.is_null() {
        return Err(fail(
            ErrorKind::UnsupportedLayout,
            "the buffer leads to its memory through pointers",
            "make it a plain buffer first: bytes(x)",
        ));
    }
    // SAFETY: a format that is not null is a C string that lives as long as the export.
    let format = if view.format.is_null() { c"B" } else { unsafe { CStr::from_ptr(view.format) } };
    let (dtype, order) = element_type(format.to_bytes(), view.itemsize as usize).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!(
                "a buffer with elements of format {:?} is no tensor of numbers",
                format.to_string_lossy()
            ),
            "view it as bytes first: memoryview(x).cast(\"B\")",
        )
    })?;
    let rank = view.ndim.max(0) as usize;
    // SAFETY: an export with strides (PyBUF_FULL_RO asks for them) has `ndim` lengths and strides.
    let layout = unsafe {
        match (rank, view.shape.is_null(), view.strides.is_null()) {
            (0, ..) => Layout::dense(dtype.size(), &[]),
            (_, true, _) => Layout::dense(dtype.size(), &[view.len as i64 / dtype.size() as i64]),
            (_, false, true) => {
                Layout::dense(dtype.size(), std::slice::from_raw_parts(view.shape.cast(), rank))
            }
            (_, false, false) => Layout::strided(
                dtype.size(),
                std::slice::from_raw_parts(view.shape.cast(), rank),
                std::slice::from_raw_parts(view.strides.cast(), rank),
            ),
        }
    }?;
    let access = if view.readonly == 0 { Access::ReadWrite } else { Access::ReadOnly };
    let data = view.buf.cast();
    // SAFETY: the exporter keeps the memory as long as the export, which the owner holds.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, Owner::Buffer(buffer)) }?)
}

/// The type behind a `struct` format of one element.
fn element_type(format: &[u8], size: usize) -> Option<(DType, ByteOrder)> {
    let little = cfg!(target_endian = "little");
    let (order, code) = match format {
        [b'@' | b'=', code @ ..] => (ByteOrder::Native, code),
        [b'<', code @ ..] => (if little { ByteOrder::Native } else { ByteOrder::Swapped }, code),
        [b'>' | b'!', code @ ..] => (if little { ByteOrder::Swapped } else { ByteOrder::Native }, code),
        code => (ByteOrder::Native, code),
    };
    // The letter gives the kind and the exporter the size: `l` has 4 or 8 bytes, by its prefix.
    let kind = match code {
        b"?" => b'b',
        b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => b'i',
        b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" | b"c" => b'u',
        b"e" | b"f" | b"d" => b'f',
        b"Zf" | b"Zd" => b'c',
        _ => return None,
    };
    Some((DType::from_typestr(kind, size)?, order))
}
