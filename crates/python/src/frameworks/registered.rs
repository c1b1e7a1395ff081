//! Frameworks that others register from Python, at run time or through an entry point.
//!
//! A registration names the tensor types and gives two functions: `read` turns one of its tensors into
//! anything that tensorferry reads (an object with `__dlpack__`, an array, a buffer), and `write` gets a
//! [`ExportedTensor`](crate::protocols::dlpack_export::ExportedTensor) that meets the stated facts.

use crate::conversion::source::{Memory, Source, still_frozen};
use crate::errors::{Failure, Result, fail, foreign};
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
    pub(super) facts: TargetCapabilities,
    /// Module and qualified name of each tensor type.
    pub(super) types: Vec<(String, String)>,
    pub(super) read: Option<Py<PyAny>>,
    pub(super) write: Option<Py<PyAny>>,
}

/// Registrations are never taken back, so references to them live for ever. The lock is only held by threads that
/// hold the interpreter, and never while Python code runs.
static REGISTER: Mutex<Vec<&'static Registration>> = Mutex::new(Vec::new());

pub(super) fn register_list() -> MutexGuard<'static, Vec<&'static Registration>> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn at(place: usize) -> Result<&'static Registration> {
    register_list().get(place).copied().ok_or_else(|| {
        fail(
            ErrorKind::FrameworkMissing,
            "the framework was never registered",
            "call ferry.register_framework first",
        )
    })
}

/// The place of the registration that claims this type.
pub(crate) fn index_of_type(_py: Python<'_>, module: &str, name: &str) -> Option<usize> {
    register_list().iter().position(|entry| entry.types.iter().any(|(m, n)| m == module && n == name))
}

/// The place of the registration of this name, after the entry points have had their chance.
pub(crate) fn find(py: Python<'_>, name: &str) -> Result<Option<usize>> {
    let search = || register_list().iter().position(|entry| entry.facts.framework == name);
    if let Some(place) = search() {
        return Ok(Some(place));
    }
    load_entry_points(py)?;
    Ok(search())
}

/// The name of the registration at this index.
pub(crate) fn name_at(_py: Python<'_>, place: usize) -> Option<String> {
    register_list().get(place).map(|entry| entry.facts.framework.to_owned())
}

/// The names of all registrations.
pub(crate) fn names(_py: Python<'_>) -> Vec<String> {
    register_list().iter().map(|entry| entry.facts.framework.to_owned()).collect()
}

/// Runs the functions that installed packages offer as entry points, once. One that fails is named in a warning,
/// and the others go on. (Calls that come meanwhile, from such a function or from another thread, see what is
/// registered so far.)
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
        "the entry point {} ({}) in the group tensorferry.frameworks failed and is left out: {error}",
        point.getattr("name")?,
        point.getattr("value")?
    );
    let text = CString::new(text.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
}

/// What a registered framework accepts.
pub(crate) fn facts(place: usize) -> Result<&'static TargetCapabilities> {
    Ok(&at(place)?.facts)
}

/// What the registered reader makes of one of its tensors: something that we read, or the tensor itself.
pub(crate) fn open<'py>(object: &Bound<'py, PyAny>, place: usize) -> Result<Bound<'py, PyAny>> {
    let (py, entry) = (object.py(), at(place)?);
    let name = entry.facts.framework;
    let Some(read) = &entry.read else {
        return Err(fail(
            ErrorKind::NotATensor,
            format!("{name} was registered without a reader"),
            "register it with read=, a function that gives an object with __dlpack__",
        ));
    };
    read.bind(py).call1((object,)).map_err(|error| {
        let about = format!("the reader that was registered for {name} failed");
        foreign(py, error, ErrorKind::FrameworkFailed, &about, "mend the function passed as read=")
    })
}

/// The reader gave a tensor that needs a registered reader again.
pub(crate) fn gave_another(place: usize) -> Result<Failure> {
    let name = at(place)?.facts.framework;
    Ok(fail(
        ErrorKind::InvalidArgument,
        format!("the reader of {name} gave another tensor of a registered framework"),
        "let it return an array, a buffer, or an object with __dlpack__",
    ))
}

/// What was read, as a tensor of the registered framework.
pub(crate) fn claim<'py>(
    mut source: Source<'py>,
    object: &Bound<'py, PyAny>,
    place: usize,
) -> Result<Source<'py>> {
    let entry = at(place)?;
    source.memory = match source.memory {
        Memory::Here(mut tensor) => {
            // The framework that lent the memory may have several CPU devices; this one has one.
            if tensor.device().kind == DeviceKind::Cpu {
                tensor.set_cpu(Device::CPU);
            }
            Memory::Here(still_frozen(tensor))
        }
        // Only the framework that put the work off can do it, so the source stays its tensor.
        later => {
            source.memory = later;
            return Ok(source);
        }
    };
    source.framework = entry.facts.framework;
    source.object = object.clone();
    if entry.facts.mutability == TargetMutability::Immutable && source.mutability == SourceMutability::Mutable
    {
        source.mutability = SourceMutability::Immutable;
    }
    Ok(source)
}

/// Makes one of its tensors.
pub(crate) fn write<'py>(py: Python<'py>, tensor: Tensor<Owner>, place: usize) -> Result<Bound<'py, PyAny>> {
    let entry = at(place)?;
    let name = entry.facts.framework;
    let Some(write) = &entry.write else {
        return Err(fail(
            ErrorKind::FrameworkMissing,
            format!("{name} was registered without a writer"),
            "register it with write=, a function that takes an ExportedTensor",
        ));
    };
    let exported = crate::protocols::dlpack_export::ExportedTensor::wrap(
        py,
        tensor,
        entry.facts.mutability == TargetMutability::Immutable,
    )?;
    write.bind(py).call1((exported,)).map_err(|error| {
        let about = format!("the writer that was registered for {name} failed");
        foreign(py, error, ErrorKind::FrameworkFailed, &about, "mend the function passed as write=")
    })
}
