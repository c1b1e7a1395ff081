//! `ferry.arrow.export`: tensors as objects with the Arrow PyCapsule interface.

use super::device_memory;
use crate::conversion::convert::convert_object;
use crate::conversion::host_copy::copy_packed;
use crate::conversion::reading::{materialise, read, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::SourceMemory;
use crate::conversion::streams::Streams;
use crate::errors::Result;
use crate::frameworks;
use crate::interpreter::objects;
use crate::interpreter::owner::Owner;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use tensorferry_arrow::abi::{ArrowArrayStream, ArrowSchema};
use tensorferry_arrow::{ColumnExport, Releasable, TableExport, hints};
use tensorferry_core::plan::ConvertOptions;
use tensorferry_core::{ByteOrder, Device, Error, ErrorKind, Tensor};

/// The owner of exported memory. Structs on any thread refer to it; the lock is never taken.
type ExportOwner = Mutex<Owner>;

/// A tensor as a column of Arrow.
#[pyclass(frozen, module = "tensorferry._native", name = "_ExportedColumn")]
pub(crate) struct ExportedColumn(ColumnExport<ExportOwner>);

/// Several tensors as a table of Arrow.
#[pyclass(frozen, module = "tensorferry._native", name = "_ExportedTable")]
pub(crate) struct ExportedTable(Arc<TableExport<ExportOwner>>);

/// Exports a tensor. Rows are null where a bit of `validity` is zero.
#[pyfunction]
#[pyo3(signature = (x, validity=None))]
pub(crate) fn _arrow_export_column(
    x: &Bound<'_, PyAny>,
    validity: Option<&Bound<'_, PyAny>>,
) -> Result<ExportedColumn> {
    let exported = column("", x)?;
    Ok(ExportedColumn(match validity {
        Some(bits) => exported.with_validity(shared_tensor(bits)?)?,
        None => exported,
    }))
}

/// Exports several tensors, by name.
#[pyfunction]
pub(crate) fn _arrow_export_table(columns: Vec<(String, Bound<'_, PyAny>)>) -> Result<ExportedTable> {
    let exported = columns
        .iter()
        .map(|(name, x)| column(name, x).map_err(|failure| failure.within(&format!("column '{name}'"))));
    let table = TableExport::new(exported.collect::<Result<Vec<_>>>()?)?;
    Ok(ExportedTable(Arc::new(table)))
}

fn column(name: &str, x: &Bound<'_, PyAny>) -> Result<ColumnExport<ExportOwner>> {
    Ok(ColumnExport::new(name, shared_tensor(x)?)?)
}

fn shared_tensor(x: &Bound<'_, PyAny>) -> Result<Tensor<Arc<ExportOwner>>> {
    let tensor = dense_tensor(x)?;
    // SAFETY: `map_owner` requires an owner that keeps the memory alive: the new one holds the first.
    Ok(unsafe { tensor.map_owner(|owner| Arc::new(Mutex::new(owner))) })
}

/// The memory of a tensor, or a dense copy of it on its device. The values are complete.
fn dense_tensor(x: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let (py, recognised) = (x.py(), recognise(x)?);
    let mut source = read(recognised)?;
    let (framework, streams) = (source.framework, source.take_streams());
    let tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { pending, dtype, .. } => materialise(&source.object, pending, dtype)?,
    };
    let is_exportable = tensor.layout().is_dense() && tensor.order() == ByteOrder::Native;
    match (tensor.device(), recognised.tensor()) {
        (device, _) if device.is_host() && is_exportable => Ok(tensor),
        (device, _) if device.is_host() => copy_packed(py, &tensor, tensor.dtype()),
        (device, _) if device.is_cuda() && is_exportable => {
            device_memory::complete(py, tensor, streams.unwrap_or_else(Streams::unnamed))
        }
        (device, Some(_)) if device.is_cuda() => {
            let target = frameworks::target(&PyString::new(py, framework))?;
            let options = ConvertOptions { copy: Some(true), ..ConvertOptions::NONE };
            let request = ConversionRequest { options, ..ConversionRequest::new(target) };
            let mut copied = read(recognise(&convert_object(recognised, &request)?)?)?;
            let streams = copied.take_streams().unwrap_or_else(Streams::unnamed);
            device_memory::complete(py, require_in_place(copied)?, streams)
        }
        // No framework allocates the memory of a copy. `ColumnExport` has the error.
        _ => Ok(tensor),
    }
}

/// A capsule that owns a struct, until a consumer moves it out.
fn capsule<'py, T: Releasable>(
    py: Python<'py>,
    exported: T,
    name: &'static CStr,
) -> Result<Bound<'py, PyAny>> {
    let pointer = Box::into_raw(Box::new(exported));
    // SAFETY: `PyCapsule_New` requires a pointer that is not null and a name that outlives the capsule: a box, and a constant. It
    // returns a new reference, or null with an exception set. Without a capsule no destructor runs, so that the box is freed here.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), name.as_ptr(), Some(free::<T>));
        Ok(Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| drop_struct(pointer))?)
    }
}

