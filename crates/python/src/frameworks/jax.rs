//! JAX: the buffer protocol and jaxlib's own DLPack functions, with the public ones where those are missing.
//!
//! JAX shares memory that is aligned to 64 bytes and has no gaps, in any order of the dimensions; the
//! planner packs everything else, so JAX never copies behind our back. Narrow types (int4, float4) it keeps
//! packed; they go through `device_put`, which copies. 64-bit types exist only while x64 is on, which is
//! read at each call.

mod private;

use self::private::Private;
use super::{Framework, allocation_failed, import, within};
use crate::conversion::kinds::{Builtin, Form};
use crate::conversion::source::{Memory, Source, still_frozen};
use crate::conversion::streams::{Room, Streams};
use crate::errors::{Failure, Result, fail, forget, refused};
use crate::fast_paths::{self, FastPath, on_fresh_thread, samples};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::{AttachingOwner, Buffer, Owner};
use crate::protocols::buffer::from_buffer;
use pyo3::intern;
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

const PACKED: DTypes = DTypes::of(&[DType::Int4, DType::UInt4, DType::Float4E2M1Fn]);

static FACTS: TargetCapabilities = TargetCapabilities {
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

/// The element types that old versions of JAX lack, by the name of the attribute in `jax.numpy`.
const YOUNG: [DType; 4] = [DType::Float8E3M4, DType::Float8E4M3, DType::Float8E8M0Fnu, DType::Float4E2M1Fn];

struct State {
    private: Private,
    /// Whether the devices name the stream for the readiness of what others bring; tried with the first GPU.
    names_streams: ForkSafeOnce<bool>,
    from_dlpack: Py<PyAny>,
    device_put: Py<PyAny>,
    /// The CPU devices of this process; a device's index is its position.
    cpus: Vec<Py<PyAny>>,
    /// Its CUDA devices, with the driver's number of each.
    gpus: Vec<(i32, Py<PyAny>)>,
    empty: Py<PyAny>,
    /// What it accepts while they are off, and while they are on, for each CPU device that may be the default.
    facts: Vec<[TargetCapabilities; 2]>,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let jax = import(py, Builtin::Jax)?;
        let numpy = py.import("jax.numpy")?;
        let cpus = cpus(&jax)?;
        let mut dtypes = FACTS.dtypes;
        for dtype in YOUNG {
            if !numpy.hasattr(dtype.name())? {
                dtypes = dtypes.without(DTypes::of(&[dtype]));
            }
        }
        let gpus = gpus(&jax)?;
        let mut facts = TargetCapabilities { dtypes, cpu_count: cpus.len() as i32, ..FACTS };
        if let Some((index, _)) = gpus.first() {
            facts = TargetCapabilities {
                devices: SupportedDevices::Both,
                default_device: Device::cuda(*index),
                ..facts
            };
        }
        let facts = (0..facts.cpu_count).map(|default_cpu| {
            let default_device = if gpus.is_empty() { cpu(default_cpu) } else { facts.default_device };
            let facts = TargetCapabilities { default_cpu, default_device, ..facts };
            [TargetCapabilities { keeps_64_bit: false, ..facts }, facts]
        });
        let (module, first) = (jax.clone().unbind(), cpus[0].clone_ref(py));
        // The caller may be tracing, or have changed settings for this thread.
        let private = on_fresh_thread(py, |py| Private::of(module.bind(py), first.bind(py)))?;
        let mut state = State {
            private,
            names_streams: ForkSafeOnce::new(),
            from_dlpack: py.import("jax.dlpack")?.getattr("from_dlpack")?.unbind(),
            device_put: jax.getattr("device_put")?.unbind(),
            facts: facts.collect(),
            cpus,
            empty: numpy.getattr("empty")?.unbind(),
            gpus,
        };
        if !on_fresh_thread(py, |py| carries_float8(py, &state)) {
            for facts in state.facts.iter_mut().flatten() {
                facts.dtypes = facts.dtypes.without(DTypes::FLOAT8);
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

/// The device that a JAX device object stands for; `None` where it is another process's, or neither a CPU nor a GPU.
pub(crate) fn device_named(object: &Bound<'_, PyAny>) -> Result<Option<Device>> {
    let py = object.py();
    if let Some(index) = state(py)?.cpus.iter().position(|known| known.bind(py).is(object)) {
        return Ok(Some(cpu(index as i32)));
    }
    let here = py.import("jax")?.call_method0("process_index")?;
    let is_gpu = object.getattr("platform")?.to_string() == "gpu";
    if !is_gpu || !object.getattr("process_index")?.eq(here)? {
        return Ok(None);
    }
    Ok(Some(Device::cuda(object.getattr("local_hardware_id")?.extract()?)))
}

/// The position of the CPU device that `jax.default_device` names. JAX has several CPU devices here.
fn default_cpu(py: Python<'_>, state: &State) -> Result<usize> {
    let named = py.import("jax")?.getattr("config")?.getattr("jax_default_device")?;
    Ok(state.cpus.iter().position(|known| known.bind(py).is(&named)).unwrap_or(0))
}

/// Notes on which of several CPU devices an array is.
fn assign_cpu(state: &State, object: &Bound<'_, PyAny>, tensor: &mut Tensor<Owner>) -> Result<()> {
    if state.cpus.len() > 1 {
        tensor.set_cpu(cpu(cpu_of(state, object)?));
    }
    Ok(())
}

/// The index of the CPU device that an array is on.
fn cpu_of(state: &State, object: &Bound<'_, PyAny>) -> Result<i32> {
    let py = object.py();
    let device = object.getattr(intern!(py, "device"))?;
    Ok(state.cpus.iter().position(|known| known.bind(py).is(&device)).unwrap_or(0) as i32)
}

/// JAX's CUDA devices, if its default backend is CUDA: asking for another would start it.
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

/// Whether this version takes 8-bit floats by DLPack, found by handing it one.
fn carries_float8(py: Python<'_>, state: &State) -> bool {
    samples::of(DType::Float8E5M2, &[1])
        .and_then(|tensor| import_tensor(py, state, tensor, state.cpus[0].bind(py), None))
        .is_ok()
}

impl Framework for Jax {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        let state = state(py)?;
        let (holder, name) = &state.private.x64;
        let wide = holder.bind(py).getattr(name.bind(py))?.is_truthy()?;
        let default = if state.cpus.len() > 1 { default_cpu(py, state)? } else { 0 };
        Ok(&state.facts[default][usize::from(wide)])
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>, _form: Form) -> Result<Source<'py>> {
        if let Some(source) = read_gpu_quickly(object)? {
            return Ok(source);
        }
        // The buffer protocol is the quickest way; it has no word for bfloat16 and its like, nor for spread arrays.
        let has_buffers = state(object.py())?.private.has_buffers;
        let tensor = if has_buffers { Buffer::try_export(object) } else { None };
        let tensor = match tensor {
            Some(buffer) => from_buffer(buffer),
            None if is_deleted(object) => Err(deleted()),
            None if is_spread(object)? => return later(object, Pending::Gather),
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
            // SAFETY: memory that JAX allocated, or that we lent it as writable: what we lent as read-only is covered
            // above. A buffer says "read-only" because arrays are immutable, which is not the memory's doing.
            unsafe { tensor.set_writable() };
        }
        assign_cpu(state(object.py())?, object, &mut tensor)?;
        Ok(Source::here(object.clone(), "jax", tensor).with_mutability(SourceMutability::Immutable))
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        let array = super::numpy::as_array(object).map_err(|failure| refused(object.py(), "JAX", failure))?;
        super::numpy::read_array(&array)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let place = tensor.device();
        // Pinned memory goes to the first CPU device; the plan gives any other place its index.
        let index = if place.kind == DeviceKind::Cpu { place.index } else { 0 };
        let cpu = state.cpus[index as usize].bind(py);
        if PACKED.contains(tensor.dtype()) {
            let array = super::numpy::write_array(py, tensor)?;
            let made = call::call2(state.device_put.bind(py), &array, cpu)
                .and_then(|made| call::method(&made, intern!(py, "block_until_ready")));
            return made.map_err(|error| refused(py, "JAX", error));
        }
        import_tensor(py, state, tensor, cpu, None)
    }

    fn streams(&self, py: Python<'_>, gpu: &'static Gpu) -> Result<Streams> {
        // JAX keeps a stream for the readiness of what others bring. What it does with it runs elsewhere.
        let (state, device) = (state(py)?, device_of(py, gpu)?);
        let names_streams = *state.names_streams.get_or_init(py, || {
            let public = state.from_dlpack.bind(py);
            let probe = || private::ready_stream(&device, public, gpu);
            fast_paths::probe(py, FastPath::JaxReadyStream, probe).is_some()
        });
        if !names_streams {
            return Ok(Streams::unnamed().asking());
        }
        let handle = call::method(&device, intern!(py, "get_stream_for_external_ready_events"))?;
        let handle = handle.extract()?;
        // SAFETY: a stream that JAX has named, which lives as long as the device's client.
        let takes = SyncPoint::Stream(unsafe { Stream::from_handle(handle) });
        Ok(Streams::between(SyncPoint::Everything, takes).asking())
    }

    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        waits: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let place = tensor.device().index;
        let device = device_of(py, Gpu::get(place)?)?;
        // JAX has several such streams, and must be told which one waits. Without one it takes the memory as ready, in
        // half the time.
        let stream = match waits {
            Some(SyncPoint::Stream(stream)) => {
                Some(stream.handle().into_pyobject(py).map_err(PyErr::from)?.into_any())
            }
            _ => None,
        };
        let array = import_tensor(py, state, tensor, &device, stream.as_ref())?;
        protect(&array, stream.as_ref())?;
        Ok(array)
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<Room<'py>> {
        let state = state(py)?;
        let options =
            [("dtype", py.import("jax.numpy")?.getattr(dtype.name())?), ("device", device_of(py, gpu)?)];
        let options = options.into_py_dict(py)?;
        // Not a tracer, also where somebody is tracing.
        let now = py.import("jax")?.call_method0("ensure_compile_time_eval")?;
        let made = within(&[now], || state.empty.bind(py).call((shape.to_vec(),), Some(&options)));
        let object = made.map_err(|error| allocation_failed(py, "JAX", error, gpu, dtype, shape))?;
        let source = read_gpu(&object, gpu).map_err(|failure| refused(py, "JAX", failure))?;
        let (Memory::Here(tensor), Some(streams)) = (source.memory, source.streams) else {
            return Err(crate::errors::not_a_tensor(&object));
        };
        Ok(Room { object, data: tensor.data(), streams: *streams })
    }
}

/// JAX's object for a GPU.
fn device_of<'py>(py: Python<'py>, gpu: &Gpu) -> Result<Bound<'py, PyAny>> {
    let found = state(py)?.gpus.iter().find(|(index, _)| *index == gpu.index());
    let (_, device) = found.ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDevice,
            format!("JAX does not use cuda:{}", gpu.index()),
            "start JAX with a CUDA plugin and that GPU visible, or pass device=\"cpu\"",
        )
    })?;
    Ok(device.bind(py).clone())
}

