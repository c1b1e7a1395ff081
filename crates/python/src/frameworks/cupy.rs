//! CuPy: reads arrays through their attributes and creates arrays over `UnownedMemory`.
//!
//! CuPy holds GPU memory only. `cupy.from_dlpack` calls several methods of the producer and takes ten times as long as the
//! constructor of an array over `UnownedMemory`, which takes an address and an owner.

use super::{Framework, allocation_failed, import, within};
use crate::conversion::object_kinds::{Builtin, Form, RecognisedTensor};
use crate::conversion::source::{Source, restore_read_only_flag};
use crate::conversion::streams::{DeviceAllocation, Streams};
use crate::errors::{Result, framework_error};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use smallvec::SmallVec;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Pending, Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor};
use tensorferry_cuda::{Gpu, Stream};

pub(crate) struct CuPy;

/// The element types of all versions. CuPy 14 adds bfloat16.
const DTYPES: DTypes = DTypes::of(&[
    DType::Bool,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::Float32,
    DType::Float64,
    DType::Complex64,
    DType::Complex128,
]);

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: "cupy",
    title: "CuPy",
    dtypes: DTYPES,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: false,
    strides: Strides::Elements,
    alignment: 1,
    max_rank: 32,
    mutability: TargetMutability::Writable,
    devices: SupportedDevices::Cuda,
    default_device: Device::cuda(0),
    cpu_count: 0,
    default_cpu: 0,
    drops_on_own_threads: false,
};

struct State {
    ndarray: Py<PyAny>,
    empty: Py<PyAny>,
    unowned_memory: Py<PyAny>,
    memory_pointer: Py<PyAny>,
    device: Py<PyAny>,
    current_stream: Py<PyAny>,
    /// The function that returns the handle of the current stream (the fast path `cupy.current_handle`).
    current_handle: ForkSafeOnce<Option<Py<PyAny>>>,
    /// Whether `_c_contiguous` can replace reading the strides; probed with the first array.
    has_contiguous_flag: ForkSafeOnce<bool>,
    /// The keyword arguments of `__dlpack__` that disable its synchronisation.
    no_sync: Py<PyDict>,
    /// The CuPy dtype of each element type, or None.
    dtypes: Vec<Py<PyAny>>,
    capabilities: TargetCapabilities,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let cupy = import(py, Builtin::CuPy)?;
        let cuda = cupy.getattr("cuda")?;
        let version = cupy.getattr("__version__")?.to_string();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
        let supported = if major >= 14 { DTYPES.with(DTypes::of(&[DType::BFloat16])) } else { DTYPES };
        let dtypes = DType::all().map(|kind| match supported.contains(kind) {
            true => super::numpy::dtype_object(py, kind).map(Bound::unbind),
            false => Ok(py.None()),
        });
        Ok(State {
            ndarray: cupy.getattr("ndarray")?.unbind(),
            empty: cupy.getattr("empty")?.unbind(),
            unowned_memory: cuda.getattr("UnownedMemory")?.unbind(),
            memory_pointer: cuda.getattr("MemoryPointer")?.unbind(),
            device: cuda.getattr("Device")?.unbind(),
            current_stream: cuda.getattr("get_current_stream")?.unbind(),
            current_handle: ForkSafeOnce::new(),
            has_contiguous_flag: ForkSafeOnce::new(),
            no_sync: [("stream", -1)].into_py_dict(py)?.unbind(),
            dtypes: dtypes.collect::<Result<_>>()?,
            capabilities: TargetCapabilities { dtypes: supported, ..CAPABILITIES },
        })
    })
}

/// The private function for the current handle, compared with `cupy.cuda.get_current_stream`.
fn probe_current_handle(state: &State, py: Python<'_>, gpu: &Gpu) -> Probed<Py<PyAny>> {
    if Gpu::count().unwrap_or(0) > 1 {
        return Err(Unusable::missing("the function supports one GPU only, and there are several"));
    }
    let module = present(py.import("cupy_backends.cuda.stream"))?;
    let function = present(module.getattr("get_current_stream_ptr"))?;
    let found: usize = function.call0()?.extract()?;
    let expected = current_stream(state, py, gpu)?.1;
    check(found == expected, || format!("the stream is {found:#x}, expected {expected:#x}"))?;
    Ok(function.unbind())
}

/// The current stream of a GPU, and its handle.
fn current_stream<'py>(state: &State, py: Python<'py>, gpu: &Gpu) -> Result<(Bound<'py, PyAny>, usize)> {
    let index = gpu.index().into_pyobject(py).map_err(PyErr::from)?;
    let stream = call::call1(state.current_stream.bind(py), &index.into_any())?;
    let handle = stream.getattr(interned!(py, "ptr"))?.extract()?;
    Ok((stream, handle))
}

