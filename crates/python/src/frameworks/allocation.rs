//! Errors of the frameworks' GPU allocators.

use crate::errors::{Failure, advice, refused};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use tensorferry_core::DType;
use tensorferry_cuda::Gpu;

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