/// The GPU that an array is on, if it is.
fn gpu_of(object: &Bound<'_, PyAny>) -> Result<Option<&'static Gpu>> {
    let py = object.py();
    if state(py)?.gpus.is_empty() {
        return Ok(None);
    }
    let device = object.getattr(intern!(py, "device"))?;
    let found = state(py)?.gpus.iter().find(|(_, known)| known.bind(py).is(&device));
    found.map(|(index, _)| Ok(Gpu::get(*index)?)).transpose()
}

/// Reads an array on JAX's only GPU, without asking where it is: a capsule tells. `None` where it is elsewhere, or
/// anything is unusual.
fn read_gpu_quickly<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Source<'py>>> {
    let py = object.py();
    let state = state(py)?;
    let ([(index, _)], Some(function), true) =
        (state.gpus.as_slice(), &state.private.export, state.private.lists_shards)
    else {
        return Ok(None);
    };
    let Ok(pieces) = object.getattr(intern!(py, "_arrays")) else { return Ok(None) };
    let piece = match pieces.cast::<PyList>() {
        Ok(pieces) if pieces.len() == 1 => pieces.get_item(0)?,
        _ => return Ok(None),
    };
    // As for `export`: not the array itself.
    let piece =
        if piece.is(object) { object.call_method1(intern!(py, "addressable_data"), (0,))? } else { piece };
    let gpu = Gpu::get(*index)?;
    let ready = is_ready(&piece);
    let exported = if ready {
        call::call1(function.bind(py), &piece)
    } else {
        let handle = gpu.sync_stream()?.handle().into_pyobject(py).map_err(PyErr::from)?;
        call::call2(function.bind(py), &piece, &handle.into_any())
    };
    let capsule = match exported {
        Ok(capsule) => capsule,
        Err(error) => {
            forget(py, error);
            return Ok(None);
        }
    };
    // Narrow types and others that need a word are read the long way.
    let Ok(tensor) = crate::protocols::capsule::take(&capsule) else { return Ok(None) };
    let tensor = still_frozen(crate::protocols::capsule::owned(tensor));
    if !tensor.device().is_cuda() {
        return Ok(None);
    }
    let gives = if ready { SyncPoint::Nothing } else { SyncPoint::Stream(gpu.sync_stream()?) };
    let source = Source::here(object.clone(), "jax", tensor).with_mutability(SourceMutability::Immutable);
    Ok(Some(source.with_streams(Streams::between(gives, SyncPoint::Everything))))
}

