//! Frameworks that users register with `ferry.register_framework`, at run time or through an entry point.
//!
//! A registration lists tensor types and has two functions. `read` converts one of the tensors into anything that tensorferry
//! reads (an object with `__dlpack__`, an array, a buffer). `write` receives an
//! [`ExportedTensor`](crate::protocols::dlpack_export::ExportedTensor) that meets the stated capabilities.

use super::{Framework, Target, register};
use crate::conversion::source::{Memory, Source, still_frozen};
use crate::errors::{Failure, Result, describe, fail, foreign};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use pyo3::exceptions::{PyException, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Tensor};

struct Registration {
    capabilities: TargetCapabilities,
    /// Module and qualified name of each tensor type.
    types: Vec<(String, String)>,
    read: Option<Py<PyAny>>,
    write: Option<Py<PyAny>>,
}

/// Registrations are never removed, so references to them are `'static`. Threads take the lock only while they hold the GIL,
/// and run no Python code under it.
static REGISTER: Mutex<Vec<&'static Registration>> = Mutex::new(Vec::new());

fn register_list() -> MutexGuard<'static, Vec<&'static Registration>> {
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
fn capabilities(index: usize) -> Result<&'static TargetCapabilities> {
    Ok(&at(index)?.capabilities)
}

/// Calls the registered `read` function with one of its tensors.
pub(crate) fn open<'py>(object: &Bound<'py, PyAny>, index: usize) -> Result<Bound<'py, PyAny>> {
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
        foreign(py, error, ErrorKind::FrameworkFailed, &about, "fix the function passed as read=")
    })
}

/// The error for a `read` function that returns a tensor of a registered framework again.
pub(crate) fn gave_another(index: usize) -> Result<Failure> {
    let name = at(index)?.capabilities.framework;
    Ok(fail(
        ErrorKind::InvalidArgument,
        format!("the read function of {name} returned a tensor of a registered framework"),
        "return an array, a buffer, or an object with __dlpack__",
    ))
}

/// Relabels a source that was read through `read` as a tensor of the registered framework.
pub(crate) fn claim<'py>(
    mut source: Source<'py>,
    object: &Bound<'py, PyAny>,
    index: usize,
) -> Result<Source<'py>> {
    let entry = at(index)?;
    source.memory = match source.memory {
        Memory::Here(mut tensor) => {
            // The framework that owns the memory may have several CPU devices; a registered one has one.
            if tensor.device().kind == DeviceKind::Cpu {
                tensor.set_cpu(Device::CPU);
            }
            Memory::Here(still_frozen(tensor))
        }
        // Only the framework with the pending operation can perform it, so the source remains its tensor.
        pending => {
            source.memory = pending;
            return Ok(source);
        }
    };
    source.framework = entry.capabilities.framework;
    source.object = object.clone();
    if entry.capabilities.mutability == TargetMutability::Immutable
        && source.mutability == SourceMutability::Mutable
    {
        source.mutability = SourceMutability::Immutable;
    }
    Ok(source)
}

/// Calls the registered `write` function with the tensor.
fn write<'py>(py: Python<'py>, tensor: Tensor<Owner>, index: usize) -> Result<Bound<'py, PyAny>> {
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
        foreign(py, error, ErrorKind::FrameworkFailed, &about, "fix the function passed as write=")
    })
}