impl Framework for CuPy {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        Ok(&state(py)?.capabilities)
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let object = tensor.object();
        let py = object.py();
        let state = state(py)?;
        let tensor = match read_attributes(state, tensor)? {
            Some(tensor) => tensor,
            None => export(state, object)?,
        };
        let tensor = restore_read_only_flag(tensor);
        let streams = self.streams(py, Gpu::get(tensor.device().index)?)?;
        Ok(Source::in_place(object.clone(), "cupy", tensor).with_streams(streams))
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        let object = tensor.object();
        Err(crate::errors::not_a_tensor(object))
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        create(py, tensor).map_err(|failure| framework_error(py, "CuPy", failure))
    }

    fn has_named_streams(&self) -> bool {
        true
    }

    fn accepts_epoch_memory(&self) -> bool {
        true
    }

    fn streams(&self, py: Python<'_>, gpu: &'static Gpu) -> Result<Streams> {
        let state = state(py)?;
        let find =
            || fast_paths::probe(py, FastPath::CupyCurrentHandle, || probe_current_handle(state, py, gpu));
        if let Some(current) = state.current_handle.get_or_init(py, find)
            && current.bind(py).call0()?.extract::<usize>()? == 0
        {
            return Ok(Streams::on(Stream::LEGACY));
        }
        let (stream, handle) = current_stream(state, py, gpu)?;
        // SAFETY: `from_handle` requires a stream that outlives the result: CuPy destroys a stream, except the default one, with its
        // object, which `with_owner` keeps below.
        let streams = Streams::on(unsafe { Stream::from_handle(handle) });
        Ok(if handle == 0 { streams } else { streams.with_owner(stream) })
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        stream: Option<Stream>,
    ) -> Result<DeviceAllocation<'py>> {
        let state = state(py)?;
        let shape_tuple = PyTuple::new(py, shape)?.into_any();
        let kind = state.dtypes[dtype as usize].bind(py);
        // A stream can only be made current for the current device.
        let device = state.device.bind(py).call1((gpu.index(),))?;
        let allocated = within(&[device], || {
            let stream = stream.map(|stream| external_stream(py, stream)).transpose()?;
            within(stream.as_slice(), || call::call2(state.empty.bind(py), &shape_tuple, kind))
        });
        let object = allocated.map_err(|error| allocation_failed(py, "CuPy", error, gpu, dtype, shape))?;
        let data: usize = object.getattr("data")?.getattr("ptr")?.extract()?;
        let streams = stream.map_or_else(|| self.streams(py, gpu), |stream| Ok(Streams::on(stream)))?;
        Ok(DeviceAllocation { object, data: std::ptr::with_exposed_provenance_mut(data), streams })
    }
}

/// A CuPy object for an external stream.
fn external_stream(py: Python<'_>, stream: Stream) -> PyResult<Bound<'_, PyAny>> {
    let cuda = py.import("cupy.cuda")?;
    let kind = cuda.getattr("Stream")?;
    if !kind.hasattr("from_external")? {
        return cuda.call_method1("ExternalStream", (stream.handle(),));
    }
    // Since version 14 it takes an object with `__cuda_stream__`, which returns a protocol version of zero and the handle.
    let cuda_stream =
        py.import("functools")?.call_method1("partial", (py.get_type::<PyTuple>(), (0, stream.handle())))?;
    let methods = [("__cuda_stream__", cuda_stream)].into_py_dict(py)?;
    let object = py.import("types")?.call_method("SimpleNamespace", (), Some(&methods))?;
    kind.call_method1("from_external", (object,))
}

/// Reads an array through its attributes. Subclasses give `None` and are exported through `__dlpack__`, unless a stride is
/// negative: `__dlpack__` divides negative strides as if they were positive (observed up to version 14.2).
fn read_attributes(state: &State, tensor: RecognisedTensor<'_, '_>) -> Result<Option<Tensor<Owner>>> {
    let is_read = tensor.form() == Form::Plain || has_negative_strides(tensor.object())?;
    if is_read { inspect(state, tensor) } else { Ok(None) }
}

/// Checks that `_c_contiguous` distinguishes a dense array from a transposed one. Both are views of the first array's memory,
/// which is not read.
fn probe_contiguous(state: &State, object: &Bound<'_, PyAny>) -> Probed<()> {
    let py = object.py();
    let memory = object.getattr(interned!(py, "data"))?;
    let dtype = state.dtypes[DType::Float32 as usize].bind(py);
    let ndarray = state.ndarray.bind(py);
    let dense = ndarray.call1(((2, 2), dtype, &memory))?;
    let transposed = ndarray.call1(((2, 2), dtype, &memory, (4, 8)))?;
    let is_dense = |array: &Bound<'_, PyAny>| -> Probed<bool> {
        Ok(present(array.getattr(interned!(py, "_c_contiguous")))?.is_truthy()?)
    };
    let (dense, transposed) = (is_dense(&dense)?, is_dense(&transposed)?);
    check((dense, transposed) == (true, false), || {
        format!("the flag is {dense} for a dense array and {transposed} for a transposed one")
    })
}

