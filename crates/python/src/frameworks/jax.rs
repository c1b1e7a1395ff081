//! JAX: reads and creates arrays through the buffer protocol and jaxlib's DLPack functions, or through public functions.
//!
//! JAX shares memory that is aligned to 64 bytes and has no gaps, in any order of the dimensions. The planner packs all other
//! memory, so that JAX never makes a copy that the plan does not show. JAX keeps 4-bit types packed; they go through
//! `device_put`, which copies. 64-bit types exist only while x64 is enabled, which is read at each call.

mod private;

use self::private::Private;
use super::{Framework, allocation_failed, import, within};
use crate::conversion::object_kinds::{Builtin, RecognisedTensor};
use crate::conversion::source::{Source, SourceMemory, restore_read_only_flag};
use crate::conversion::streams::{self, DeviceAllocation, Streams};
use crate::errors::{Failure, Result, discard_exception, fail, framework_error};
use crate::fast_paths::{self, FastPath, on_fresh_thread, samples};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::{AttachingOwner, Buffer, Owner};
use crate::protocols::buffer::from_buffer;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyList};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::host::ALIGNMENT;
use tensorferry_core::plan::{
    Pending, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Layout, Tensor, read_only_loans};
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

pub(crate) struct Jax;

/// The types that JAX stores with several elements per byte.
const PACKED: DTypes = DTypes::of(&[DType::Int4, DType::UInt4, DType::Float4E2M1Fn]);

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: "jax",
    title: "JAX",
    dtypes: DTypes::ALL.without(DTypes::of(&[DType::Float6E2M3Fn, DType::Float6E3M2Fn])),
    repacked: PACKED,
    host_only: PACKED,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: false,
    strides: Strides::Permuted,
    alignment: ALIGNMENT,
    max_rank: 64,
    mutability: TargetMutability::Immutable,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: true,
};

/// The element types that old versions lack. Each one is an attribute of `jax.numpy` where it exists.
const RECENT_DTYPES: [DType; 4] =
    [DType::Float8E3M4, DType::Float8E4M3, DType::Float8E8M0Fnu, DType::Float4E2M1Fn];

struct State {
    private: Private,
    /// Whether the fast path `jax.ready_stream` works; probed with the first GPU.
    has_ready_stream: ForkSafeOnce<bool>,
    from_dlpack: Py<PyAny>,
    device_put: Py<PyAny>,
    /// The CPU devices of this process, by their index.
    cpus: Vec<Py<PyAny>>,
    /// The CUDA devices, with the driver's index of each.
    gpus: Vec<(i32, Py<PyAny>)>,
    empty: Py<PyAny>,
    /// The capabilities with x64 disabled and enabled, for each CPU device that may be the default.
    capabilities: Vec<[TargetCapabilities; 2]>,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let jax = import(py, Builtin::Jax)?;
        let numpy = py.import("jax.numpy")?;
        let cpus = cpus(&jax)?;
        let mut dtypes = CAPABILITIES.dtypes;
        for dtype in RECENT_DTYPES {
            if !numpy.hasattr(dtype.name())? {
                dtypes = dtypes.without(DTypes::of(&[dtype]));
            }
        }
        let gpus = gpus(&jax)?;
        let mut capabilities = TargetCapabilities { dtypes, cpu_count: cpus.len() as i32, ..CAPABILITIES };
        if let Some((index, _)) = gpus.first() {
            capabilities = TargetCapabilities {
                devices: SupportedDevices::Both,
                default_device: Device::cuda(*index),
                ..capabilities
            };
        }
        let capabilities = (0..capabilities.cpu_count).map(|default_cpu| {
            let default_device = if gpus.is_empty() { cpu(default_cpu) } else { capabilities.default_device };
            let enabled = TargetCapabilities { default_cpu, default_device, ..capabilities };
            [TargetCapabilities { keeps_64_bit: false, ..enabled }, enabled]
        });
        let (module, first) = (jax.clone().unbind(), cpus[0].clone_ref(py));
        // The calling thread may be tracing, or may have thread-local settings.
        let private = on_fresh_thread(py, |py| Private::of(module.bind(py), first.bind(py)))?;
        let mut state = State {
            private,
            has_ready_stream: ForkSafeOnce::new(),
            from_dlpack: py.import("jax.dlpack")?.getattr("from_dlpack")?.unbind(),
            device_put: jax.getattr("device_put")?.unbind(),
            capabilities: capabilities.collect(),
            cpus,
            empty: numpy.getattr("empty")?.unbind(),
            gpus,
        };
        if !on_fresh_thread(py, |py| imports_float8(py, &state)) {
            for capabilities in state.capabilities.iter_mut().flatten() {
                capabilities.dtypes = capabilities.dtypes.without(DTypes::FLOAT8);
            }
        }
        Ok(state)
    })
}