/// Adds a framework, so that `to` reads and creates its tensors.
///
/// Args:
///     name: The name in `to(x, name)`.
///     types: Its tensor types, as classes or as "module:Class", which imports nothing.
///     read: Called with one of its tensors; returns anything that `to` reads, such as an object with
///         `__dlpack__`. None if its tensors are not read.
///     write: Called with an ExportedTensor, which has `__dlpack__`; returns one of its tensors over that memory. None if its
///         tensors are only read.
///     dtypes: The names of the supported element types; by default all of them.
///     strides: The strides that `write` accepts: "dense" row-major, "permuted" (no gaps), "forward" (no negative strides)
///         or "any".
///     alignment: The required alignment in bytes.
///     immutable: Whether its tensors are immutable.
///     max_rank: The largest supported number of dimensions.
///
/// A package can call this in a function that is an entry point of the group `tensorferry.frameworks`.
///
/// Returns:
///     None.
///
/// Raises:
///     InvalidArgumentError: The name is taken, or an argument has an invalid value.
///
/// Example:
///     >>> class Box:
///     ...     def __init__(self, array):
///     ...         self.array = array
///     >>> ferry.register_framework(
///     ...     "box", types=[Box], read=lambda box: box.array, write=lambda x: Box(np.from_dlpack(x))
///     ... )
///     >>> ferry.to(Box(np.arange(3)), "torch").tolist()
///     [0, 1, 2]
///     >>> ferry.to(np.arange(3), "box").array.tolist()
///     [0, 1, 2]
#[pyfunction]
#[pyo3(signature = (name, *, types, read, write, dtypes=None, strides="dense", alignment=64, immutable=false, max_rank=64))]
#[expect(clippy::too_many_arguments, reason = "one parameter per Python keyword")]
pub(crate) fn register_framework(
    py: Python<'_>,
    name: &str,
    types: Vec<Bound<'_, PyAny>>,
    read: Option<Bound<'_, PyAny>>,
    write: Option<Bound<'_, PyAny>>,
    dtypes: Option<Vec<String>>,
    strides: &str,
    alignment: usize,
    immutable: bool,
    max_rank: usize,
) -> Result<()> {
    let is_builtin = register::find(name).is_some();
    if is_builtin || register_list().iter().any(|entry| entry.capabilities.framework == name) {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("the framework \"{name}\" already exists"),
            "choose another name",
        ));
    }
    if !alignment.is_power_of_two() || alignment > 64 {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("alignment must be a power of two up to 64, not {alignment}"),
            "omit alignment= for the default of 64",
        ));
    }
    let types = types.iter().map(type_name).collect::<Result<Vec<_>>>()?;
    for (module, class) in &types {
        if index_of_type(py, module, class).is_some() || crate::conversion::kinds::is_known(module, class) {
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("the type {module}.{class} already belongs to a framework"),
                "register a type that is not supported yet",
            ));
        }
    }
    let read = callable("read", read)?;
    let write = callable("write", write)?;
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let capabilities = TargetCapabilities {
        framework: name,
        title: name,
        dtypes: parse_dtypes(dtypes)?,
        repacked: DTypes::NONE,
        host_only: DTypes::NONE,
        own_memory: None,
        keeps_64_bit: true,
        narrow_by_default: false,
        accepts_swapped_bytes: false,
        strides: parse_strides(strides)?,
        alignment,
        max_rank,
        mutability: if immutable { TargetMutability::Immutable } else { TargetMutability::Writable },
        devices: SupportedDevices::Host,
        default_device: Device::CPU,
        cpu_count: 1,
        default_cpu: 0,
        // Unknown, so the worse case is assumed.
        drops_on_own_threads: true,
    };
    let entry: &'static Registration = Box::leak(Box::new(Registration { capabilities, types, read, write }));
    register_list().push(entry);
    crate::conversion::kinds::forget(py);
    super::clear_target_cache(py);
    Ok(())
}

fn callable(name: &str, given: Option<Bound<'_, PyAny>>) -> Result<Option<Py<PyAny>>> {
    match given {
        Some(given) if !given.is_callable() => Err(fail(
            ErrorKind::InvalidArgument,
            format!("{name} must be a function or None, not {}", describe(&given)),
            "pass a function of one argument",
        )),
        other => Ok(other.map(Bound::unbind)),
    }
}

fn parse_dtypes(names: Option<Vec<String>>) -> Result<DTypes> {
    let Some(names) = names else { return Ok(DTypes::ALL) };
    let mut set = DTypes::NONE;
    for name in names {
        let dtype = DType::from_name(&name).ok_or_else(|| {
            fail(
                ErrorKind::InvalidArgument,
                format!("unknown element type \"{name}\""),
                "pass a name such as \"float32\"",
            )
        })?;
        set = set.with(DTypes::of(&[dtype]));
    }
    Ok(set)
}

fn parse_strides(text: &str) -> Result<Strides> {
    Ok(match text {
        "dense" => Strides::Dense,
        "permuted" => Strides::Permuted,
        "forward" => Strides::Forward,
        "any" => Strides::Elements,
        _ => {
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("strides must be dense, permuted, forward or any, not \"{text}\""),
                "omit strides= for dense, which every framework accepts",
            ));
        }
    })
}

fn type_name(given: &Bound<'_, PyAny>) -> Result<(String, String)> {
    if let Ok(class) = given.cast::<PyType>() {
        return Ok((class.getattr("__module__")?.to_string(), class.getattr("__qualname__")?.to_string()));
    }
    let text = given.cast::<PyString>().map(|text| text.to_string()).unwrap_or_default();
    match text.split_once(':') {
        Some((module, name)) => Ok((module.to_owned(), name.to_owned())),
        None => Err(fail(
            ErrorKind::InvalidArgument,
            "types must contain classes or strings \"module:Class\"",
            "pass types=[\"mylib.core:Array\"]",
        )),
    }
}

impl Target {
    /// What the target accepts.
    pub(crate) fn facts(self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        match self {
            Self::Builtin(framework) => framework.capabilities(py),
            Self::Registered(index) => capabilities(index),
        }
    }

    /// Creates one of the target's tensors.
    pub(crate) fn write<'py>(self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Builtin(framework) => framework.write(py, tensor),
            Self::Registered(index) => write(py, tensor, index),
        }
    }

    /// The built-in framework. Registered frameworks hold host memory only.
    pub(crate) fn builtin(self) -> Result<&'static dyn Framework> {
        match self {
            Self::Builtin(framework) => Ok(framework),
            Self::Registered(_) => Err(super::host_only()),
        }
    }
}
