//! `ferry.arrow.export`: tensors as objects with the Arrow PyCapsule interface.

use crate::conversion::host_copy::copy_packed;
use crate::conversion::reading::{materialise, read};
use crate::conversion::recognise::recognise;
use crate::conversion::source::SourceMemory;
use crate::errors::{Result, fail};
use crate::interpreter::objects;
use crate::interpreter::owner::Owner;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use tensorferry_arrow::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use tensorferry_arrow::{ColumnExport, Releasable, TableExport};
use tensorferry_core::{ByteOrder, ErrorKind, Tensor};

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

/// The memory of a tensor, or a dense copy of it.
fn dense_tensor(x: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let source = read(recognise(x)?)?;
    let tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { pending, dtype, .. } => materialise(&source.object, pending, dtype)?,
    };
    if !tensor.device().is_host() {
        return Err(fail(
            ErrorKind::UnsupportedDevice,
            format!("the tensor is on {}, and columns are exported from host memory", tensor.device()),
            "export ferry.to(x, \"numpy\")",
        ));
    }
    match tensor.layout().is_dense() && tensor.order() == ByteOrder::Native {
        true => Ok(tensor),
        false => copy_packed(x.py(), &tensor, tensor.dtype()),
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
    // SAFETY: the contract of this function. A struct whose `release` is not null was not moved out, so that nothing else releases
    // it.
    unsafe {
        if let Some(release) = *(*pointer).release_field() {
            release(pointer);
        }
        drop(Box::from_raw(pointer));
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

type Capsules<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

fn capsules(py: Python<'_>, schema: ArrowSchema, array: ArrowArray) -> Result<Capsules<'_>> {
    // Both are in capsules before one of them can fail.
    let (schema, array) = (capsule(py, schema, SCHEMA_NAME), capsule(py, array, ARRAY_NAME));
    Ok((schema?, array?))
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
        capsules(py, self.0.schema(), self.0.array())
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
        capsules(py, self.0.schema(), self.0.array())
    }

    /// A stream of one batch, as a capsule. Other types are not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = requested_schema;
        let stream: ArrowArrayStream = self.0.stream();
        capsule(py, stream, STREAM_NAME)
    }
}
