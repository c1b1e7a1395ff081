//! The frameworks: one file each, the same functions in each, one row each in the register (`register.rs`).

pub(crate) mod cupy;
pub(crate) mod exchange;
pub(crate) mod info;
pub(crate) mod jax;
pub(crate) mod mlx;
pub(crate) mod numpy;
pub(crate) mod paddle;
pub(crate) mod register;
pub(crate) mod registered;
pub(crate) mod tensorflow;
pub(crate) mod torch;

use crate::conversion::kinds::{Builtin, Form};
use crate::conversion::source::Source;
use crate::conversion::streams::{Room, Streams};
use crate::errors::{Failure, Result, advice, fail, foreign, refused};
use crate::interpreter::owner::Owner;
use crate::interpreter::type_cache::Cache;
use pyo3::exceptions::{PyMemoryError, PyModuleNotFoundError};
use pyo3::prelude::*;
use pyo3::types::PyModule;
use register::Entry;
use tensorferry_core::plan::{Pending, TargetCapabilities};
use tensorferry_core::{DType, ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

/// What every framework's file provides.
pub(crate) trait Framework: Sync {
    /// What it accepts, right now. Imports the framework if the caller asked for it by name.
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities>;

    /// Reads one of its tensors.
    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>>;

    /// Does the work that a reader found put off, and gives memory that nobody else uses.
    fn materialise(&self, object: &Bound<'_, PyAny>, pending: Pending) -> Result<Tensor<Owner>>;

    /// Wraps a tensor that meets its facts as the framework's own type.
    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>>;

    /// Where it will queue work on memory of this GPU that it is given.
    fn streams(&self, _py: Python<'_>, _gpu: &'static Gpu) -> Result<Streams> {
        Err(host_only())
    }

    /// Whether its users choose the stream on which they use a tensor.
    fn has_named_streams(&self) -> bool {
        false
    }

    /// As [`Framework::write`], for GPU memory; `waits` is the side of it that was told to wait, if the memory is not
    /// ready yet.
    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _waits: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        self.write(py, tensor)
    }

    /// New memory of its own on a GPU, dense and row-major; on this stream, if one is named, and else on its own choice.
    fn allocate<'py>(
        &self,
        _py: Python<'py>,
        _dtype: DType,
        _shape: &[i64],
        _gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<Room<'py>> {
        Err(host_only())
    }
}

/// Nobody comes here: the planner sends no GPU memory to a framework whose facts say that it holds none.
fn host_only() -> Failure {
    fail(ErrorKind::UnsupportedDevice, "the framework holds host memory only", "leave device out")
}

/// Where a tensor is to go.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A framework of the register.
    Builtin(&'static dyn Framework),
    /// A framework that was registered from Python, by its index.
    Registered(usize),
}

static TARGETS: Cache<Target> = Cache::new();

/// Forgets which names led where: a registration may change it.
pub(crate) fn forget(py: Python<'_>) {
    TARGETS.clear(py);
}

/// The framework that the caller named, by a string or by its module.
pub(crate) fn target(name: &Bound<'_, PyAny>) -> Result<Target> {
    let py = name.py();
    if let Some(target) = TARGETS.get(py, name.as_ptr()) {
        return Ok(target);
    }
    let target = find(py, &register::written(name)?)?;
    TARGETS.put(name, target);
    Ok(target)
}

fn find(py: Python<'_>, name: &str) -> Result<Target> {
    if let Some(entry) = register::find(name) {
        let dense = entry.dense.ok_or_else(|| sparse_only(entry))?;
        return Ok(Target::Builtin(dense.framework()));
    }
    match registered::find(py, name)? {
        Some(place) => Ok(Target::Registered(place)),
        None => Err(register::unknown(py, name)),
    }
}

/// Dense tensors cannot go to a framework that holds none.
pub(crate) fn sparse_only(entry: &Entry) -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("{} holds sparse tensors only", entry.title),
        "name a framework that holds dense tensors, such as \"numpy\"",
    )
}

/// Does something inside of context managers, and leaves them again.
pub(crate) fn within<'py, T>(
    managers: &[Bound<'py, PyAny>],
    work: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let Some((outer, inner)) = managers.split_first() else { return work() };
    outer.call_method0("__enter__")?;
    let done = within(inner, work);
    let none = outer.py().None();
    outer.call_method1("__exit__", (&none, &none, &none))?;
    done
}

