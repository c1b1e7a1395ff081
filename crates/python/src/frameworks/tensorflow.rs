//! TensorFlow: reads and creates eager tensors through its C-level DLPack functions, or the constructor for other dtypes.
//!
//! TensorFlow aborts the process for memory that is not aligned to 64 bytes, for exported string tensors and for more than 254
//! dimensions. The planner and the checks in this module prevent all three. TensorFlow reuses the memory of scalars, so
//! scalars are copied. A variable is read as a snapshot: TensorFlow copies on write while the value is referenced.

mod graphs;
mod private;

use self::private::Private;
use super::{Framework, allocation_failed, import, within};
use crate::conversion::object_kinds::{Builtin, Form, RecognisedTensor, Refusal};
use crate::conversion::source::{Source, restore_read_only_flag};
use crate::conversion::streams::{DeviceAllocation, Streams};
use crate::errors::{Failure, Result, discard_exception, fail, framework_error};
use crate::fast_paths::{self, FastPath, on_fresh_thread};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
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

/// Element types that TensorFlow has but its DLPack functions reject.
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

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
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
    /// The capabilities for each CPU device that may be the default.
    capabilities: Vec<TargetCapabilities>,
    /// Whether TensorFlow has a GPU, so that tensors may be outside host memory.
    has_gpu: bool,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let tensorflow = import(py, Builtin::TensorFlow)?.unbind();
        // The calling thread may be building a graph. If TensorFlow were initialised there, it would place operations more
        // strictly for the rest of the process, and samples would be symbolic tensors.
        on_fresh_thread(py, |py| State::new(tensorflow.bind(py)))
    })
}

impl State {
    fn new(tensorflow: &Bound<'_, PyModule>) -> Result<Self> {
        let py = tensorflow.py();
        let context =
            fast_paths::probe(py, FastPath::TensorflowContext, || private::probe_context(tensorflow));
        let context = context.as_ref().map(|context| context.bind(py));
        // Eager execution may be disabled for all threads.
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
            let mut capabilities = CAPABILITIES;
            for dtype in DType::all().filter(|dtype| BY_CONSTRUCTOR.contains(*dtype)) {
                if eager_tensor.is_none() || !experimental.hasattr(dtype.name())? {
                    capabilities.dtypes = capabilities.dtypes.without(DTypes::of(&[dtype]));
                }
            }
            if !has_constructor {
                capabilities.repacked = BY_CONSTRUCTOR;
            }
            let capabilities = (0..cpu_count).map(|default_cpu| {
                let capabilities = TargetCapabilities { cpu_count, default_cpu, ..capabilities };
                match has_gpu {
                    true => TargetCapabilities {
                        devices: SupportedDevices::Both,
                        default_device: Device::cuda(0),
                        ..capabilities
                    },
                    false => TargetCapabilities { default_device: cpu(default_cpu), ..capabilities },
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
                capabilities: capabilities.collect(),
                private,
                has_gpu,
            })
        };
        within(eager, || state().map_err(PyErr::from)).map_err(Failure::from)
    }

    /// A fast path, if it passed its probe.
    #[inline(always)]
    fn private<'a, T>(&'a self, which: impl FnOnce(&'a Private) -> &'a Option<T>) -> Option<&'a T> {
        self.private.as_ref().and_then(|private| which(private).as_ref())
    }
}

/// An instance of TensorFlow's type of eager tensors, in which the C functions of [`Private`] were found.
#[derive(Clone, Copy)]
struct EagerTensor<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> EagerTensor<'a, 'py> {
    /// A tensor of this type, by its recognised form.
    #[inline(always)]
    fn of(tensor: RecognisedTensor<'a, 'py>) -> Result<Self> {
        match (tensor.framework(), tensor.form()) {
            (Builtin::TensorFlow, Form::Plain) => Ok(Self(tensor.object())),
            _ => Err(crate::errors::not_a_tensor(tensor.object())),
        }
    }

