//! TensorFlow: its C-level DLPack functions, and the tensor constructor for types that DLPack lacks there.
//!
//! TensorFlow aborts the process on memory that is not aligned to 64 bytes, on string tensors and on more
//! than 254 dimensions; the planner and the checks here keep all three from it. It reuses the memory of
//! scalars, which are therefore copied. A variable gives the value it has at the call: TensorFlow copies
//! on write while we hold that value.

mod graphs;
mod private;

use self::private::Private;
use super::{Framework, allocation_failed, import, within};
use crate::conversion::kinds::{Builtin, Form, Refusal};
use crate::conversion::source::{Source, still_frozen};
use crate::conversion::streams::{Room, Streams};
use crate::errors::{Failure, Result, fail, forget, refused};
use crate::fast_paths::{self, FastPath, on_fresh_thread};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyType};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::host::ALIGNMENT;
use tensorferry_core::plan::{
    Pending, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor, read_only_loans};
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

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

static FACTS: TargetCapabilities = TargetCapabilities {
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
    keeps_64_bit: true,
    narrow_by_default: true,
    accepts_swapped_bytes: false,
    strides: Strides::Dense,
    alignment: ALIGNMENT,
    max_rank: 254,
    mutability: TargetMutability::Immutable,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: true,
};

struct State {
    /// `tensorflow.python.eager.context`.
    context: Option<Py<PyAny>>,
    private: Option<Private>,
    from_dlpack: Py<PyAny>,
    to_dlpack: Py<PyAny>,
    eager_tensor: Option<Py<PyType>>,
    /// What it accepts, for each CPU device that may be the default.
    facts: Vec<TargetCapabilities>,
    /// Whether tensors may be elsewhere than on the host's first device.
    has_gpu: bool,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let tensorflow = import(py, Builtin::TensorFlow)?.unbind();
        // Here a graph may be being built. Started in one, TensorFlow would place operations more strictly for the rest of the
        // process, and samples would be symbols.
        on_fresh_thread(py, |py| State::new(tensorflow.bind(py)))
    })
}

impl State {
    fn new(tensorflow: &Bound<'_, PyModule>) -> Result<Self> {
        let py = tensorflow.py();
        let context = fast_paths::probe(py, FastPath::TensorflowContext, || private::context(tensorflow));
        let context = context.as_ref().map(|context| context.bind(py));
        // Eager execution may be off for every thread.
        let eager = context.map(|context| context.call_method0("eager_mode")).transpose()?;
        let eager = eager.as_slice();
        let dlpack = tensorflow.getattr("experimental")?.getattr("dlpack")?;
        let experimental = tensorflow.getattr("dtypes")?.getattr("experimental")?;
        let config = tensorflow.getattr("config")?;
        let has_gpu = config.call_method1("list_physical_devices", ("GPU",))?.len()? > 0;
        let state = || -> Result<Self> {
            let cpu_count = (config.call_method1("list_logical_devices", ("CPU",))?.len()? as i32).max(1);
            let eager_tensor = match tensorflow.call_method0("executing_eagerly")?.is_truthy()? {
                true => Some(tensorflow.call_method1("constant", (0.0,))?.get_type()),
                false => None,
            };
            let private = eager_tensor.as_ref().map(|kind| Private::of(tensorflow, kind));
            let has_constructor = private.as_ref().is_some_and(|private| private.has_constructor);
            let mut facts = FACTS;
            for dtype in DType::all().filter(|dtype| BY_CONSTRUCTOR.contains(*dtype)) {
                if eager_tensor.is_none() || !experimental.hasattr(dtype.name())? {
                    facts.dtypes = facts.dtypes.without(DTypes::of(&[dtype]));
                }
            }
            if !has_constructor {
                facts.repacked = BY_CONSTRUCTOR;
            }
            let facts = (0..cpu_count).map(|default_cpu| {
                let facts = TargetCapabilities { cpu_count, default_cpu, ..facts };
                match has_gpu {
                    true => TargetCapabilities {
                        devices: SupportedDevices::Both,
                        default_device: Device::cuda(0),
                        ..facts
                    },
                    false => TargetCapabilities { default_device: cpu(default_cpu), ..facts },
                }
            });
            Ok(Self {
                from_dlpack: dlpack.getattr("from_dlpack")?.unbind(),
                to_dlpack: match private.as_ref().and_then(|private| private.export.as_ref()) {
                    Some(export) => export.clone_ref(py),
                    None => dlpack.getattr("to_dlpack")?.unbind(),
                },
                context: context.map(|context| context.clone().unbind()),
                eager_tensor: eager_tensor.map(Bound::unbind),
                facts: facts.collect(),
                private,
                has_gpu,
            })
        };
        within(eager, || state().map_err(PyErr::from)).map_err(Failure::from)
    }

