//! What is private of JAX, tried once, and the public functions that do the same.

use crate::errors::{Result, forget};
use crate::fast_paths::samples::{self, Described};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::frameworks::within;
use crate::interpreter::call;
use crate::interpreter::owner::{AttachingOwner, Buffer};
use crate::protocols::buffer::from_buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_cuda::Gpu;

/// The fast paths that work here.
pub(super) struct Private {
    /// `jaxlib`'s import function.
    pub(super) import: Option<Py<PyAny>>,
    /// `jaxlib`'s export function.
    pub(super) export: Option<Py<PyAny>>,
    /// Whether arrays in host memory export a buffer.
    pub(super) has_buffers: bool,
    /// Whether `_arrays` lists the pieces of an array.
    pub(super) lists_shards: bool,
    /// An object and the name of its attribute that says whether 64-bit types are on.
    pub(super) x64: (Py<PyAny>, Py<PyString>),
}

impl Private {
    /// Called on a thread on which nothing is traced, with a device in host memory.
    pub(super) fn of(jax: &Bound<'_, PyModule>, cpu: &Bound<'_, PyAny>) -> Result<Self> {
        let py = jax.py();
        let sample = || -> PyResult<Bound<'_, PyAny>> {
            let values = py.import("numpy")?.call_method1("ones", ((2, 3), "float32"))?;
            jax.call_method1("device_put", (values, cpu))?.call_method0("block_until_ready")
        };
        let probe_import = || import(jax, cpu);
        let probe_export = || export(py, &sample()?);
        let probe_buffers = || buffers(&sample()?);
        let probe_shards = || shards(&sample()?);
        Ok(Self {
            import: fast_paths::probe(py, FastPath::JaxDlpackImport, probe_import),
            export: fast_paths::probe(py, FastPath::JaxDlpackExport, probe_export),
            has_buffers: fast_paths::probe(py, FastPath::JaxBufferProtocol, probe_buffers).is_some(),
            lists_shards: fast_paths::probe(py, FastPath::JaxShards, probe_shards).is_some(),
            x64: match fast_paths::probe(py, FastPath::JaxEnableX64, || x64(jax)) {
                Some(flag) => (flag, PyString::intern(py, "value").unbind()),
                None => (jax.getattr("config")?.unbind(), PyString::intern(py, "jax_enable_x64").unbind()),
            },
        })
    }
}

/// A function of jaxlib, from where this version keeps it.
fn function<'py>(py: Python<'py>, name: &str) -> Probed<Bound<'py, PyAny>> {
    for module in ["jaxlib._jax", "jaxlib.xla_extension"] {
        match py.import(module) {
            Ok(module) => return present(module.getattr(name)),
            Err(error) => forget(py, error),
        }
    }
    Err(Unusable::missing("neither jaxlib._jax nor jaxlib.xla_extension can be imported"))
}

fn import(jax: &Bound<'_, PyModule>, cpu: &Bound<'_, PyAny>) -> Probed<Py<PyAny>> {
    let py = jax.py();
    let function = function(py, "dlpack_managed_tensor_to_buffer")?;
    let memory = samples::float32()?;
    let expected = Described::of(&memory);
    let capsule = crate::protocols::capsule::legacy(py, AttachingOwner::of(memory))?;
    let none = py.None();
    let made = call::call3(&function, &capsule, cpu, none.bind(py))?;
    let is_array = made.is_instance(&jax.getattr("Array")?)?;
    check(is_array, || format!("it makes an object of type {}", crate::errors::type_name(&made)))?;
    expected.check_made(&made, made.call_method0("unsafe_buffer_pointer")?.extract()?)?;
    let dtype = made.getattr("dtype")?.to_string();
    check(dtype == "float32", || format!("the array that it makes is of type {dtype} instead of float32"))?;
    Ok(function.unbind())
}

/// What the public function says about an array.
fn described(array: &Bound<'_, PyAny>) -> Probed<Described> {
    let public = crate::protocols::capsule::take(&array.call_method0("__dlpack__")?)?;
    Ok(Described::of(&crate::protocols::capsule::owned(public)))
}

