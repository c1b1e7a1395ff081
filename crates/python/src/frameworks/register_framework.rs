//! `register_framework`: checks a registration and adds it.

use super::builtin_frameworks;
use super::user_frameworks::{Registration, index_of_type, register_list};
use crate::conversion::object_kinds;
use crate::errors::{Result, describe_argument, fail};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{DType, Device, ErrorKind};

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
    let is_builtin = builtin_frameworks::find(name).is_some();
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
            "leave out alignment= for the default of 64",
        ));
    }
    let types = types.iter().map(type_name).collect::<Result<Vec<_>>>()?;
    for (module, class) in &types {
        if index_of_type(py, module, class).is_some() || builtin_frameworks::is_known(module, class) {
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
    object_kinds::clear_cache(py);
    super::clear_target_cache(py);
    Ok(())
}

fn callable(name: &str, given: Option<Bound<'_, PyAny>>) -> Result<Option<Py<PyAny>>> {
    match given {
        Some(given) if !given.is_callable() => Err(fail(
            ErrorKind::InvalidArgument,
            format!("{name} must be a function or None, not {}", describe_argument(&given)),
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
                "leave out strides= for dense, which every framework accepts",
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