    /// The value of a variable, if it is of this type.
    fn of_value(state: &State, value: &'a Bound<'py, PyAny>) -> Option<Self> {
        let kind = state.eager_tensor.as_ref();
        kind.is_some_and(|kind| value.get_type().is(kind)).then_some(Self(value))
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

/// The index of the CPU device set with `tf.device`. Called if TensorFlow has several CPU devices.
fn default_cpu(py: Python<'_>, state: &State) -> Result<usize> {
    let name = match &state.context {
        Some(context) => context.bind(py).call_method0("context")?.getattr(interned!(py, "device_name"))?,
        None => {
            let tensorflow = py.import("tensorflow")?;
            let eager = tensorflow.call_method0("init_scope")?;
            // In a 1.x graph the constant would become an operation of the graph, which rejects tensors anyway.
            let device = || match tensorflow.call_method0("executing_eagerly")?.is_truthy()? {
                true => tensorflow.call_method1("constant", (0.0,))?.getattr("device"),
                false => Ok(py.None().into_bound(py)),
            };
            within(&[eager], device)?
        }
    };
    let index = name.extract::<&str>().ok().and_then(cpu_index).unwrap_or(0);
    Ok(if index < state.capabilities.len() { index } else { 0 })
}

/// Fails if a 1.x graph is being built. Such a graph cannot use existing tensors, and TensorFlow's error does not say why.
fn check_eager(py: Python<'_>, state: &State) -> Result<()> {
    if let Some(graphs) = state.private(|private| &private.graphs)
        && graphs.is_eager(py)?
    {
        return Ok(());
    }
    if py.import("tensorflow")?.call_method0("executing_eagerly")?.is_truthy()? {
        return Ok(());
    }
    // The graph of a `tf.function` captures existing tensors.
    let graph =
        py.import("tensorflow")?.getattr("compat")?.getattr("v1")?.call_method0("get_default_graph")?;
    if graph.getattr("building_function")?.is_truthy()? {
        return Ok(());
    }
    Err(fail(
        ErrorKind::NotATensor,
        "TensorFlow is building a 1.x graph, which cannot use existing tensors",
        "create a tensorferry.tf1.inlet and bind the tensor to it",
    ))
}

impl Framework for TensorFlow {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        let state = state(py)?;
        let default = if state.capabilities.len() > 1 { default_cpu(py, state)? } else { 0 };
        Ok(&state.capabilities[default])
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let object = tensor.object();
        if tensor.form() == Form::Variable {
            let value = object
                .call_method0("value")
                .map_err(|error| framework_error(object.py(), "TensorFlow", error))?;
            let Some(eager) = EagerTensor::of_value(state(object.py())?, &value) else {
                return Err(Refusal::TensorFlowSymbol.error(object));
            };
            let mut tensor = read_eager(eager)?;
            assign_cpu(eager, &mut tensor)?;
            tensor.set_read_only();
            return Ok(attach_streams(
                Source::in_place(value, "tensorflow", tensor).with_mutability(SourceMutability::Snapshot),
            ));
        }
        let eager = EagerTensor::of(tensor)?;
        let mut tensor = read_eager(eager)?;
        assign_cpu(eager, &mut tensor)?;
        let mutability =
            if tensor.layout().rank() == 0 { SourceMutability::Cached } else { SourceMutability::Immutable };
        Ok(attach_streams(Source::in_place(object.clone(), "tensorflow", tensor).with_mutability(mutability)))
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        read_eager(EagerTensor::of(tensor)?)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        check_eager(py, state)?;
        let device = tensor.device();
        if BY_CONSTRUCTOR.contains(tensor.dtype()) {
            let array = super::numpy::write_array(py, tensor)?;
            return from_array(py, state, &array)
                .and_then(|created| move_to_cpu(created, device))
                .map_err(|error| framework_error(py, "TensorFlow", error));
        }
        let capsule = crate::protocols::capsule::legacy(py, tensor)?;
        let created = match state.private(|private| &private.import) {
            Some((function, handle)) => call::call2(function.bind(py), &capsule, handle.bind(py)),
            None => call::call1(state.from_dlpack.bind(py), &capsule),
        };
        created
            .and_then(|created| move_to_cpu(created, device))
            .map_err(|error| framework_error(py, "TensorFlow", error))
    }

    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _next_use: Option<SyncPoint>,
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
    ) -> Result<DeviceAllocation<'py>> {
        check_eager(py, state(py)?)?;
        // `Empty` supports few dtypes on GPUs, so float32 memory of sufficient size is allocated and reinterpreted.
        let layout = Layout::dense(dtype.size(), shape)?;
        let words = layout.bytes().div_ceil(4).max(1);
        let tensorflow = py.import("tensorflow")?;
        let device_scope = tensorflow.call_method1("device", (format!("GPU:{}", gpu.index()),))?;
        let kind = tensorflow.getattr("float32")?;
        let options =
            [("shape", vec![words].into_pyobject(py)?.into_any()), ("dtype", kind)].into_py_dict(py)?;
        options.set_item("init", false)?;
        let operations = tensorflow.getattr("raw_ops")?;
        // Without `init_scope`, the operation would become part of a `tf.function` that is being traced.
        let eager = tensorflow.call_method0("init_scope")?;
        let allocated =
            within(&[eager, device_scope], || operations.call_method("Empty", (), Some(&options)));
        let allocated =
            allocated.map_err(|error| allocation_failed(py, "TensorFlow", error, gpu, dtype, shape))?;
        let memory = read_capsule(&allocated)?;
        let (data, device, order) = (memory.data(), memory.device(), ByteOrder::Native);
        // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: `Empty` allocated at least as many bytes, in
        // words of four, on the device of `memory`, whose managed tensor is the owner.
        let tensor = unsafe {
            Tensor::new(data, dtype, layout, device, order, Access::ReadWrite, memory.into_owner())
        }?;
        let object = self.write(py, tensor)?;
        Ok(DeviceAllocation { object, data, streams: exported_streams() })
    }
}