/// Releases a struct that no consumer has moved out, and frees its box.
///
/// # Safety
/// The pointer is from `Box::into_raw`, and nothing else uses it.
unsafe fn drop_struct<T: Releasable>(pointer: *mut T) {
    // SAFETY: the contract of this function. A struct that is not released was not moved out, so that nothing else releases it.
    unsafe {
        let mut exported = Box::from_raw(pointer);
        exported.release();
    }
}

unsafe extern "C" fn free<T: Releasable>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor once, with the dying capsule, on an attached thread. `capsule` gave it its name and a pointer
    // from `Box::into_raw`; consumers move the struct out and leave the pointer.
    unsafe {
        let name = ffi::PyCapsule_GetName(capsule);
        if !name.is_null()
            && let Some(pointer) = objects::raw_capsule_pointer(capsule, CStr::from_ptr(name))
        {
            drop_struct(pointer.cast::<T>().as_ptr());
        }
    }
}

const SCHEMA_NAME: &CStr = c"arrow_schema";
const ARRAY_NAME: &CStr = c"arrow_array";
const STREAM_NAME: &CStr = c"arrow_array_stream";
const DEVICE_ARRAY_NAME: &CStr = c"arrow_device_array";

type Capsules<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The capsules of a schema and of an array, with or without its device.
fn capsules<'py>(
    py: Python<'py>,
    schema: ArrowSchema,
    array: impl Releasable,
    name: &'static CStr,
) -> Result<Capsules<'py>> {
    // Both are in capsules before one of them can fail.
    let (schema, array) = (capsule(py, schema, SCHEMA_NAME), capsule(py, array, name));
    Ok((schema?, array?))
}

/// The error of a method whose consumers expect host memory.
fn check_on_host(device: Device, method: &str) -> Result<()> {
    match device.is_host() {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the column is on {device}, and {method} is for host memory"),
        )
        .with_hint(hints::EXPORT_HOST_COPY)
        .into()),
    }
}

/// The keywords that later versions of the interface may define. Producers raise for those that they do not know.
fn check_keywords(keywords: Option<&Bound<'_, PyDict>>) -> Result<()> {
    let unknown = keywords.and_then(|given| given.iter().find(|(_, value)| !value.is_none()));
    match unknown {
        None => Ok(()),
        Some((name, _)) => {
            let text = format!("__arrow_c_device_array__() does not support the keyword argument '{name}'");
            Err(PyNotImplementedError::new_err(text).into())
        }
    }
}

#[pymethods]
impl ExportedColumn {
    /// The type of the column, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        capsule(py, self.0.schema(), SCHEMA_NAME)
    }

    /// The type and the memory of the column, as capsules. Another type is not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_on_host(self.0.device(), "__arrow_c_array__")?;
        capsules(py, self.0.schema(), self.0.array(), ARRAY_NAME)
    }

    /// The type, the memory and the device of the column, as capsules. Another type is not offered.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_keywords(kwargs)?;
        capsules(py, self.0.schema(), self.0.device_array(), DEVICE_ARRAY_NAME)
    }
}

#[pymethods]
impl ExportedTable {
    /// The types of the columns, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        capsule(py, self.0.schema(), SCHEMA_NAME)
    }

    /// The types and the memory of the columns, as capsules. Other types are not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_on_host(self.0.device(), "__arrow_c_array__")?;
        capsules(py, self.0.schema(), self.0.array(), ARRAY_NAME)
    }

    /// The types, the memory and the device of the columns, as capsules. Other types are not offered.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_keywords(kwargs)?;
        capsules(py, self.0.schema(), self.0.device_array(), DEVICE_ARRAY_NAME)
    }

    /// A stream of one batch, as a capsule. Other types are not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = requested_schema;
        check_on_host(self.0.device(), "__arrow_c_stream__")?;
        let stream: ArrowArrayStream = self.0.stream();
        capsule(py, stream, STREAM_NAME)
    }
}
