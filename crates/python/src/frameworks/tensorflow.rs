//! TensorFlow: its C-level DLPack functions, and the tensor constructor for types that DLPack lacks there.
//!
//! TensorFlow aborts the process on memory that is not aligned to 64 bytes, on string tensors and on more
//! than 254 dimensions; the planner and the checks here keep all three from it. It reuses the memory of
//! scalars, which are therefore copied. A variable gives the value it has at the call: TensorFlow copies
//! on write while we hold that value.

use super::{Framework, allocation_failed, import, within};
use crate::call;
use crate::errors::{Result, fail, forget, refused};
use crate::kinds::{Builtin, Form, Refusal};
use crate::once::ForkSafeOnce;
use crate::owner::Owner;
use crate::settings::fast_paths_disabled;
use crate::slots::{Attribute, Method};
use crate::source::{Source, still_frozen};
use crate::streams::{Room, Streams};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyType};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::host::ALIGNMENT;
use tensorferry_core::plan::{Holds, Nature, Pending, Places, Strides, TargetFacts};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor, frozen};
use tensorferry_cuda::{Gpu, Side, Stream};

pub(crate) struct TensorFlow;

/// Types that TensorFlow has and its DLPack functions do not take.
const BY_CONSTRUCTOR: DTypes = DTypes::of(&[
    DType::Int4,
    DType::UInt4,
    DType::Float8E4M3Fn,
    DType::Float8E5M2,
    DType::Float8E4M3Fnuz,
    DType::Float8E5M2Fnuz,
    DType::Float8E4M3B11Fnuz,
    DType::Float4E2M1Fn,
]);

static FACTS: TargetFacts = TargetFacts {
    framework: "tensorflow",
    title: "TensorFlow",
    dtypes: DTypes::ALL.without(DTypes::of(&[
        DType::Float8E3M4,
        DType::Float8E4M3,
        DType::Float8E8M0Fnu,
        DType::Float6E2M3Fn,
        DType::Float6E3M2Fn,
    ])),
    repacked: DTypes::NONE,
    host_only: BY_CONSTRUCTOR,
    own_memory: None,
    wide: true,
    narrow_by_default: true,
    swapped: false,
    strides: Strides::Dense,
    alignment: ALIGNMENT,
    max_rank: 254,
    holds: Holds::Immutable,
    places: Places::Host,
    home: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: true,
};

struct State {
    /// `TFE_FromDlpackCapsule` and the handle of the eager context.
    door: Option<(Py<PyAny>, Py<PyAny>)>,
    from_dlpack: Py<PyAny>,
    to_dlpack: Py<PyAny>,
    eager_tensor: Option<Py<PyType>>,
    /// Of the eager tensor type: an array over the memory, and the number of the element type.
    quick: Option<(Method, Method)>,
    /// What it accepts, for each CPU device that may be the default.
    facts: Vec<TargetFacts>,
    /// Whether tensors may be elsewhere than on the host's first device.
    has_gpu: bool,
    /// Of the eager tensor type: where the memory is.
    backing_device: Option<Attribute>,
    graphs: Option<Graphs>,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let tensorflow = import(py, Builtin::TensorFlow)?;
        let dlpack = tensorflow.getattr("experimental")?.getattr("dlpack")?;
        let experimental = tensorflow.getattr("dtypes")?.getattr("experimental")?;
        let eager_tensor = py
            .import("tensorflow.python.framework.ops")
            .and_then(|ops| Ok(ops.getattr("EagerTensor")?.cast_into::<PyType>()?))
            .ok();
        let quick = match &eager_tensor {
            Some(kind) if !fast_paths_disabled() && kind.hasattr("_numpy_internal")? => {
                Some((Method::of(kind, c"_numpy_internal")?, Method::of(kind, c"_datatype_enum")?))
            }
            _ => None,
        };
        let mut dtypes = FACTS.dtypes;
        for dtype in DType::all().filter(|dtype| BY_CONSTRUCTOR.contains(*dtype)) {
            if eager_tensor.is_none() || !experimental.hasattr(dtype.name())? {
                dtypes = dtypes.without(DTypes::of(&[dtype]));
            }
        }
        let has_gpu =
            tensorflow.getattr("config")?.call_method1("list_physical_devices", ("GPU",))?.len()? > 0;
        let cpu_count = cpu_count(py, &tensorflow)?;
        let backing_device = match &eager_tensor {
            Some(kind) => Some(Attribute::of(kind, c"backing_device")?),
            None => None,
        };
        Ok(State {
            door: if fast_paths_disabled() { None } else { door(py).ok() },
            from_dlpack: dlpack.getattr("from_dlpack")?.unbind(),
            to_dlpack: export_door(py, &dlpack)?.unbind(),
            eager_tensor: eager_tensor.map(Bound::unbind),
            quick,
            facts: (0..cpu_count)
                .map(|default_cpu| {
                    let facts = TargetFacts { dtypes, cpu_count, default_cpu, ..FACTS };
                    match has_gpu {
                        true => TargetFacts { places: Places::Both, home: Device::cuda(0), ..facts },
                        false => TargetFacts { home: cpu(default_cpu), ..facts },
                    }
                })
                .collect(),
            has_gpu,
            backing_device,
            graphs: if fast_paths_disabled() { None } else { Graphs::of(py).ok() },
        })
    })
}