/// Creates a tensor from a NumPy array: over its memory with the private constructor, or as a copy with `tf.constant`.
fn from_array<'py>(py: Python<'py>, state: &State, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match &state.eager_tensor {
        Some(kind) if state.private.as_ref().is_some_and(|private| private.has_constructor) => {
            let none = py.None();
            let none = none.bind(py);
            call::call3(kind.bind(py).as_any(), array, none, none)
        }
        _ => {
            let tensorflow = py.import("tensorflow")?;
            // `init_scope` leaves a `tf.function` that is being traced. GPUs lack some of these dtypes, so the result stays on
            // the host.
            let scopes =
                [tensorflow.call_method0("init_scope")?, tensorflow.call_method1("device", ("CPU:0",))?];
            within(&scopes, || tensorflow.call_method1("constant", (array,)))
        }
    }
}

/// Moves a new tensor to the CPU device of the plan. TensorFlow imports host memory on the first CPU device; `identity` on
/// another CPU device shares the memory.
fn move_to_cpu<'py>(created: Bound<'py, PyAny>, target: Device) -> PyResult<Bound<'py, PyAny>> {
    if target.kind != DeviceKind::Cpu || target.index == 0 {
        return Ok(created);
    }
    let tensorflow = created.py().import("tensorflow")?;
    let device = tensorflow.call_method1("device", (format!("/device:CPU:{}", target.index),))?;
    // Without `init_scope`, the operation would become part of a `tf.function` that is being traced.
    let eager = tensorflow.call_method0("init_scope")?;
    within(&[eager, device], || tensorflow.call_method1("identity", (created,)))
}

/// Sets the tensor's CPU device to that of the TensorFlow tensor, if there are several.
#[inline(always)]
fn assign_cpu(eager: EagerTensor<'_, '_>, tensor: &mut Tensor<Owner>) -> Result<()> {
    let state = state(eager.0.py())?;
    if state.capabilities.len() > 1 {
        let device = backing_device(state, eager)?;
        let index = device.extract::<&str>().ok().and_then(cpu_index).unwrap_or(0);
        tensor.set_cpu(cpu(index as i32));
    }
    Ok(())
}

