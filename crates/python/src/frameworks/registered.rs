//! Frameworks that others register from Python, at run time or through an entry point.
//!
//! A registration names the tensor types and gives two functions: `read` turns one of its tensors into
//! anything that tensorferry reads (an object with `__dlpack__`, an array, a buffer), and `write` gets a
//! [`ExportedTensor`](crate::protocols::dlpack_export::ExportedTensor) that meets the stated facts.

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
    facts: TargetCapabilities,
    /// Module and qualified name of each tensor type.
    types: Vec<(String, String)>,
    read: Option<Py<PyAny>>,
    write: Option<Py<PyAny>>,
}

/// Registrations are never taken back, so references to them live for ever. The lock is only held by threads that
/// hold the interpreter, and never while Python code runs.
static REGISTER: Mutex<Vec<&'static Registration>> = Mutex::new(Vec::new());

fn register_list() -> MutexGuard<'static, Vec<&'static Registration>> {
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

/// Adds a framework, so that `to` reads its tensors and makes new ones.
///
/// Args:
///     name: What users write in `to(x, name)`.
///     types: Its tensor types, as classes or as "module:Class", which imports nothing.
///     read: Called with one of its tensors; returns anything that `to` reads, such as an object with
///         `__dlpack__`. None if its tensors are not read.
///     write: Called with an ExportedTensor, which has `__dlpack__`; returns one of its tensors over that memory. None if none
///         are made.
///     dtypes: The element types it holds, by name; all of them if left out.
///     strides: What `write` takes: "dense" row-major, "permuted" (no gaps), "forward" (no negative strides)
///         or "any".
///     alignment: The alignment in bytes that it needs.
///     immutable: Whether its tensors are immutable.
///     max_rank: The most dimensions it takes.
///
/// A package can call this from a function named by an entry point in the group `tensorferry.frameworks`.
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
#[expect(clippy::too_many_arguments, reason = "the keywords are the public face of a registration")]
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
    let taken = register::find(name).is_some();
    if taken || register_list().iter().any(|entry| entry.facts.framework == name) {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("a framework called \"{name}\" is there already"),
            "choose another name",
        ));
    }
    if !alignment.is_power_of_two() || alignment > 64 {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("alignment must be a power of two up to 64, not {alignment}"),
            "leave it out for 64",
        ));
    }
    let types = types.iter().map(type_name).collect::<Result<Vec<_>>>()?;
    for (module, class) in &types {
        if index_of_type(py, module, class).is_some() || crate::conversion::kinds::is_known(module, class) {
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("objects of type {module}.{class} have their reader already"),
                "register a type of your own",
            ));
        }
    }
    let read = callable("read", read)?;
    let write = callable("write", write)?;
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let facts = TargetCapabilities {
        framework: name,
        title: name,
        dtypes: parse_types(dtypes)?,
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
        // Unknown, so the worse is assumed.
        drops_on_own_threads: true,
    };
    let entry: &'static Registration = Box::leak(Box::new(Registration { facts, types, read, write }));
    register_list().push(entry);
    crate::conversion::kinds::forget(py);
    super::forget(py);
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

fn parse_types(names: Option<Vec<String>>) -> Result<DTypes> {
    let Some(names) = names else { return Ok(DTypes::ALL) };
    let mut set = DTypes::NONE;
    for name in names {
        let dtype = DType::from_name(&name).ok_or_else(|| {
            fail(
                ErrorKind::InvalidArgument,
                format!("no element type is called \"{name}\""),
                "write \"float32\"",
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
                "leave it out for dense, which every framework takes",
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
            "each of types must be a class or a string \"module:Class\"",
            "write types=[\"mylib.core:Array\"]",
        )),
    }
}

impl Target {
    /// What the target accepts.
    pub(crate) fn facts(self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        match self {
            Self::Builtin(framework) => framework.facts(py),
            Self::Registered(place) => facts(place),
        }
    }

    /// Makes one of the target's tensors.
    pub(crate) fn write<'py>(self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Builtin(framework) => framework.write(py, tensor),
            Self::Registered(place) => write(py, tensor, place),
        }
    }

    /// The framework behind it, if it has a file here: only those hold GPU memory.
    pub(crate) fn builtin(self) -> Result<&'static dyn Framework> {
        match self {
            Self::Builtin(framework) => Ok(framework),
            Self::Registered(_) => Err(super::host_only()),
        }
    }
}