/// The number of CPU devices, at least one. The answer starts TensorFlow, outside of any graph: see `door`.
fn cpu_count(py: Python<'_>, tensorflow: &Bound<'_, PyModule>) -> PyResult<i32> {
    let eager = py.import("tensorflow.python.eager.context")?.call_method0("eager_mode")?;
    let config = tensorflow.getattr("config")?;
    let devices = within(&[eager], || config.call_method1("list_logical_devices", ("CPU",)))?;
    Ok((devices.len()? as i32).max(1))
}

/// The CPU device of this index.
fn cpu(index: i32) -> Device {
    Device { kind: DeviceKind::Cpu, index }
}

/// The index in the name of a CPU device, `/job:localhost/replica:0/task:0/device:CPU:1`; `None` for other devices.
fn cpu_index(name: &str) -> Option<usize> {
    name.rsplit_once("CPU:").and_then(|(_, index)| index.parse().ok())
}

/// The position of the CPU device that `tf.device` names. TensorFlow has several CPU devices here.
fn default_cpu(py: Python<'_>, state: &State) -> Result<usize> {
    let context = py.import("tensorflow.python.eager.context")?.call_method0("context")?;
    let name = context.getattr(intern!(py, "device_name"))?;
    let index = name.extract::<&str>().ok().and_then(cpu_index).unwrap_or(0);
    Ok(if index < state.facts.len() { index } else { 0 })
}

/// What exports a tensor: TensorFlow's own function, without the Python function in front of it.
fn export_door<'py>(py: Python<'py>, dlpack: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let direct =
        py.import("tensorflow.python.pywrap_tfe").and_then(|module| module.getattr("TFE_ToDlpackCapsule"));
    match direct {
        Ok(door) if !fast_paths_disabled() => Ok(door),
        _ => dlpack.getattr("to_dlpack"),
    }
}

/// How to learn that the calling thread builds no graph, in a tenth of the time that TensorFlow's own question takes.
struct Graphs {
    /// The graphs that each thread is in: a `threading.local` with a list called `stack`.
    stacks: Py<PyAny>,
    /// The names in TensorFlow's module of modes, one of which says what threads begin with, and what it says when they
    /// begin eagerly.
    modes: Py<PyDict>,
    eager: Py<PyAny>,
}