/// Whether an array has its values already. They do not change any more, so there is nothing to order then, and the
/// export is quicker by more than the question takes.
fn is_ready(array: &Bound<'_, PyAny>) -> bool {
    let py = array.py();
    match call::method(array, intern!(py, "is_ready")).and_then(|ready| ready.is_truthy()) {
        Ok(ready) => ready,
        Err(error) => {
            forget(py, error);
            false
        }
    }
}

/// Reads an array on a GPU. A stream of ours waits for it, so that neither the host nor a framework's stream has to.
fn read_gpu<'py>(object: &Bound<'py, PyAny>, gpu: &'static Gpu) -> Result<Source<'py>> {
    let meeting = gpu.sync_stream()?;
    let tensor = still_frozen(export(object, Some(meeting))?);
    let streams = Streams::between(SyncPoint::Stream(meeting), SyncPoint::Everything);
    Ok(Source::here(object.clone(), "jax", tensor)
        .with_mutability(SourceMutability::Immutable)
        .with_streams(streams))
}

/// Keeps JAX from donating the memory to a computation, which would write the result into the source: a capsule of a
/// sibling, kept on the array, is a reference from outside, and memory with one is not donated.
///
/// A capsule of the array itself would keep the array alive, and the array the capsule, for ever.
fn protect(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let py = array.py();
    let sibling = array.call_method1(intern!(py, "addressable_data"), (0,))?;
    let capsule = match (&state(py)?.private.export, stream) {
        (None, _) => call::method(&sibling, intern!(py, "__dlpack__"))?,
        (Some(export), None) => call::call1(export.bind(py), &sibling)?,
        // Nobody uses the capsule. With a stream, the export does not wait on the host.
        (Some(export), Some(stream)) => call::call2(export.bind(py), &sibling, stream)?,
    };
    Ok(array.setattr(intern!(py, "_tensorferry_loan"), capsule)?)
}

