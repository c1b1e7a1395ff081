//! The fast paths of JAX: private APIs of jax and jaxlib with their probes.

use crate::errors::{Result, discard_exception};
use crate::fast_paths::samples::{self, ExpectedTensor};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::frameworks::within;
use crate::interpreter::call;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::{AttachingOwner, Buffer};
use crate::protocols::buffer::from_buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_cuda::Gpu;

/// The fast paths that passed their probes.
pub(super) struct Private {
    /// `jaxlib`'s import function.
    pub(super) import: Option<Py<PyAny>>,
    /// `jaxlib`'s export function.
    pub(super) export: Option<Py<PyAny>>,
    /// Whether arrays in host memory support the buffer protocol.
    pub(super) has_buffers: bool,
    /// Whether `_arrays` lists the shards of an array.
    pub(super) lists_shards: bool,
    /// The object and the name of its attribute that state whether x64 is enabled.
    pub(super) x64: (Py<PyAny>, Py<PyString>),
}

impl Private {
    /// Runs the probes with a CPU device. The calling thread must not be tracing.
    pub(super) fn of(jax: &Bound<'_, PyModule>, cpu: &Bound<'_, PyAny>) -> Result<Self> {
        let py = jax.py();
        let sample = || -> PyResult<Bound<'_, PyAny>> {
            let values = py.import("numpy")?.call_method1("ones", ((2, 3), "float32"))?;
            jax.call_method1("device_put", (values, cpu))?.call_method0("block_until_ready")
        };
        Ok(Self {
            import: fast_paths::probe(py, FastPath::JaxDlpackImport, || probe_import(jax, cpu)),
            export: fast_paths::probe(py, FastPath::JaxDlpackExport, || probe_export(py, &sample()?)),
            has_buffers: fast_paths::probe(py, FastPath::JaxBufferProtocol, || probe_buffers(&sample()?))
                .is_some(),
            lists_shards: fast_paths::probe(py, FastPath::JaxShards, || probe_shards(&sample()?)).is_some(),
            x64: match fast_paths::probe(py, FastPath::JaxEnableX64, || probe_x64(jax)) {
                Some(flag) => (flag, PyString::intern(py, "value").unbind()),
                None => (jax.getattr("config")?.unbind(), PyString::intern(py, "jax_enable_x64").unbind()),
            },
        })
    }
}

/// A function of jaxlib. Its module depends on the version.
fn function<'py>(py: Python<'py>, name: &str) -> Probed<Bound<'py, PyAny>> {
    for module in ["jaxlib._jax", "jaxlib.xla_extension"] {
        match py.import(module) {
            Ok(module) => return present(module.getattr(name)),
            Err(error) => discard_exception(py, error),
        }
    }
    Err(Unusable::missing("neither jaxlib._jax nor jaxlib.xla_extension can be imported"))
}

fn probe_import(jax: &Bound<'_, PyModule>, cpu: &Bound<'_, PyAny>) -> Probed<Py<PyAny>> {
    let py = jax.py();
    let function = function(py, "dlpack_managed_tensor_to_buffer")?;
    let memory = samples::float32()?;
    let expected = ExpectedTensor::of(&memory);
    let capsule = crate::protocols::capsule::legacy(py, AttachingOwner::of(memory))?;
    let none = py.None();
    let created = call::call3(&function, &capsule, cpu, none.bind(py))?;
    let is_array = created.is_instance(&jax.getattr("Array")?)?;
    check(is_array, || {
        format!("the function returns an object of type {}", crate::errors::type_name(&created))
    })?;
    expected.check_created(&created, created.call_method0("unsafe_buffer_pointer")?.extract()?)?;
    let dtype = created.getattr("dtype")?.to_string();
    check(dtype == "float32", || format!("the created array has the dtype {dtype}, expected float32"))?;
    Ok(function.unbind())
}

/// The memory of an array as `__dlpack__` describes it.
fn expected_of(array: &Bound<'_, PyAny>) -> Probed<ExpectedTensor> {
    let public = crate::protocols::capsule::take(&array.call_method0("__dlpack__")?)?;
    Ok(ExpectedTensor::of(&owned_tensor::managed(public)))
}

fn probe_export(py: Python<'_>, sample: &Bound<'_, PyAny>) -> Probed<Py<PyAny>> {
    let function = function(py, "buffer_to_dlpack_managed_tensor")?;
    let sibling = sample.call_method1("addressable_data", (0,))?;
    let read = owned_tensor::managed(crate::protocols::capsule::take(&call::call1(&function, &sibling)?)?);
    expected_of(sample)?.check(&read)?;
    Ok(function.unbind())
}

