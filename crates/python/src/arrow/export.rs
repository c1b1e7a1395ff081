//! `ferry.arrow.export`: tensors as objects with the Arrow PyCapsule interface.

use super::export_source::{Booleans, ExportSource, read_source};
use crate::errors::Result;
use crate::interpreter::objects;
use crate::interpreter::owner::Owner;
use crate::reports::{PlanReport, TreeReport, trace};
use crate::trees::path::{PathStep, format_path};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tensorferry_arrow::abi::{ArrowArrayStream, ArrowSchema};
use tensorferry_arrow::{ColumnExport, Releasable, TableExport, hints};
use tensorferry_core::{Device, Error, ErrorKind, Tensor};

/// The owner of exported memory. Structs on any thread refer to it; the lock is never taken.
type ExportOwner = Mutex<Owner>;

/// A tensor as a column of Arrow.
#[pyclass(frozen, module = "tensorferry._native", name = "_ExportedColumn")]
pub(crate) struct ExportedColumn {
    column: ColumnExport<ExportOwner>,
    /// What was shared or copied, and why.
    #[pyo3(get)]
    plan: PlanReport,
}

/// Several tensors as a table of Arrow.
#[pyclass(frozen, module = "tensorferry._native", name = "_ExportedTable")]
pub(crate) struct ExportedTable {
    table: Arc<TableExport<ExportOwner>>,
    /// What was shared or copied, and why, with a part for each column.
    #[pyo3(get)]
    plan: PlanReport,
}

/// Exports a tensor. Rows are null where a bit of `validity` is zero. Calls of users are traced; tensorferry itself reads what is
/// not traced.
#[pyfunction]
#[pyo3(signature = (x, validity=None, *, traced=false))]
pub(crate) fn _arrow_export_column(
    x: &Bound<'_, PyAny>,
    validity: Option<&Bound<'_, PyAny>>,
    traced: bool,
) -> Result<ExportedColumn> {
    let (column, plan) = export("", x, traced)?;
    let column = match validity {
        Some(bits) => column.with_validity(with_shared_owner(read_source(bits, Booleans::Bytes)?.tensor))?,
        None => column,
    };
    Ok(ExportedColumn { column, plan })
}

/// Exports several tensors, by name.
#[pyfunction]
#[pyo3(signature = (columns, *, traced=false))]
pub(crate) fn _arrow_export_table(
    py: Python<'_>,
    columns: Vec<(String, Bound<'_, PyAny>)>,
    traced: bool,
) -> Result<ExportedTable> {
    let (mut exported, mut parts) = (Vec::new(), Vec::new());
    for (name, x) in &columns {
        let (column, plan) =
            export(name, x, traced).map_err(|failure| failure.within(&format!("column '{name}'")))?;
        exported.push(column);
        parts.push(plan.named(format_path(&[PathStep::Key(PyString::new(py, name).into_any())])));
    }
    let plan = TreeReport::new("arrow".to_owned(), parts).into();
    Ok(ExportedTable { table: Arc::new(TableExport::new(exported)?), plan })
}

fn export(name: &str, x: &Bound<'_, PyAny>, traced: bool) -> Result<(ColumnExport<ExportOwner>, PlanReport)> {
    let started_at = Instant::now();
    let booleans = if traced { Booleans::Bits } else { Booleans::Bytes };
    let ExportSource { tensor, shape_of_bits, report } = read_source(x, booleans)?;
    let tensor = with_shared_owner(tensor);
    let column = match shape_of_bits {
        Some(shape) => ColumnExport::of_bits(name, &shape, tensor),
        None => ColumnExport::new(name, tensor),
    }?;
    if traced && trace::is_tracing() {
        trace::record(x.py(), report.clone(), started_at.elapsed())?;
    }
    Ok((column, report.into()))
}

fn with_shared_owner(tensor: Tensor<Owner>) -> Tensor<Arc<ExportOwner>> {
    // SAFETY: `map_owner` requires an owner that keeps the memory alive: the new one holds the first.
    unsafe { tensor.map_owner(|owner| Arc::new(Mutex::new(owner))) }
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
        capsule(py, self.column.schema(), SCHEMA_NAME)
    }

    /// The type and the memory of the column, as capsules. Another type is not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_on_host(self.column.device(), "__arrow_c_array__")?;
        capsules(py, self.column.schema(), self.column.array(), ARRAY_NAME)
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
        capsules(py, self.column.schema(), self.column.device_array(), DEVICE_ARRAY_NAME)
    }
}

#[pymethods]
impl ExportedTable {
    /// The types of the columns, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        capsule(py, self.table.schema(), SCHEMA_NAME)
    }

    /// The types and the memory of the columns, as capsules. Other types are not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Capsules<'py>> {
        let _ = requested_schema;
        check_on_host(self.table.device(), "__arrow_c_array__")?;
        capsules(py, self.table.schema(), self.table.array(), ARRAY_NAME)
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
        capsules(py, self.table.schema(), self.table.device_array(), DEVICE_ARRAY_NAME)
    }

    /// A stream of one batch, as a capsule. Other types are not offered.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = requested_schema;
        check_on_host(self.table.device(), "__arrow_c_stream__")?;
        let stream: ArrowArrayStream = self.table.stream();
        capsule(py, stream, STREAM_NAME)
    }
}
