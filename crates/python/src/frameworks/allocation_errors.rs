//! Errors of the frameworks' GPU allocators.

use crate::errors::{Failure, advice, framework_error};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use tensorferry_core::DType;
use tensorferry_cuda::Gpu;

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
        return framework_error(py, title, error);
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
    Failure::WithCause(out_of_memory, Box::new(error))
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