/// The CPU devices of this process, at least one.
fn cpus(jax: &Bound<'_, PyModule>) -> PyResult<Vec<Py<PyAny>>> {
    let options = [("backend", "cpu")].into_py_dict(jax.py())?;
    let devices = jax.call_method("local_devices", (), Some(&options))?;
    devices.get_item(0)?;
    devices.try_iter()?.map(|device| device.map(Bound::unbind)).collect()
}

/// The CPU device of this index.
fn cpu(index: i32) -> Device {
    Device { kind: DeviceKind::Cpu, index }
}

/// The device of a JAX device object; `None` if it belongs to another process or is neither a CPU nor a GPU.
pub(crate) fn device_named(object: &Bound<'_, PyAny>) -> Result<Option<Device>> {
    let py = object.py();
    if let Some(index) = state(py)?.cpus.iter().position(|known| known.bind(py).is(object)) {
        return Ok(Some(cpu(index as i32)));
    }
    let process = py.import("jax")?.call_method0("process_index")?;
    let is_gpu = object.getattr("platform")?.to_string() == "gpu";
    if !is_gpu || !object.getattr("process_index")?.eq(process)? {
        return Ok(None);
    }
    Ok(Some(Device::cuda(object.getattr("local_hardware_id")?.extract()?)))
}

/// The index of the CPU device set with `jax.default_device`. Called if JAX has several CPU devices.
fn default_cpu(py: Python<'_>, state: &State) -> Result<usize> {
    let default = py.import("jax")?.getattr("config")?.getattr("jax_default_device")?;
    Ok(state.cpus.iter().position(|known| known.bind(py).is(&default)).unwrap_or(0))
}

/// Sets the tensor's CPU device to that of the array, if JAX has several.
fn assign_cpu(state: &State, object: &Bound<'_, PyAny>, tensor: &mut Tensor<Owner>) -> Result<()> {
    if state.cpus.len() > 1 {
        tensor.set_cpu(cpu(cpu_of(state, object)?));
    }
    Ok(())
}

/// The index of an array's CPU device.
fn cpu_of(state: &State, object: &Bound<'_, PyAny>) -> Result<i32> {
    let py = object.py();
    let device = object.getattr(interned!(py, "device"))?;
    Ok(state.cpus.iter().position(|known| known.bind(py).is(&device)).unwrap_or(0) as i32)
}

/// JAX's CUDA devices, if CUDA is its default backend. A query for another backend would initialise that one.
fn gpus(jax: &Bound<'_, PyModule>) -> PyResult<Vec<(i32, Py<PyAny>)>> {
    let mut found = Vec::new();
    for device in jax.call_method0("local_devices")?.try_iter()? {
        let device = device?;
        if device.getattr("platform")?.to_string() == "gpu" {
            found.push((device.getattr("local_hardware_id")?.extract()?, device.unbind()));
        }
    }
    Ok(found)
}

/// Whether this version imports 8-bit floats through DLPack. Tries it with a sample.
fn imports_float8(py: Python<'_>, state: &State) -> bool {
    samples::of(DType::Float8E5M2, &[1])
        .and_then(|tensor| import_tensor(py, state, tensor, state.cpus[0].bind(py), None))
        .is_ok()
}