impl Graphs {
    fn of(py: Python<'_>) -> PyResult<Self> {
        let stacks = py.import("tensorflow.python.framework.ops")?.getattr("_default_graph_stack")?;
        // Python's own kind alone: that of gevent has a dict for each of many greenlets on one thread.
        let genuine = stacks.get_type().mro().iter().any(|kind| {
            let is = |name, value: &str| {
                kind.getattr(name).is_ok_and(|found: Bound<'_, PyAny>| found.to_string() == value)
            };
            is("__module__", "_thread") && is("__name__", "_local")
        });
        if !genuine {
            return Err(PyTypeError::new_err("another kind of thread-local data"));
        }
        stacks.getattr("__dict__")?.get_item("stack")?.cast_into::<PyList>()?;
        let modes = py.import("tensorflow.python.eager.context")?.dict();
        let eager = modes.as_any().get_item("EAGER_MODE")?;
        modes.as_any().get_item("default_execution_mode")?;
        Ok(Self { stacks: stacks.unbind(), modes: modes.unbind(), eager: eager.unbind() })
    }

    /// Whether operations run at once on this thread; no means that TensorFlow must be asked.
    fn are_none(&self, py: Python<'_>) -> PyResult<bool> {
        // Python keeps the dict of a `threading.local` with the thread; a reference beside it is found ten times as fast.
        // SAFETY: the interpreter is attached; null, or the thread's own dict, borrowed.
        let Some(thread) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyThreadState_GetDict()) })
        else {
            return Ok(false);
        };
        let thread = thread.cast_into::<PyDict>()?;
        let name = intern!(py, "tensorferry: TensorFlow's graphs");
        let own = match thread.get_item(name)? {
            Some(own) => own,
            None => {
                let own = self.stacks.bind(py).getattr("__dict__")?;
                thread.set_item(name, &own)?;
                own
            }
        };
        let stack = own.cast::<PyDict>()?.get_item(intern!(py, "stack"))?;
        let outside = stack.is_some_and(|stack| stack.cast::<PyList>().is_ok_and(|stack| stack.is_empty()));
        let mode = self.modes.bind(py).get_item(intern!(py, "default_execution_mode"))?;
        Ok(outside && mode.is_some_and(|mode| mode.is(&self.eager)))
    }
}

/// A 1.x graph that is being built takes no tensor that exists: it would fail where the tensor is used, and not say why.
fn check_eager(py: Python<'_>, state: &State) -> Result<()> {
    if let Some(graphs) = &state.graphs
        && graphs.are_none(py)?
    {
        return Ok(());
    }
    if py.import("tensorflow")?.call_method0("executing_eagerly")?.is_truthy()? {
        return Ok(());
    }
    // The graph of a `tf.function` captures tensors that exist.
    let graph =
        py.import("tensorflow")?.getattr("compat")?.getattr("v1")?.call_method0("get_default_graph")?;
    if graph.getattr("building_function")?.is_truthy()? {
        return Ok(());
    }
    Err(fail(
        ErrorKind::NotATensor,
        "TensorFlow is building a 1.x graph, which takes no tensor that exists already",
        "use tensorferry.tf1.inlet, and bind the tensor to it",
    ))
}

fn door(py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let function = py.import("tensorflow.python.pywrap_tfe")?.getattr("TFE_FromDlpackCapsule")?;
    let module = py.import("tensorflow.python.eager.context")?;
    let context = module.call_method0("context")?;
    // Begun while a graph is being made, TensorFlow would place operations more strictly for the rest of the process.
    within(&[module.call_method0("eager_mode")?], || context.call_method0("ensure_initialized"))?;
    Ok((function.unbind(), context.getattr("_handle")?.unbind()))
}