/// Makes an array over the memory of a tensor, by the quickest function there is.
fn import_tensor<'py>(
    py: Python<'py>,
    state: &State,
    tensor: Tensor<Owner>,
    device: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let place = tensor.device();
    let capsule = crate::protocols::capsule::legacy(py, AttachingOwner::of(tensor))?;
    // The public function chooses a stream by itself, which nobody has told to wait: the host waits instead.
    let public = |capsule: &Bound<'py, PyAny>| -> Result<Bound<'py, PyAny>> {
        if let Some(stream) = stream {
            let handle = stream.extract()?;
            // SAFETY: a stream that JAX has just named, which lives as long as the device's client.
            py.detach(|| unsafe {
                let side = SyncPoint::Stream(Stream::from_handle(handle));
                Gpu::get(place.index)?.wait(side)
            })?;
        }
        public(py, state, capsule, device)
    };
    let Some(function) = &state.private.import else { return public(&capsule) };
    let none = py.None();
    call::call3(function.bind(py), &capsule, device, stream.unwrap_or(none.bind(py)))
        .map_err(|error| refused(py, "JAX", error))
}

/// The public import, which takes an object with `__dlpack__` and not a capsule.
fn public<'py>(
    py: Python<'py>,
    state: &State,
    capsule: &Bound<'py, PyAny>,
    device: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let mut tensor = crate::protocols::capsule::owned(crate::protocols::capsule::take(capsule)?);
    if tensor.device().is_host() && state.cpus.len() > 1 {
        // JAX takes the index in `__dlpack_device__` for that of the device.
        tensor.set_cpu(cpu(device.getattr(intern!(py, "local_hardware_id"))?.extract()?));
    }
    let exported = crate::protocols::dlpack_export::ExportedTensor::wrap(py, tensor, true)?;
    call::call1(state.from_dlpack.bind(py), &exported).map_err(|error| refused(py, "JAX", error))
}