impl Framework for Jax {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        let state = state(py)?;
        let (holder, name) = &state.private.x64;
        let has_x64 = holder.bind(py).getattr(name.bind(py))?.is_truthy()?;
        let default = if state.cpus.len() > 1 { default_cpu(py, state)? } else { 0 };
        Ok(&state.capabilities[default][usize::from(has_x64)])
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let object = tensor.object();
        if let Some(source) = read_gpu_fast(object)? {
            return Ok(source);
        }
        // The buffer protocol is the fastest way, but cannot describe bfloat16 and other extension types, nor sharded arrays.
        let has_buffers = state(object.py())?.private.has_buffers;
        let tensor = if has_buffers { Buffer::try_export(object) } else { None };
        let tensor = match tensor {
            Some(buffer) => from_buffer(buffer),
            None if is_deleted(object) => Err(deleted()),
            None if is_sharded(object)? => return pending_source(object, Pending::Gather),
            None => match gpu_of(object)? {
                Some(gpu) => return read_gpu(object, gpu).or_else(|failure| explain(object, failure)),
                None => export(object, None),
            },
        };
        let mut tensor = match tensor {
            Ok(tensor) => tensor,
            Err(failure) => return explain(object, failure),
        };
        if read_only_loans::is_on_loan(tensor.data() as usize) {
            tensor.set_read_only();
        } else {
            // SAFETY: `set_writable` requires memory that is writable while the owner lives: JAX allocated it, or tensorferry lent
            // it as writable; the branch above handles read-only loans. The buffer is marked read-only because arrays are
            // immutable, not because the memory is.
            unsafe { tensor.set_writable() };
        }
        assign_cpu(state(object.py())?, object, &mut tensor)?;
        Ok(Source::in_place(object.clone(), "jax", tensor).with_mutability(SourceMutability::Immutable))
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        let object = tensor.object();
        let array =
            super::numpy::as_array(object).map_err(|failure| framework_error(object.py(), "JAX", failure))?;
        super::numpy::read_array(&array)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let device = tensor.device();
        // Pinned memory goes to the first CPU device; the plan sets the index of other host memory.
        let index = if device.kind == DeviceKind::Cpu { device.index } else { 0 };
        let cpu = state.cpus[index as usize].bind(py);
        if PACKED.contains(tensor.dtype()) {
            let array = super::numpy::write_array(py, tensor)?;
            let created = call::call2(state.device_put.bind(py), &array, cpu)
                .and_then(|created| call::method(&created, interned!(py, "block_until_ready")));
            return created.map_err(|error| framework_error(py, "JAX", error));
        }
        import_tensor(py, state, tensor, cpu, None)
    }

    fn streams(&self, py: Python<'_>, gpu: &'static Gpu) -> Result<Streams> {
        // JAX has dedicated streams that wait for imported memory. It runs computations on other streams.
        let (state, device) = (state(py)?, device_of(py, gpu)?);
        let has_ready_stream = *state.has_ready_stream.get_or_init(py, || {
            let public = state.from_dlpack.bind(py);
            let probe = || private::probe_ready_stream(&device, public, gpu);
            fast_paths::probe(py, FastPath::JaxReadyStream, probe).is_some()
        });
        if !has_ready_stream {
            return Ok(Streams::unnamed().preferring_ready_memory());
        }
        let handle = call::method(&device, interned!(py, "get_stream_for_external_ready_events"))?;
        let handle = handle.extract()?;
        // SAFETY: `from_handle` requires a stream that outlives the result: JAX returned it, and keeps it as long as the client of
        // the device, to which the device in `State::gpus` holds a reference.
        let waiting = SyncPoint::Stream(unsafe { Stream::from_handle(handle) });
        Ok(Streams::new(SyncPoint::AllStreams, waiting).preferring_ready_memory())
    }

    fn accepts_epoch_memory(&self) -> bool {
        true
    }

    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        next_use: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let device = device_of(py, Gpu::get(tensor.device().index)?)?;
        // JAX has several such streams and must know which one waits. Without a stream it assumes that the memory is ready,
        // which takes half the time.
        let stream = match next_use {
            Some(SyncPoint::Stream(stream)) => {
                Some((stream, stream.handle().into_pyobject(py).map_err(PyErr::from)?.into_any()))
            }
            _ => None,
        };
        let stream = stream.as_ref().map(|(stream, handle)| (*stream, handle));
        let array = import_tensor(py, state, tensor, &device, stream)?;
        prevent_donation(&array, stream.map(|(_, handle)| handle))?;
        Ok(array)
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<DeviceAllocation<'py>> {
        let state = state(py)?;
        let options =
            [("dtype", py.import("jax.numpy")?.getattr(dtype.name())?), ("device", device_of(py, gpu)?)];
        let options = options.into_py_dict(py)?;
        // `empty` must not return a tracer if the caller is being traced.
        let eager = py.import("jax")?.call_method0("ensure_compile_time_eval")?;
        let allocated = within(&[eager], || state.empty.bind(py).call((shape.to_vec(),), Some(&options)));
        let object = allocated.map_err(|error| allocation_failed(py, "JAX", error, gpu, dtype, shape))?;
        let source = read_gpu(&object, gpu).map_err(|failure| framework_error(py, "JAX", failure))?;
        let (SourceMemory::InPlace(tensor), Some(streams)) = (source.memory, source.streams) else {
            return Err(crate::errors::not_a_tensor(&object));
        };
        Ok(DeviceAllocation { object, data: tensor.data(), streams: *streams })
    }
}