fn probe_buffers(sample: &Bound<'_, PyAny>) -> Probed<()> {
    let buffer = Buffer::try_export(sample)
        .ok_or_else(|| Unusable::missing("an array in host memory does not support the buffer protocol"))?;
    expected_of(sample)?.check(&from_buffer(buffer)?)
}

fn probe_shards(sample: &Bound<'_, PyAny>) -> Probed<()> {
    let shards = present(sample.getattr(interned!(sample.py(), "_arrays")))?;
    let shards = shards.cast::<PyList>().map_err(PyErr::from)?;
    let expected = sample.getattr("sharding")?.getattr("device_set")?.len()?;
    check(shards.len() == expected, || {
        format!("_arrays has {} items for an array on {expected} device", shards.len())
    })?;
    let address = |array: &Bound<'_, PyAny>| array.call_method0("unsafe_buffer_pointer")?.extract::<usize>();
    let (found, expected) = (address(&shards.get_item(0)?)?, address(sample)?);
    check(found == expected, || format!("the shard is at {found:#x}, expected {expected:#x}"))
}

/// The private flag, compared with the public setting as it is, with x64 enabled and with x64 disabled.
fn probe_x64(jax: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
    let py = jax.py();
    let flag = present(py.import("jax._src.config").and_then(|config| config.getattr("enable_x64")))?;
    present(flag.getattr("value"))?;
    let config = jax.getattr("config")?;
    let both = || -> PyResult<(bool, bool)> {
        Ok((flag.getattr("value")?.extract()?, config.getattr("jax_enable_x64")?.extract()?))
    };
    let switch = match jax.getattr_opt("enable_x64")? {
        Some(switch) => switch,
        None => py.import("jax.experimental")?.getattr("enable_x64")?,
    };
    let (found, expected) = both()?;
    check(found == expected, || format!("the flag is {found}, expected {expected}"))?;
    for enabled in [true, false] {
        let (found, expected) = within(&[switch.call1((enabled,))?], both)?;
        check(found == expected && found == enabled, || {
            format!("the flag is {found} while enable_x64 is {enabled}")
        })?;
    }
    Ok(flag.unbind())
}

/// Checks that the device returns the stream that `jax.dlpack.from_dlpack` uses. JAX has several such streams and rotates them.
pub(super) fn probe_ready_stream(
    device: &Bound<'_, PyAny>,
    from_dlpack: &Bound<'_, PyAny>,
    gpu: &Gpu,
) -> Probed<()> {
    /// More calls than JAX has streams.
    const MAX_CALLS: usize = 32;
    let py = device.py();
    present(device.getattr("get_stream_for_external_ready_events"))?;
    let requested = Arc::new(AtomicUsize::new(usize::MAX));
    let recorded = requested.clone();
    // A `__dlpack__` that records the requested stream and raises an exception instead of exporting.
    let record_stream = move |_: &Bound<'_, PyTuple>, options: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        let stream = options.and_then(|options| options.get_item("stream").ok().flatten());
        if let Some(stream) = stream.and_then(|stream| stream.extract().ok()) {
            recorded.store(stream, Ordering::Relaxed);
        }
        Err(PyBufferError::new_err("this object only records the requested stream"))
    };
    let device_tuple = (2, gpu.index()).into_pyobject(py)?.into_any().unbind();
    let return_device = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> Py<PyAny> {
        Python::attach(|py| device_tuple.clone_ref(py))
    };
    let methods = [
        ("__dlpack__", PyCFunction::new_closure(py, None, None, record_stream)?),
        ("__dlpack_device__", PyCFunction::new_closure(py, None, None, return_device)?),
    ];
    let methods = methods.into_py_dict(py)?;
    let producer = py.import("types")?.call_method("SimpleNamespace", (), Some(&methods))?;
    if let Err(error) = from_dlpack.call1((producer,)) {
        discard_exception(py, error);
    }
    let requested = requested.load(Ordering::Relaxed);
    if requested == usize::MAX {
        return Err(Unusable::failed("jax.dlpack.from_dlpack passes no stream to __dlpack__"));
    }
    for _ in 0..MAX_CALLS {
        let handle = call::method(device, interned!(py, "get_stream_for_external_ready_events"))?;
        if handle.extract::<usize>()? == requested {
            return Ok(());
        }
    }
    Err(Unusable::failed(format!(
        "{MAX_CALLS} calls never returned the stream {requested:#x} of jax.dlpack.from_dlpack"
    )))
}