/// Exports an array through `__dlpack__`.
fn export(state: &State, object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = object
        .call_method(interned!(py, "__dlpack__"), (), Some(state.no_sync.bind(py)))
        .map_err(|error| framework_error(py, "CuPy", error))?;
    Ok(owned_tensor::managed(crate::protocols::capsule::take(&capsule)?))
}

/// A tensor over the memory of an array, from its attributes. `None` for an unknown dtype.
fn inspect(state: &State, tensor: RecognisedTensor<'_, '_>) -> Result<Option<Tensor<Owner>>> {
    let object = tensor.object();
    if tensor.framework() != Builtin::CuPy {
        return Ok(None);
    }
    let py = object.py();
    let dtype = object.getattr(interned!(py, "dtype"))?;
    let Some(kind) = DType::all().find(|kind| state.dtypes[*kind as usize].bind(py).is(&dtype)) else {
        return Ok(None);
    };
    let memory = object.getattr(interned!(py, "data"))?;
    let address: usize = memory.getattr(interned!(py, "ptr"))?.extract()?;
    let index: i32 = memory.getattr(interned!(py, "device_id"))?.extract()?;
    let shape: SmallVec<[i64; 8]> = integers(&object.getattr(interned!(py, "shape"))?)?;
    let has_flag = *state.has_contiguous_flag.get_or_init(py, || {
        fast_paths::probe(py, FastPath::CupyContiguous, || probe_contiguous(state, object)).is_some()
    });
    let is_dense = has_flag && object.getattr(interned!(py, "_c_contiguous"))?.is_truthy()?;
    let layout = if is_dense {
        Layout::dense(kind.size(), &shape)?
    } else {
        Layout::strided(kind.size(), &shape, &integers(&object.getattr(interned!(py, "strides"))?)?)?
    };
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::object(memory.unbind());
    let (device, order) = (Device::cuda(index), ByteOrder::Native);
    // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives. Shape, strides, address and device
    // are those that CuPy states for the array, which a `RecognisedTensor` of CuPy is, and the owner holds its `MemoryPointer`,
    // which keeps the memory.
    Ok(Some(unsafe { Tensor::new(data, kind, layout, device, order, Access::ReadWrite, owner) }?))
}

fn has_negative_strides(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(integers(&object.getattr(interned!(object.py(), "strides"))?)?.iter().any(|stride| *stride < 0))
}

/// The integers of a shape or of strides.
fn integers(tuple: &Bound<'_, PyAny>) -> Result<SmallVec<[i64; 8]>> {
    let tuple = tuple.cast::<PyTuple>().map_err(PyErr::from)?;
    tuple.iter().map(|number| Ok(number.extract()?)).collect()
}

/// Creates an array over the memory of a tensor.
fn create<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let state = state(py)?;
    let layout = tensor.layout();
    let dtype = state.dtypes[tensor.dtype() as usize].bind(py);
    let shape = PyTuple::new(py, layout.shape())?;
    if layout.is_empty() {
        return Ok(state.ndarray.bind(py).call1((shape, dtype))?);
    }
    let strides = match layout.is_dense() {
        true => None,
        false => Some(PyTuple::new(py, layout.strides())?),
    };
    let (low, high) = layout.extent();
    let start = (tensor.data() as usize).wrapping_add_signed(low as isize);
    let device = tensor.device().index;
    let owner = tensor.into_owner().into_object(py)?;
    let memory = state.unowned_memory.bind(py).call1((start, high - low, owner, device))?;
    let pointer = state.memory_pointer.bind(py).call1((memory, -low))?;
    Ok(match strides {
        None => state.ndarray.bind(py).call1((shape, dtype, pointer))?,
        Some(strides) => state.ndarray.bind(py).call1((shape, dtype, pointer, strides))?,
    })
}