/// The JAX device object of a GPU.
fn device_of<'py>(py: Python<'py>, gpu: &Gpu) -> Result<Bound<'py, PyAny>> {
    let found = state(py)?.gpus.iter().find(|(index, _)| *index == gpu.index());
    let (_, device) = found.ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDevice,
            format!("JAX does not use cuda:{}", gpu.index()),
            "install a CUDA plugin of JAX and make that GPU visible to it, or pass device=\"cpu\"",
        )
    })?;
    Ok(device.bind(py).clone())
}

/// The GPU of an array, if it is on one.
fn gpu_of(object: &Bound<'_, PyAny>) -> Result<Option<&'static Gpu>> {
    let py = object.py();
    if state(py)?.gpus.is_empty() {
        return Ok(None);
    }
    let device = object.getattr(interned!(py, "device"))?;
    let found = state(py)?.gpus.iter().find(|(_, known)| known.bind(py).is(&device));
    found.map(|(index, _)| Ok(Gpu::get(*index)?)).transpose()
}

/// Reads an array if JAX has a single GPU, without querying the array's device: the exported capsule states it. `None` if
/// the array is not on that GPU, or needs [`read_gpu`].
fn read_gpu_fast<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Source<'py>>> {
    let py = object.py();
    let state = state(py)?;
    let ([(index, _)], Some(function), true) =
        (state.gpus.as_slice(), &state.private.export, state.private.lists_shards)
    else {
        return Ok(None);
    };
    let Ok(shards) = object.getattr(interned!(py, "_arrays")) else { return Ok(None) };
    let shard = match shards.cast::<PyList>() {
        Ok(shards) if shards.len() == 1 => shards.get_item(0)?,
        _ => return Ok(None),
    };
    // As in `export`, jaxlib's function must not get the array itself.
    let shard =
        if shard.is(object) { object.call_method1(interned!(py, "addressable_data"), (0,))? } else { shard };
    let gpu = Gpu::get(*index)?;
    let ready = is_ready(&shard);
    let exported = if ready {
        call::call1(function.bind(py), &shard)
    } else {
        let handle = gpu.sync_stream()?.handle().into_pyobject(py).map_err(PyErr::from)?;
        call::call2(function.bind(py), &shard, &handle.into_any())
    };
    let capsule = match exported {
        Ok(capsule) => capsule,
        Err(error) => {
            discard_exception(py, error);
            return Ok(None);
        }
    };
    // The slower `read` handles packed types, and reports errors.
    let Ok(tensor) = crate::protocols::capsule::take(&capsule) else { return Ok(None) };
    let tensor = restore_read_only_flag(owned_tensor::managed(tensor));
    if !tensor.device().is_cuda() {
        return Ok(None);
    }
    let ready_after = if ready { SyncPoint::Complete } else { SyncPoint::Stream(gpu.sync_stream()?) };
    let source = Source::in_place(object.clone(), "jax", tensor).with_mutability(SourceMutability::Immutable);
    Ok(Some(source.with_streams(Streams::new(ready_after, SyncPoint::AllStreams))))
}