fn export(py: Python<'_>, sample: &Bound<'_, PyAny>) -> Probed<Py<PyAny>> {
    let function = function(py, "buffer_to_dlpack_managed_tensor")?;
    let sibling = sample.call_method1("addressable_data", (0,))?;
    let read = crate::protocols::capsule::owned(crate::protocols::capsule::take(&call::call1(
        &function, &sibling,
    )?)?);
    described(sample)?.check(&read)?;
    Ok(function.unbind())
}

fn buffers(sample: &Bound<'_, PyAny>) -> Probed<()> {
    let buffer = Buffer::try_export(sample)
        .ok_or_else(|| Unusable::missing("an array in host memory does not export a buffer"))?;
    described(sample)?.check(&from_buffer(buffer)?)
}

fn shards(sample: &Bound<'_, PyAny>) -> Probed<()> {
    let pieces = present(sample.getattr(intern!(sample.py(), "_arrays")))?;
    let pieces = pieces.cast::<PyList>().map_err(PyErr::from)?;
    let expected = sample.getattr("sharding")?.getattr("device_set")?.len()?;
    check(pieces.len() == expected, || {
        format!("it lists {} pieces of an array on {expected} device", pieces.len())
    })?;
    let address = |array: &Bound<'_, PyAny>| array.call_method0("unsafe_buffer_pointer")?.extract::<usize>();
    let (found, expected) = (address(&pieces.get_item(0)?)?, address(sample)?);
    check(found == expected, || format!("the piece is at {found:#x} instead of {expected:#x}"))
}

/// The flag behind the setting, compared with the setting as it is, on and off.
fn x64(jax: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
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
    check(found == expected, || format!("it is {found} instead of {expected}"))?;
    for wanted in [true, false] {
        let (found, expected) = within(&[switch.call1((wanted,))?], both)?;
        check(found == expected && found == wanted, || {
            format!("it is {found} where 64-bit types are set to {wanted}")
        })?;
    }
    Ok(flag.unbind())
}

/// Whether the device names a stream that the public import uses too. JAX has several, and takes them in turn.
pub(super) fn ready_stream(
    device: &Bound<'_, PyAny>,
    from_dlpack: &Bound<'_, PyAny>,
    gpu: &Gpu,
) -> Probed<()> {
    /// More than JAX has.
    const CALLS: usize = 32;
    let py = device.py();
    present(device.getattr("get_stream_for_external_ready_events"))?;
    let named = Arc::new(AtomicUsize::new(usize::MAX));
    let heard = named.clone();
    // Refuses to export, once it has heard the stream.
    let refuse = move |_: &Bound<'_, PyTuple>, options: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        let stream = options.and_then(|options| options.get_item("stream").ok().flatten());
        if let Some(stream) = stream.and_then(|stream| stream.extract().ok()) {
            heard.store(stream, Ordering::Relaxed);
        }
        Err(PyBufferError::new_err("nothing is exported here"))
    };
    let place = (2, gpu.index()).into_pyobject(py)?.into_any().unbind();
    let say_place = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> Py<PyAny> {
        Python::attach(|py| place.clone_ref(py))
    };
    let methods = [
        ("__dlpack__", PyCFunction::new_closure(py, None, None, refuse)?),
        ("__dlpack_device__", PyCFunction::new_closure(py, None, None, say_place)?),
    ];
    let methods = methods.into_py_dict(py)?;
    let listener = py.import("types")?.call_method("SimpleNamespace", (), Some(&methods))?;
    if let Err(error) = from_dlpack.call1((listener,)) {
        forget(py, error);
    }
    let named = named.load(Ordering::Relaxed);
    if named == usize::MAX {
        return Err(Unusable::failed("jax.dlpack.from_dlpack names no stream to __dlpack__"));
    }
    for _ in 0..CALLS {
        let handle = call::method(device, intern!(py, "get_stream_for_external_ready_events"))?;
        if handle.extract::<usize>()? == named {
            return Ok(());
        }
    }
    Err(Unusable::failed(format!("it never gives the stream {named:#x}, which jax.dlpack.from_dlpack names")))
}
