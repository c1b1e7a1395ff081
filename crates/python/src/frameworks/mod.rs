//! The trait [`Framework`], its implementations (one module per framework), and how a target is found by name.
//!
//! `register.rs` has one row per framework, `registered.rs` the frameworks that users register at run time.

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

/// Reads and creates the tensors of one framework.
pub(crate) trait Framework: Sync {
    /// What the framework accepts at the time of the call. Imports the framework.
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities>;

    /// Describes the memory of one of its tensors.
    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>>;

    /// Performs the pending operation that `read` reported. The result is memory that nothing else refers to.
    fn materialise(&self, object: &Bound<'_, PyAny>, pending: Pending) -> Result<Tensor<Owner>>;

    /// Creates one of its tensors over the memory of `tensor`, which meets its capabilities.
    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>>;

    /// The streams on which it queues work on imported memory of this GPU.
    fn streams(&self, _py: Python<'_>, _gpu: &'static Gpu) -> Result<Streams> {
        Err(host_only())
    }

    /// Whether its users choose the current stream.
    fn has_named_streams(&self) -> bool {
        false
    }

    /// [`Framework::write`] for GPU memory. `ready_after` is the sync point of the framework that waits for the memory, if the
    /// memory is not ready yet.
    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _ready_after: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        self.write(py, tensor)
    }

    /// Allocates a dense row-major tensor on a GPU, on `stream` if it is given and otherwise on the framework's choice.
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

/// The error of a framework without GPU memory. The planner rejects such a target earlier.
fn host_only() -> Failure {
    fail(ErrorKind::UnsupportedDevice, "the framework holds host memory only", "omit device=")
}

/// The framework that a tensor is converted to.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A framework of the register.
    Builtin(&'static dyn Framework),
    /// A framework registered at run time, by its index.
    Registered(usize),
}

static TARGETS: Cache<Target> = Cache::new();

/// Clears the cache of names. A registration may change the result.
pub(crate) fn clear_target_cache(py: Python<'_>) {
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
        Some(index) => Ok(Target::Registered(index)),
        None => Err(register::unknown(py, name)),
    }
}

/// The error for a dense tensor and a target that holds sparse tensors only.
pub(crate) fn sparse_only(entry: &Entry) -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("{} holds sparse tensors only", entry.title),
        "pass a framework with dense tensors, such as \"numpy\"",
    )
}

/// Runs `work` inside of context managers, the first one outermost.
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

/// The error of a failed GPU allocation. If memory is exhausted, it states the needed and the free bytes.
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
    let out_of_memory = tensorferry_cuda::out_of_memory(gpu, count.saturating_mul(dtype.size()));
    let extended = preallocation_hint(py)
        .zip(advice(&out_of_memory))
        .map(|(preallocation, advice)| format!("{advice}; {preallocation}"));
    let out_of_memory = match extended {
        Some(advice) => out_of_memory.with_advice(advice),
        None => out_of_memory,
    };
    Failure::Because(out_of_memory, Box::new(error))
}

/// A hint about a loaded framework that preallocates most of a GPU, unless the user disabled that.
fn preallocation_hint(py: Python<'_>) -> Option<String> {
    /// Module, title, environment variable, and the value of it that disables preallocation.
    const PREALLOCATING: [(&str, &str, &str, &str); 2] = [
        ("tensorflow", "TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH", "true"),
        ("jax", "JAX", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ];
    let loaded = py.import("sys").and_then(|sys| sys.getattr("modules")).ok()?;
    PREALLOCATING.into_iter().find_map(|(module, title, variable, disabled)| {
        let preallocates = loaded.contains(module).is_ok_and(|there| there)
            && std::env::var(variable).map_or(true, |value| !value.eq_ignore_ascii_case(disabled))
            && !(module == "tensorflow" && has_memory_growth(py).unwrap_or(false));
        preallocates.then(|| {
            format!("set {variable}={disabled}, because {title} is loaded and may have preallocated most of the GPU")
        })
    })
}

/// Whether memory growth is enabled for all GPUs of TensorFlow.
fn has_memory_growth(py: Python<'_>) -> PyResult<bool> {
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

/// Two modules that one process can import in one order only; in the other order, the second import kills the process.
pub(crate) struct ImportOrder {
    /// The module that must be imported first.
    pub(crate) first: &'static str,
    /// The module that may be imported after it, and not before.
    pub(crate) second: &'static str,
    /// The framework that imports `first`: `first` itself, or one that imports it on demand.
    pub(crate) framework: &'static str,
    /// The signal that was observed, and with which versions.
    pub(crate) observed: &'static str,
}

/// The import orders that kill the process, as observed on Linux. `tensorferry doctor` tries them on the user's machine.
pub(crate) const IMPORT_ORDERS: [ImportOrder; 2] = [
    ImportOrder {
        first: "paddle",
        second: "tensorflow",
        framework: "paddle",
        observed: "SIGSEGV with Paddle 3.3 and TensorFlow 2.21",
    },
    ImportOrder {
        first: "triton",
        second: "tensorflow",
        framework: "torch",
        observed: "SIGABRT with Triton 3.9 and TensorFlow 2.21",
    },
];

/// Fails if an import of the module would kill the process. A module that is already loaded never fails.
pub(crate) fn check_import(py: Python<'_>, module: &str) -> Result<()> {
    let top = module.split('.').next().unwrap_or(module);
    let modules = py.import("sys")?.getattr("modules")?;
    // `sys.modules[name] = None` blocks an import.
    let is_loaded =
        |name: &str| -> PyResult<bool> { Ok(modules.contains(name)? && !modules.get_item(name)?.is_none()) };
    if is_loaded(top)? {
        return Ok(());
    }
    for ImportOrder { first, second, observed, .. } in &IMPORT_ORDERS {
        if *first == top && is_loaded(second)? {
            return Err(fail(
                ErrorKind::FrameworkMissing,
                format!("importing {first} after {second} would kill the process ({observed})"),
                format!("import {first} before {second}, at the start of the program"),
            ));
        }
    }
    Ok(())
}

/// Imports a framework's module.
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
            let about = format!("{} is installed but cannot be imported", entry.title);
            foreign(py, error, ErrorKind::FrameworkMissing, &about, "repair or reinstall it")
        }
    })
}