/// Whether the values of an array are computed. A ready array needs no synchronisation, and its export saves more time than
/// this check takes.
fn is_ready(array: &Bound<'_, PyAny>) -> bool {
    let py = array.py();
    match call::method(array, interned!(py, "is_ready")).and_then(|ready| ready.is_truthy()) {
        Ok(ready) => ready,
        Err(error) => {
            discard_exception(py, error);
            false
        }
    }
}

/// Reads an array on a GPU. The sync stream waits for the values, so that neither the host nor a framework's stream does.
fn read_gpu<'py>(object: &Bound<'py, PyAny>, gpu: &'static Gpu) -> Result<Source<'py>> {
    let sync_stream = gpu.sync_stream()?;
    let tensor = restore_read_only_flag(export(object, Some(sync_stream))?);
    let streams = Streams::new(SyncPoint::Stream(sync_stream), SyncPoint::AllStreams);
    Ok(Source::in_place(object.clone(), "jax", tensor)
        .with_mutability(SourceMutability::Immutable)
        .with_streams(streams))
}

/// Prevents JAX from donating the memory to a computation, which would write the result into the source. JAX does not donate
/// memory with an external reference, so a capsule of a sibling array is stored on the array.
///
/// A capsule of the array itself would form a reference cycle.
fn prevent_donation(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let py = array.py();
    let sibling = array.call_method1(interned!(py, "addressable_data"), (0,))?;
    let capsule = match (&state(py)?.private.export, stream) {
        (None, _) => call::method(&sibling, interned!(py, "__dlpack__"))?,
        (Some(export), None) => call::call1(export.bind(py), &sibling)?,
        // The capsule is never consumed. With a stream, the export does not block the host.
        (Some(export), Some(stream)) => call::call2(export.bind(py), &sibling, stream)?,
    };
    Ok(array.setattr(interned!(py, "_tensorferry_loan"), capsule)?)
}

/// Creates an array over the memory of a tensor: through jaxlib's function, or through the public one without the fast path. A stream
/// that waits for the memory comes with its handle as a Python integer.
fn import_tensor<'py>(
    py: Python<'py>,
    state: &State,
    tensor: Tensor<Owner>,
    device: &Bound<'py, PyAny>,
    stream: Option<(Stream, &Bound<'py, PyAny>)>,
) -> Result<Bound<'py, PyAny>> {
    let gpu_index = tensor.device().index;
    let capsule = crate::protocols::capsule::legacy(py, AttachingOwner::of(tensor))?;
    // The public function chooses a stream itself, and that stream does not wait for the memory. The host waits instead.
    let import_public = |capsule: &Bound<'py, PyAny>| -> Result<Bound<'py, PyAny>> {
        if let Some((stream, _)) = stream {
            streams::wait(py, Gpu::get(gpu_index)?, SyncPoint::Stream(stream))?;
        }
        import_by_public_function(py, state, capsule, device)
    };
    let Some(function) = &state.private.import else { return import_public(&capsule) };
    let none = py.None();
    let handle = stream.map_or(none.bind(py), |(_, handle)| handle);
    call::call3(function.bind(py), &capsule, device, handle)
        .map_err(|error| framework_error(py, "JAX", error))
}

/// Imports through `jax.dlpack.from_dlpack`, which takes an object with `__dlpack__` and not a capsule.
fn import_by_public_function<'py>(
    py: Python<'py>,
    state: &State,
    capsule: &Bound<'py, PyAny>,
    device: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let mut tensor = owned_tensor::managed(crate::protocols::capsule::take(capsule)?);
    if tensor.device().is_host() && state.cpus.len() > 1 {
        // JAX interprets the index in `__dlpack_device__` as that of its CPU device.
        tensor.set_cpu(cpu(device.getattr(interned!(py, "local_hardware_id"))?.extract()?));
    }
    let exported = crate::protocols::dlpack_export::ExportedTensor::wrap(py, tensor, true)?;
    call::call1(state.from_dlpack.bind(py), &exported).map_err(|error| framework_error(py, "JAX", error))
}