    /// A fast path, where it works here.
    #[inline(always)]
    fn private<'a, T>(&'a self, which: impl FnOnce(&'a Private) -> &'a Option<T>) -> Option<&'a T> {
        self.private.as_ref().and_then(|private| which(private).as_ref())
    }
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
    let name = match &state.context {
        Some(context) => context.bind(py).call_method0("context")?.getattr(intern!(py, "device_name"))?,
        None => {
            let tensorflow = py.import("tensorflow")?;
            let now = tensorflow.call_method0("init_scope")?;
            // Where a 1.x graph is being built, a constant would become a part of it; it takes no tensor in any case.
            let device = || match tensorflow.call_method0("executing_eagerly")?.is_truthy()? {
                true => tensorflow.call_method1("constant", (0.0,))?.getattr("device"),
                false => Ok(py.None().into_bound(py)),
            };
            within(&[now], device)?
        }
    };
    let index = name.extract::<&str>().ok().and_then(cpu_index).unwrap_or(0);
    Ok(if index < state.facts.len() { index } else { 0 })
}

/// A 1.x graph that is being built takes no tensor that exists: it would fail where the tensor is used, and not say why.
fn check_eager(py: Python<'_>, state: &State) -> Result<()> {
    if let Some(graphs) = state.private(|private| &private.graphs)
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

impl Framework for TensorFlow {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
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
            return Ok(placed(
                Source::here(value, "tensorflow", tensor).with_mutability(SourceMutability::Snapshot),
            ));
        }
        let mut tensor = read_eager(object)?;
        assign_cpu(object, &mut tensor)?;
        let mutability =
            if tensor.layout().rank() == 0 { SourceMutability::Cached } else { SourceMutability::Immutable };
        Ok(placed(Source::here(object.clone(), "tensorflow", tensor).with_mutability(mutability)))
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        read_eager(object)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        check_eager(py, state)?;
        let place = tensor.device();
        if BY_CONSTRUCTOR.contains(tensor.dtype()) {
            let array = super::numpy::write_array(py, tensor)?;
            return from_array(py, state, &array)
                .and_then(|made| placed_on(made, place))
                .map_err(|error| refused(py, "TensorFlow", error));
        }
        let capsule = crate::protocols::capsule::legacy(py, tensor)?;
        let made = match state.private(|private| &private.import) {
            Some((function, handle)) => call::call2(function.bind(py), &capsule, handle.bind(py)),
            None => call::call1(state.from_dlpack.bind(py), &capsule),
        };
        made.and_then(|made| placed_on(made, place)).map_err(|error| refused(py, "TensorFlow", error))
    }

    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _waits: Option<SyncPoint>,
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
        let options =
            [("shape", vec![words].into_pyobject(py)?.into_any()), ("dtype", kind)].into_py_dict(py)?;
        options.set_item("init", false)?;
        let operations = tensorflow.getattr("raw_ops")?;
        // Not a part of the graph of a `tf.function`, also where one is being made.
        let now = tensorflow.call_method0("init_scope")?;
        let made = within(&[now, place], || operations.call_method("Empty", (), Some(&options)));
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

/// A tensor of an array: over its memory by the constructor of the type, or with a copy by the public function.
fn from_array<'py>(py: Python<'py>, state: &State, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match &state.eager_tensor {
        Some(kind) if state.private.as_ref().is_some_and(|private| private.has_constructor) => {
            let none = py.None();
            let none = none.bind(py);
            call::call3(kind.bind(py).as_any(), array, none, none)
        }
        _ => {
            let tensorflow = py.import("tensorflow")?;
            // Not a part of the graph of a `tf.function`, also where one is being made; types that GPUs lack stay on the host.
            let scopes =
                [tensorflow.call_method0("init_scope")?, tensorflow.call_method1("device", ("CPU:0",))?];
            within(&scopes, || tensorflow.call_method1("constant", (array,)))
        }
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
    Streams::between(SyncPoint::Nothing, SyncPoint::Everything)
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
    let array = match state.private(|private| &private.array) {
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
    if read_only_loans::is_on_loan(tensor.data() as usize) {
        tensor.set_read_only();
        return Ok(tensor);
    }
    // SAFETY: memory that TensorFlow allocated, or that we lent it as writable: what we lent as read-only is
    // covered above. The array says "read-only" by the public function because TensorFlow's tensors are immutable,
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
    Ok(crate::protocols::capsule::owned(crate::protocols::capsule::take(&capsule)?))
}

/// Whether the memory is a GPU's. (What TensorFlow calls a tensor's device may be a GPU while its memory is the
/// host's: int32.)
fn is_on_gpu(state: &State, object: &Bound<'_, PyAny>) -> Result<bool> {
    let device = backing_device(state, object)?;
    Ok(device.extract::<&str>().is_ok_and(|device| !device.contains("CPU")))
}

/// TensorFlow's name of the device whose memory a tensor is in.
fn backing_device<'py>(state: &State, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match state.private(|private| &private.backing_device) {
        // SAFETY: an eager tensor, as in `read_eager`.
        Some(attribute) => unsafe { attribute.get(object) },
        None => object.getattr(intern!(object.py(), "backing_device")),
    }
}

/// Strings, handles and quantised numbers are refused before TensorFlow gets to abort on them.
fn check_type(state: &State, object: &Bound<'_, PyAny>) -> Result<()> {
    let number: i32 = match state.private(|private| &private.array) {
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