impl Framework for TensorFlow {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetFacts> {
        let state = state(py)?;
        let default = if state.facts.len() > 1 { default_cpu(py, state)? } else { 0 };
        Ok(&state.facts[default])
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>> {
        if form == Form::Variable {
            let value =
                object.call_method0("value").map_err(|error| refused(object.py(), "TensorFlow", error))?;
            let eager = state(object.py())?.eager_tensor.as_ref();
            if !eager.is_some_and(|eager| value.get_type().is(eager)) {
                let (fact, hint) = Refusal::TensorFlowSymbol.words();
                return Err(fail(ErrorKind::NotATensor, fact, hint));
            }
            let mut tensor = read_eager(&value)?;
            assign_cpu(&value, &mut tensor)?;
            tensor.set_read_only();
            return Ok(placed(Source::here(value, "tensorflow", tensor).with_nature(Nature::Snapshot)));
        }
        let mut tensor = read_eager(object)?;
        assign_cpu(object, &mut tensor)?;
        let nature = if tensor.layout().rank() == 0 { Nature::Cached } else { Nature::Immutable };
        Ok(placed(Source::here(object.clone(), "tensorflow", tensor).with_nature(nature)))
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        read_eager(object)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        check_eager(py, state)?;
        let place = tensor.device();
        if BY_CONSTRUCTOR.contains(tensor.dtype())
            && let Some(constructor) = &state.eager_tensor
        {
            let array = super::numpy::write_array(py, tensor)?;
            let none = py.None();
            let none = none.bind(py);
            return call::call3(constructor.bind(py), &array, none, none)
                .and_then(|made| placed_on(made, place))
                .map_err(|error| refused(py, "TensorFlow", error));
        }
        let capsule = crate::capsule::legacy(py, tensor)?;
        let made = match &state.door {
            Some((door, handle)) => call::call2(door.bind(py), &capsule, handle.bind(py)),
            None => call::call1(state.from_dlpack.bind(py), &capsule),
        };
        made.and_then(|made| placed_on(made, place)).map_err(|error| refused(py, "TensorFlow", error))
    }

    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _waits: Option<Side>,
    ) -> Result<Bound<'py, PyAny>> {
        self.write(py, tensor)
    }

    fn streams(&self, _py: Python<'_>, _gpu: &'static Gpu) -> Result<Streams> {
        Ok(Streams::unnamed())
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<Room<'py>> {
        check_eager(py, state(py)?)?;
        // Not every type can be allocated there, but any bytes can be any type's.
        let layout = Layout::dense(dtype.size(), shape)?;
        let words = layout.bytes().div_ceil(4).max(1);
        let tensorflow = py.import("tensorflow")?;
        let place = tensorflow.call_method1("device", (format!("GPU:{}", gpu.index()),))?;
        let kind = tensorflow.getattr("float32")?;
        let wishes =
            [("shape", vec![words].into_pyobject(py)?.into_any()), ("dtype", kind)].into_py_dict(py)?;
        wishes.set_item("init", false)?;
        let operations = tensorflow.getattr("raw_ops")?;
        // Not a part of the graph of a `tf.function`, also where one is being made.
        let now = tensorflow.call_method0("init_scope")?;
        let made = within(&[now, place], || operations.call_method("Empty", (), Some(&wishes)));
        let made = made.map_err(|error| allocation_failed(py, "TensorFlow", error, gpu, dtype, shape))?;
        let room = by_capsule(&made)?;
        let (data, device, order) = (room.data(), room.device(), ByteOrder::Native);
        // SAFETY: memory of TensorFlow's with at least as many bytes as the layout, kept by what it handed over.
        let tensor =
            unsafe { Tensor::new(data, dtype, layout, device, order, Access::ReadWrite, room.into_owner()) }?;
        let object = self.write(py, tensor)?;
        Ok(Room { object, data, streams: exported() })
    }
}

/// A new tensor on the CPU device that the plan names. TensorFlow imports host memory on the first one; an identity on
/// another CPU device shares the memory.
fn placed_on<'py>(made: Bound<'py, PyAny>, place: Device) -> PyResult<Bound<'py, PyAny>> {
    if place.kind != DeviceKind::Cpu || place.index == 0 {
        return Ok(made);
    }
    let tensorflow = made.py().import("tensorflow")?;
    let device = tensorflow.call_method1("device", (format!("/device:CPU:{}", place.index),))?;
    // Not a part of the graph of a `tf.function`, also where one is being made.
    let now = tensorflow.call_method0("init_scope")?;
    within(&[now, device], || tensorflow.call_method1("identity", (made,)))
}

/// Notes on which of several CPU devices a tensor is.
#[inline(always)]
fn assign_cpu(object: &Bound<'_, PyAny>, tensor: &mut Tensor<Owner>) -> Result<()> {
    let state = state(object.py())?;
    if state.facts.len() > 1 {
        let device = backing_device(state, object)?;
        let index = device.extract::<&str>().ok().and_then(cpu_index).unwrap_or(0);
        tensor.set_cpu(cpu(index as i32));
    }
    Ok(())
}