/// Exports through DLPack. With a capsule of the array itself, `x.delete()` would abort the process, so jaxlib's function gets
/// a sibling array over the same memory. `__dlpack__` does the same.
///
/// If a stream is given, it waits until the array is ready; otherwise the host waits.
fn export(object: &Bound<'_, PyAny>, stream: Option<Stream>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = match (&state(py)?.private.export, stream) {
        (Some(function), stream) => {
            let sibling = object.call_method1(interned!(py, "addressable_data"), (0,))?;
            match stream {
                None => call::call1(function.bind(py), &sibling)?,
                Some(stream) => {
                    let handle = stream.handle().into_pyobject(py).map_err(PyErr::from)?;
                    call::call2(function.bind(py), &sibling, &handle.into_any())?
                }
            }
        }
        (None, None) => call::method(object, interned!(py, "__dlpack__"))?,
        (None, Some(stream)) => {
            let options = [("stream", stream.handle())].into_py_dict(py)?;
            object.call_method(interned!(py, "__dlpack__"), (), Some(&options))?
        }
    };
    Ok(owned_tensor::managed(crate::protocols::capsule::take(&capsule)?))
}

/// Whether the array has several shards. jaxlib would export the first shard as if it were the whole array.
fn is_sharded(object: &Bound<'_, PyAny>) -> Result<bool> {
    let py = object.py();
    if state(py)?.private.lists_shards
        && let Ok(shards) = object.getattr(interned!(py, "_arrays"))
        && let Ok(shards) = shards.cast::<PyList>()
    {
        return Ok(shards.len() != 1);
    }
    // A deleted array has no list of shards; its export fails later.
    Ok(object.getattr("sharding")?.getattr("device_set")?.len()? != 1)
}

/// A source with values that JAX must gather or unpack first.
fn pending_source<'py>(object: &Bound<'py, PyAny>, pending: Pending) -> Result<Source<'py>> {
    let dtype = dtype_of(object)?;
    let shape: Vec<i64> = object.getattr("shape")?.extract()?;
    let layout = Layout::dense(dtype.size(), &shape)?;
    let state = state(object.py())?;
    let device = if state.cpus.len() > 1 { cpu(cpu_of(state, object)?) } else { Device::CPU };
    Ok(Source {
        object: object.clone(),
        framework: "jax",
        memory: SourceMemory::Pending { pending, device, dtype, layout, reads: None },
        mutability: SourceMutability::Immutable,
        through_array: false,
        counts: None,
        streams: None,
    })
}

/// The element type of an array.
fn dtype_of(object: &Bound<'_, PyAny>) -> Result<DType> {
    let name = object.getattr("dtype")?.to_string();
    DType::from_name(&name).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("the JAX dtype {name} has no counterpart in other frameworks"),
            "cast it first: x.astype(\"int8\")",
        )
    })
}

fn is_deleted(object: &Bound<'_, PyAny>) -> bool {
    object.call_method0("is_deleted").and_then(|value| value.is_truthy()).unwrap_or(false)
}

fn deleted() -> Failure {
    fail(
        ErrorKind::NotATensor,
        "the JAX array has no memory: it was deleted, or donated to a jitted function",
        "convert it before it is donated, or remove it from donate_argnums",
    )
}

/// Handles a failed export: packed types need unpacking by JAX, and other failures get an error that states the reason.
fn explain<'py>(object: &Bound<'py, PyAny>, failure: Failure) -> Result<Source<'py>> {
    if is_deleted(object) {
        return Err(deleted());
    }
    if PACKED.contains(dtype_of(object)?) {
        return pending_source(object, Pending::Unpack);
    }
    if dtype_of(object)?.is_float8() {
        return Err(fail(
            ErrorKind::UnsupportedDType,
            "this version of JAX does not export its 8-bit floats",
            "pass jax.lax.bitcast_convert_type(x, \"uint8\") for the raw bytes, or update JAX",
        ));
    }
    Err(framework_error(object.py(), "JAX", failure))
}