/// A framework's allocator failed: for want of memory, in which case we say how much was needed and was free, or else.
pub(crate) fn allocation_failed(
    py: Python<'_>,
    title: &str,
    error: PyErr,
    gpu: &Gpu,
    dtype: DType,
    shape: &[i64],
) -> Failure {
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let exhausted = error.is_instance_of::<PyMemoryError>(py)
        || ["OutOfMemoryError", "ResourceExhaustedError"].contains(&name.as_str())
        || error.value(py).to_string().contains("RESOURCE_EXHAUSTED");
    if !exhausted {
        return refused(py, title, error);
    }
    let count = shape.iter().fold(1usize, |count, &length| count.saturating_mul(length.max(0) as usize));
    let stated = tensorferry_cuda::out_of_memory(gpu, count.saturating_mul(dtype.size()));
    let extended = hoarder(py).zip(advice(&stated)).map(|(hoarder, advice)| format!("{advice}; {hoarder}"));
    let stated = match extended {
        Some(advice) => stated.with_advice(advice),
        None => stated,
    };
    Failure::Because(stated, Box::new(error))
}

/// Who is loaded and was not kept from taking most of a GPU when it starts, and how to keep it from that.
fn hoarder(py: Python<'_>) -> Option<String> {
    const HABITS: [(&str, &str, &str, &str); 2] = [
        ("tensorflow", "TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH", "true"),
        ("jax", "JAX", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ];
    let loaded = py.import("sys").and_then(|sys| sys.getattr("modules")).ok()?;
    HABITS.into_iter().find_map(|(module, title, variable, modest)| {
        let hoards = loaded.contains(module).is_ok_and(|there| there)
            && std::env::var(variable).map_or(true, |value| !value.eq_ignore_ascii_case(modest))
            && !(module == "tensorflow" && grows(py).unwrap_or(false));
        hoards.then(|| {
            format!(
                "{title} is loaded, and may have taken most of the GPU when it started, which {variable}={modest} prevents"
            )
        })
    })
}

/// Whether TensorFlow was told to take memory as it needs it.
fn grows(py: Python<'_>) -> PyResult<bool> {
    let config = py.import("tensorflow")?.getattr("config")?;
    let devices = config.call_method1("list_physical_devices", ("GPU",))?;
    let experimental = config.getattr("experimental")?;
    for device in devices.try_iter()? {
        if !experimental.call_method1("get_memory_growth", (device?,))?.is_truthy()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Two modules that live in one process in one order of import only; in the other, the second import ends the process.
pub(crate) struct ImportOrder {
    /// The module that must be imported first.
    pub(crate) first: &'static str,
    /// The module that may be imported after it, and not before.
    pub(crate) second: &'static str,
    /// The framework that imports `first`: itself, or one that loads it when it is needed.
    pub(crate) framework: &'static str,
    /// How the process ended, and with which versions.
    pub(crate) seen: &'static str,
}

/// The orders of import that end the process, as seen on Linux. `tensorferry doctor` tries them on the user's machine.
pub(crate) const IMPORT_ORDERS: [ImportOrder; 2] = [
    ImportOrder {
        first: "paddle",
        second: "tensorflow",
        framework: "paddle",
        seen: "SIGSEGV with Paddle 3.3 and TensorFlow 2.21",
    },
    ImportOrder {
        first: "triton",
        second: "tensorflow",
        framework: "torch",
        seen: "SIGABRT with Triton 3.9 and TensorFlow 2.21",
    },
];

/// Refuses to import a module if that would end the process. A module that is loaded already is never refused.
pub(crate) fn check_import(py: Python<'_>, module: &str) -> Result<()> {
    let top = module.split('.').next().unwrap_or(module);
    let modules = py.import("sys")?.getattr("modules")?;
    // `sys.modules[name] = None` blocks an import.
    let is_loaded =
        |name: &str| -> PyResult<bool> { Ok(modules.contains(name)? && !modules.get_item(name)?.is_none()) };
    if is_loaded(top)? {
        return Ok(());
    }
    for ImportOrder { first, second, seen, .. } in &IMPORT_ORDERS {
        if *first == top && is_loaded(second)? {
            return Err(fail(
                ErrorKind::FrameworkMissing,
                format!("{first} is not imported after {second}, which would end the process ({seen})"),
                format!("write \"import {first}\" before \"import {second}\", where the program starts"),
            ));
        }
    }
    Ok(())
}

/// Imports a framework's module, or says that it is not there.
pub(crate) fn import<'py>(py: Python<'py>, framework: Builtin) -> Result<Bound<'py, PyModule>> {
    let entry = framework.entry();
    check_import(py, entry.module)?;
    py.import(entry.module).map_err(|error| {
        let top = entry.module.split('.').next().unwrap_or(entry.module);
        let name =
            error.value(py).getattr("name").and_then(|name| name.extract::<String>()).unwrap_or_default();
        let missing =
            error.is_instance_of::<PyModuleNotFoundError>(py) && name.split('.').next() == Some(top);
        if missing {
            fail(
                ErrorKind::FrameworkMissing,
                format!("{} is not installed", entry.title),
                format!("pip install {}", entry.distributions[0]),
            )
        } else {
            let about = format!("{} is installed and cannot be imported", entry.title);
            foreign(py, error, ErrorKind::FrameworkMissing, &about, "mend its installation")
        }
    })
}
