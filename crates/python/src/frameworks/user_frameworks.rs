//! Frameworks that users register with `ferry.register_framework`, at run time or through an entry point.
//!
//! A registration lists tensor types and has two functions. `read` converts one of the tensors into anything that tensorferry
//! reads (an object with `__dlpack__`, an array, a buffer). `write` receives an
//! [`ExportedTensor`](crate::protocols::dlpack_export::ExportedTensor) that meets the stated capabilities.

use crate::conversion::source::{Source, SourceMemory, restore_read_only_flag};
use crate::errors::{Failure, Result, fail, wrap_exception};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use pyo3::exceptions::{PyException, PyRuntimeWarning};
use pyo3::prelude::*;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::plan::{SourceMutability, TargetCapabilities, TargetMutability};
use tensorferry_core::{Device, ErrorKind, Tensor};

pub(super) struct Registration {
    pub(super) capabilities: TargetCapabilities,
    /// Module and qualified name of each tensor type.
    pub(super) types: Vec<(String, String)>,
    pub(super) read: Option<Py<PyAny>>,
    pub(super) write: Option<Py<PyAny>>,
}

/// Registrations are never removed, so references to them are `'static`. Threads take the lock only while they hold the GIL,
/// and run no Python code under it.
static REGISTER: Mutex<Vec<&'static Registration>> = Mutex::new(Vec::new());

pub(super) fn register_list() -> MutexGuard<'static, Vec<&'static Registration>> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn at(index: usize) -> Result<&'static Registration> {
    register_list().get(index).copied().ok_or_else(|| {
        fail(
            ErrorKind::FrameworkMissing,
            "the framework is not registered",
            "call ferry.register_framework first",
        )
    })
}

/// The index of the registration that lists this type.
pub(crate) fn index_of_type(_py: Python<'_>, module: &str, name: &str) -> Option<usize> {
    register_list().iter().position(|entry| entry.types.iter().any(|(m, n)| m == module && n == name))
}

/// The index of the registration with this name. Loads the entry points if it is not found at first.
pub(crate) fn find(py: Python<'_>, name: &str) -> Result<Option<usize>> {
    let search = || register_list().iter().position(|entry| entry.capabilities.framework == name);
    if let Some(index) = search() {
        return Ok(Some(index));
    }
    load_entry_points(py)?;
    Ok(search())
}

/// The name of the registration at this index.
pub(crate) fn name_at(_py: Python<'_>, index: usize) -> Option<String> {
    register_list().get(index).map(|entry| entry.capabilities.framework.to_owned())
}

/// The names of all registrations.
pub(crate) fn names(_py: Python<'_>) -> Vec<String> {
    register_list().iter().map(|entry| entry.capabilities.framework.to_owned()).collect()
}

/// Calls the functions that installed packages provide as entry points, once. A failure becomes a warning and does not stop
/// the others. (Calls in the meantime, from such a function or from another thread, see the registrations so far.)
pub(crate) fn load_entry_points(py: Python<'_>) -> Result<()> {
    static LOADED: ForkSafeOnce<()> = ForkSafeOnce::new();
    if LOADED.get(py).is_some() {
        return Ok(());
    }
    let _ = LOADED.set(py, ());
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("group", "tensorferry.frameworks")?;
    let points = py.import("importlib.metadata")?.call_method("entry_points", (), Some(&keywords))?;
    for point in points.try_iter()? {
        let point = point?;
        match point.call_method0("load").and_then(|function| function.call0()) {
            Err(error) if error.is_instance_of::<PyException>(py) => warn(&point, &error)?,
            other => drop(other?),
        }
    }
    Ok(())
}

fn warn(point: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<()> {
    let py = point.py();
    let text = format!(
        "entry point {} ({}) of the group tensorferry.frameworks failed and is ignored: {error}",
        point.getattr("name")?,
        point.getattr("value")?
    );
    let text = CString::new(text.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
}

/// What a registered framework accepts.
pub(super) fn capabilities(index: usize) -> Result<&'static TargetCapabilities> {
    Ok(&at(index)?.capabilities)
}

/// Calls the registered `read` function with one of its tensors.
pub(crate) fn call_read<'py>(object: &Bound<'py, PyAny>, index: usize) -> Result<Bound<'py, PyAny>> {
    let (py, entry) = (object.py(), at(index)?);
    let name = entry.capabilities.framework;
    let Some(read) = &entry.read else {
        return Err(fail(
            ErrorKind::NotATensor,
            format!("{name} was registered without a read function"),
            "register it with read=, a function that returns an object with __dlpack__",
        ));
    };
    read.bind(py).call1((object,)).map_err(|error| {
        let about = format!("the read function of {name} failed");
        wrap_exception(py, error, ErrorKind::FrameworkFailed, &about, "fix the function passed as read=")
    })
}

/// The error for a `read` function that returns a tensor of a registered framework again.
pub(crate) fn nested_read_error(index: usize) -> Result<Failure> {
    let name = at(index)?.capabilities.framework;
    Ok(fail(
        ErrorKind::InvalidArgument,
        format!("the read function of {name} returned a tensor of a registered framework"),
        "return an array, a buffer, or an object with __dlpack__",
    ))
}

/// Relabels a source that was read through `read` as a tensor of the registered framework.
pub(crate) fn relabel_source<'py>(
    mut source: Source<'py>,
    object: &Bound<'py, PyAny>,
    index: usize,
) -> Result<Source<'py>> {
    let entry = at(index)?;
    source.memory = match source.memory {
        SourceMemory::InPlace(mut tensor) => {
            // The framework that owns the memory may have several CPU devices; a registered one has one.
            if tensor.device().kind == DeviceKind::Cpu {
                tensor.set_cpu(Device::CPU);
            }
            SourceMemory::InPlace(restore_read_only_flag(tensor))
        }
        // Only the framework with the pending operation can perform it, so the source remains its tensor.
        pending => {
            source.memory = pending;
            return Ok(source);
        }
    };
    source.framework = entry.capabilities.framework;
    source.object = object.clone();
    if entry.capabilities.mutability == TargetMutability::Immutable && source.mutability.may_change() {
        source.mutability = SourceMutability::Immutable;
    }
    Ok(source)
}

/// Calls the registered `write` function with the tensor.
pub(super) fn write<'py>(py: Python<'py>, tensor: Tensor<Owner>, index: usize) -> Result<Bound<'py, PyAny>> {
    let entry = at(index)?;
    let name = entry.capabilities.framework;
    let Some(write) = &entry.write else {
        return Err(fail(
            ErrorKind::FrameworkMissing,
            format!("{name} was registered without a write function"),
            "register it with write=, a function that takes an ExportedTensor",
        ));
    };
    let exported = crate::protocols::dlpack_export::ExportedTensor::wrap(
        py,
        tensor,
        entry.capabilities.mutability == TargetMutability::Immutable,
    )?;
    write.bind(py).call1((exported,)).map_err(|error| {
        let about = format!("the write function of {name} failed");
        wrap_exception(py, error, ErrorKind::FrameworkFailed, &about, "fix the function passed as write=")
    })
}