/// Adds the streams of a source on a GPU. TensorFlow synchronises the device when it exports a tensor, so no work on it is
/// pending.
#[inline(always)]
fn attach_streams(source: Source<'_>) -> Source<'_> {
    if source.describe().device.is_cuda() { source.with_streams(exported_streams()) } else { source }
}

/// The streams of an exported tensor: it is ready, and TensorFlow does not expose the streams that will use it.
fn exported_streams() -> Streams {
    Streams::new(SyncPoint::Complete, SyncPoint::AllStreams)
}

/// Reads an eager tensor: on the host through a NumPy array over its memory, on a GPU through a capsule.
#[inline(always)]
fn read_eager(eager: EagerTensor<'_, '_>) -> Result<Tensor<Owner>> {
    let object = eager.0;
    let py = object.py();
    let state = state(py)?;
    check_type(state, eager)?;
    if state.has_gpu && is_on_gpu(state, eager)? {
        return read_capsule(object)
            .map(restore_read_only_flag)
            .map_err(|failure| framework_error(py, "TensorFlow", failure));
    }
    let array = match state.private(|private| &private.array) {
        Some((array, _)) => {
            // SAFETY: `call` requires an instance of the type of eager tensors: an `EagerTensor` is one.
            unsafe { array.call(object) }.or_else(|error| {
                discard_exception(py, error);
                super::numpy::as_array(object)
            })
        }
        None => public_array(object),
    };
    let array = match array {
        Ok(array) => array,
        // The tensor may have more dimensions than NumPy supports.
        Err(failure) => return read_capsule(object).map_err(|_| framework_error(py, "TensorFlow", failure)),
    };
    let mut tensor =
        super::numpy::read_base(&array).map_err(|failure| framework_error(py, "TensorFlow", failure))?;
    if read_only_loans::is_on_loan(tensor.data() as usize) {
        tensor.set_read_only();
        return Ok(tensor);
    }
    // SAFETY: `set_writable` requires memory that is writable while the owner lives: TensorFlow allocated it, or tensorferry lent it as
    // writable; the branch above handles read-only loans. The array of the public function is read-only because TensorFlow's
    // tensors are immutable, not because the memory is.
    unsafe { tensor.set_writable() };
    Ok(tensor)
}

/// `numpy.asarray`, which shares the memory. It fails for scalars of dtypes that NumPy lacks; `Tensor.numpy` copies these.
fn public_array<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    super::numpy::as_array(object).or_else(|failure| match object.getattr("shape")?.len()? {
        0 => super::numpy::as_array(&object.call_method0("numpy")?),
        _ => Err(failure),
    })
}

/// Reads a tensor through a DLPack capsule.
fn read_capsule(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let capsule = call::call1(state(object.py())?.to_dlpack.bind(object.py()), object)?;
    Ok(owned_tensor::managed(crate::protocols::capsule::take(&capsule)?))
}

/// Whether the memory is on a GPU. (An int32 tensor on a GPU device has its memory on the host.)
fn is_on_gpu(state: &State, eager: EagerTensor<'_, '_>) -> Result<bool> {
    let device = backing_device(state, eager)?;
    Ok(device.extract::<&str>().is_ok_and(|device| !device.contains("CPU")))
}

/// The name of the device that holds a tensor's memory.
fn backing_device<'py>(
    state: &State,
    EagerTensor(object): EagerTensor<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    match state.private(|private| &private.backing_device) {
        // SAFETY: `get` requires an instance of the type of eager tensors: an `EagerTensor` is one.
        Some(attribute) => unsafe { attribute.get(object) },
        None => object.getattr(interned!(object.py(), "backing_device")),
    }
}

/// Rejects strings, resource handles, variants and quantised types, for which an export would abort the process.
fn check_type(state: &State, EagerTensor(object): EagerTensor<'_, '_>) -> Result<()> {
    let datatype_enum: i32 = match state.private(|private| &private.array) {
        // SAFETY: `call` requires an instance of the type of eager tensors: an `EagerTensor` is one.
        Some((_, method)) => unsafe { method.call(object) }?.extract()?,
        None => object.getattr("dtype")?.getattr("as_datatype_enum")?.extract()?,
    };
    let (kind, hint) = match datatype_enum {
        7 => ("string", "encode the strings as numbers first, with tf.io.decode_raw or a vocabulary"),
        20 => ("resource", "pass the variable or tensor of the handle"),
        21 => ("variant", "pass the tensors inside it"),
        11 | 12 | 13 | 15 | 16 => {
            ("quantised", "pass tf.quantization.dequantize(x, ...), or tf.bitcast(x, tf.int8)")
        }
        _ => return Ok(()),
    };
    Err(fail(
        ErrorKind::UnsupportedDType,
        format!("TensorFlow tensors of {kind} type are not supported"),
        hint,
    ))
}