/// The same source, with its streams if it is on a GPU. TensorFlow waits for the device, on the host, when it exports a
/// tensor: nothing is queued on it any more.
#[inline(always)]
fn placed(source: Source<'_>) -> Source<'_> {
    if source.facts().device.is_cuda() { source.with_streams(exported()) } else { source }
}

fn exported() -> Streams {
    Streams::between(Side::Nothing, Side::Everything)
}

/// Reads an eager tensor through the array that TensorFlow makes over its memory.
#[inline(always)]
fn read_eager(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let state = state(py)?;
    check_type(state, object)?;
    if state.has_gpu && is_on_gpu(state, object)? {
        return by_capsule(object).map(still_frozen).map_err(|failure| refused(py, "TensorFlow", failure));
    }
    let array = match &state.quick {
        Some((array, _)) => {
            // SAFETY: the object is an eager tensor: its type was recognised as genuine.
            unsafe { array.call(object) }.or_else(|error| {
                forget(py, error);
                super::numpy::as_array(object)
            })
        }
        None => public_array(object),
    };
    let array = match array {
        Ok(array) => array,
        // More dimensions than an array can have.
        Err(failure) => return by_capsule(object).map_err(|_| refused(py, "TensorFlow", failure)),
    };
    let mut tensor = super::numpy::read_base(&array).map_err(|failure| refused(py, "TensorFlow", failure))?;
    if frozen::covers(tensor.data() as usize) {
        tensor.set_read_only();
        return Ok(tensor);
    }
    // SAFETY: memory that TensorFlow allocated, or that we lent it as writable: what we lent as read-only is
    // covered above. The array says "read-only" on the public road because TensorFlow's tensors are immutable,
    // which is the source's nature and not its memory's.
    unsafe { tensor.set_writable() };
    Ok(tensor)
}

/// `numpy.asarray`, which shares; it fails on scalars of types that NumPy lacks, and those are copied anyway.
fn public_array<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    super::numpy::as_array(object).or_else(|failure| match object.getattr("shape")?.len()? {
        0 => super::numpy::as_array(&object.call_method0("numpy")?),
        _ => Err(failure),
    })
}

fn by_capsule(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let capsule = call::call1(state(object.py())?.to_dlpack.bind(object.py()), object)?;
    Ok(crate::capsule::owned(crate::capsule::take(&capsule)?))
}

/// Whether the memory is a GPU's. (What TensorFlow calls a tensor's device may be a GPU while its memory is the
/// host's: int32.)
fn is_on_gpu(state: &State, object: &Bound<'_, PyAny>) -> Result<bool> {
    let device = backing_device(state, object)?;
    Ok(device.extract::<&str>().is_ok_and(|device| !device.contains("CPU")))
}

/// TensorFlow's name of the device whose memory a tensor is in.
fn backing_device<'py>(state: &State, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match &state.backing_device {
        // SAFETY: an eager tensor, as in `read_eager`.
        Some(attribute) => unsafe { attribute.get(object) },
        None => object.getattr(intern!(object.py(), "backing_device")),
    }
}

/// Strings, handles and quantised numbers are refused before TensorFlow gets to abort on them.
fn check_type(state: &State, object: &Bound<'_, PyAny>) -> Result<()> {
    let number: i32 = match &state.quick {
        // SAFETY: an eager tensor, as in `read_eager`.
        Some((_, number)) => unsafe { number.call(object) }?.extract()?,
        None => object.getattr("dtype")?.getattr("as_datatype_enum")?.extract()?,
    };
    let (what, hint) = match number {
        7 => ("string", "encode the strings as numbers first, with tf.io.decode_raw or a vocabulary"),
        20 => ("resource", "pass the variable or the tensor behind the handle"),
        21 => ("variant", "pass the tensors inside it"),
        11 | 12 | 13 | 15 | 16 => {
            ("quantised", "pass tf.quantization.dequantize(x, ...), or tf.bitcast(x, tf.int8)")
        }
        _ => return Ok(()),
    };
    Err(fail(
        ErrorKind::UnsupportedDType,
        format!("a TensorFlow tensor of {what} type has no plain numbers in memory"),
        hint,
    ))
}