/// Exports by DLPack. A capsule of the array itself would make `x.delete()` abort the process, so jaxlib's function
/// gets a sibling over the same memory; `__dlpack__` sees to that by itself.
///
/// With a stream, that stream waits until the array is ready; without one, the host does.
fn export(object: &Bound<'_, PyAny>, stream: Option<Stream>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = match (&state(py)?.private.export, stream) {
        (Some(function), stream) => {
            let sibling = object.call_method1(intern!(py, "addressable_data"), (0,))?;
            match stream {
                None => call::call1(function.bind(py), &sibling)?,
                Some(stream) => {
                    let handle = stream.handle().into_pyobject(py).map_err(PyErr::from)?;
                    call::call2(function.bind(py), &sibling, &handle.into_any())?
                }
            }
        }
        (None, None) => call::method(object, intern!(py, "__dlpack__"))?,
        (None, Some(stream)) => {
            let options = [("stream", stream.handle())].into_py_dict(py)?;
            object.call_method(intern!(py, "__dlpack__"), (), Some(&options))?
        }
    };
    Ok(crate::protocols::capsule::owned(crate::protocols::capsule::take(&capsule)?))
}

/// Whether the array lies on more than one device. jaxlib would export the first piece as if it were the whole.
fn is_spread(object: &Bound<'_, PyAny>) -> Result<bool> {
    let py = object.py();
    if state(py)?.private.lists_shards
        && let Ok(pieces) = object.getattr(intern!(py, "_arrays"))
        && let Ok(pieces) = pieces.cast::<PyList>()
    {
        return Ok(pieces.len() != 1);
    }
    // Deleted arrays have no pieces to count; the export says so.
    Ok(object.getattr("sharding")?.getattr("device_set")?.len()? != 1)
}

fn later<'py>(object: &Bound<'py, PyAny>, pending: Pending) -> Result<Source<'py>> {
    let dtype = named_type(object)?;
    let shape: Vec<i64> = object.getattr("shape")?.extract()?;
    let layout = Layout::dense(dtype.size(), &shape)?;
    let state = state(object.py())?;
    let device = if state.cpus.len() > 1 { cpu(cpu_of(state, object)?) } else { Device::CPU };
    Ok(Source {
        object: object.clone(),
        framework: "jax",
        memory: Memory::Later { pending, device, dtype, layout },
        mutability: SourceMutability::Immutable,
        requires_grad: false,
        through_array: false,
        streams: None,
    })
}

fn named_type(object: &Bound<'_, PyAny>) -> Result<DType> {
    let name = object.getattr("dtype")?.to_string();
    DType::from_name(&name).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("JAX's {name} has no counterpart in other frameworks"),
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
        "the JAX array was deleted, or donated to a jitted function, and has no memory any more",
        "carry it before it is donated, or leave it out of donate_argnums",
    )
}

/// An export that failed: packed types are unpacked by JAX itself, the rest is said in our words.
fn explain<'py>(object: &Bound<'py, PyAny>, failure: Failure) -> Result<Source<'py>> {
    if is_deleted(object) {
        return Err(deleted());
    }
    if PACKED.contains(named_type(object)?) {
        return later(object, Pending::Unpack);
    }
    if named_type(object)?.is_float8() {
        return Err(fail(
            ErrorKind::UnsupportedDType,
            "this version of JAX does not export its 8-bit floats",
            "pass jax.lax.bitcast_convert_type(x, \"uint8\") to carry the bytes, or update JAX",
        ));
    }
    Err(refused(object.py(), "JAX", failure))
}
