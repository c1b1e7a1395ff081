//! CuPy: the attributes of its arrays on the way out, an array over memory that it does not own on the way in.
//!
//! CuPy holds GPU memory alone. Its `from_dlpack` asks the producer for a capsule, a device and a stream in turn, and
//! costs ten times what the array does; `UnownedMemory` takes an address and an object to keep alive.

use super::{Framework, allocation_failed, import, within};
use crate::conversion::kinds::{Builtin, Form};
use crate::conversion::source::{Source, still_frozen};
use crate::conversion::streams::{Room, Streams};
use crate::errors::{Result, refused};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use smallvec::SmallVec;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Pending, Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor};
use tensorferry_cuda::{Gpu, Stream};

pub(crate) struct CuPy;

/// The element types that NumPy has by itself. CuPy 14 has bfloat16 too.
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

static FACTS: TargetCapabilities = TargetCapabilities {
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
    /// The handle of the current stream, without an object around it; tried when a stream is first asked for.
    current_handle: ForkSafeOnce<Option<Py<PyAny>>>,
    /// Whether `_c_contiguous` tells that strides need not be read; tried with the first array.
    is_contiguity_told: ForkSafeOnce<bool>,
    /// What `__dlpack__` is told when somebody else sees to the streams.
    no_stream: Py<PyDict>,
    /// Its name for each of our types, or None.
    dtypes: Vec<Py<PyAny>>,
    facts: TargetCapabilities,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let cupy = import(py, Builtin::CuPy)?;
        let cuda = cupy.getattr("cuda")?;
        let version = cupy.getattr("__version__")?.to_string();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
        let held = if major >= 14 { DTYPES.with(DTypes::of(&[DType::BFloat16])) } else { DTYPES };
        let dtypes = DType::all().map(|kind| match held.contains(kind) {
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
            is_contiguity_told: ForkSafeOnce::new(),
            no_stream: [("stream", -1)].into_py_dict(py)?.unbind(),
            dtypes: dtypes.collect::<Result<_>>()?,
            facts: TargetCapabilities { dtypes: held, ..FACTS },
        })
    })
}

/// CuPy's function for the handle alone, in the versions that have it, compared with the current stream.
fn current_handle(state: &State, py: Python<'_>, gpu: &Gpu) -> Probed<Py<PyAny>> {
    if Gpu::count().unwrap_or(0) > 1 {
        return Err(Unusable::missing("it tells the stream of the current GPU only, and there are several"));
    }
    let module = present(py.import("cupy_backends.cuda.stream"))?;
    let function = present(module.getattr("get_current_stream_ptr"))?;
    let found: usize = function.call0()?.extract()?;
    let expected = current_stream(state, py, gpu)?.1;
    check(found == expected, || format!("it gives the stream {found:#x} instead of {expected:#x}"))?;
    Ok(function.unbind())
}

/// The current stream of a GPU, and its handle.
fn current_stream<'py>(state: &State, py: Python<'py>, gpu: &Gpu) -> Result<(Bound<'py, PyAny>, usize)> {
    let index = gpu.index().into_pyobject(py).map_err(PyErr::from)?;
    let stream = call::call1(state.current_stream.bind(py), &index.into_any())?;
    let handle = stream.getattr(intern!(py, "ptr"))?.extract()?;
    Ok((stream, handle))
}

impl Framework for CuPy {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        Ok(&state(py)?.facts)
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>> {
        let py = object.py();
        let state = state(py)?;
        let tensor = match read_attributes(state, object, form)? {
            Some(tensor) => tensor,
            None => export(state, object)?,
        };
        let tensor = still_frozen(tensor);
        let streams = self.streams(py, Gpu::get(tensor.device().index)?)?;
        Ok(Source::here(object.clone(), "cupy", tensor).with_streams(streams))
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        Err(crate::errors::not_a_tensor(object))
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        make(py, tensor).map_err(|failure| refused(py, "CuPy", failure))
    }

    fn has_named_streams(&self) -> bool {
        true
    }

    fn streams(&self, py: Python<'_>, gpu: &'static Gpu) -> Result<Streams> {
        let state = state(py)?;
        let find = || fast_paths::probe(py, FastPath::CupyCurrentHandle, || current_handle(state, py, gpu));
        if let Some(current) = state.current_handle.get_or_init(py, find)
            && current.bind(py).call0()?.extract::<usize>()? == 0
        {
            return Ok(Streams::on(Stream::LEGACY));
        }
        let (stream, handle) = current_stream(state, py, gpu)?;
        // SAFETY: CuPy's current stream. CuPy destroys a stream with its object, but for the default one; the object is kept
        // below.
        let streams = Streams::on(unsafe { Stream::from_handle(handle) });
        Ok(if handle == 0 { streams } else { streams.kept_by(stream) })
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        stream: Option<Stream>,
    ) -> Result<Room<'py>> {
        let state = state(py)?;
        let shape_tuple = PyTuple::new(py, shape)?.into_any();
        let kind = state.dtypes[dtype as usize].bind(py);
        // A stream is current for the device that is.
        let device = state.device.bind(py).call1((gpu.index(),))?;
        let made = within(&[device], || {
            let stream = stream.map(|stream| external(py, stream)).transpose()?;
            within(stream.as_slice(), || call::call2(state.empty.bind(py), &shape_tuple, kind))
        });
        let object = made.map_err(|error| allocation_failed(py, "CuPy", error, gpu, dtype, shape))?;
        let data: usize = object.getattr("data")?.getattr("ptr")?.extract()?;
        let streams = stream.map_or_else(|| self.streams(py, gpu), |stream| Ok(Streams::on(stream)))?;
        Ok(Room { object, data: std::ptr::with_exposed_provenance_mut(data), streams })
    }
}

/// CuPy's object for a stream of somebody else.
fn external(py: Python<'_>, stream: Stream) -> PyResult<Bound<'_, PyAny>> {
    let cuda = py.import("cupy.cuda")?;
    let kind = cuda.getattr("Stream")?;
    if !kind.hasattr("from_external")? {
        return cuda.call_method1("ExternalStream", (stream.handle(),));
    }
    // From version 14 on it wants an object that speaks the stream protocol: version zero, and the handle.
    let answer =
        py.import("functools")?.call_method1("partial", (py.get_type::<PyTuple>(), (0, stream.handle())))?;
    let speaks = [("__cuda_stream__", answer)].into_py_dict(py)?;
    let object = py.import("types")?.call_method("SimpleNamespace", (), Some(&speaks))?;
    kind.call_method1("from_external", (object,))
}

/// Reads an array by its attributes. `None` where `__dlpack__` is to be asked: subclasses, unless they run backwards. Those
/// have capsules with strides divided as if they were positive (seen up to version 14.2).
fn read_attributes(state: &State, object: &Bound<'_, PyAny>, form: Form) -> Result<Option<Tensor<Owner>>> {
    if form == Form::Plain || runs_backwards(object)? { look(state, object) } else { Ok(None) }
}

/// Whether `_c_contiguous` tells a dense array from a transposed one. Both are views of the memory of the first array, which
/// nothing reads.
fn check_contiguous(state: &State, object: &Bound<'_, PyAny>) -> Probed<()> {
    let py = object.py();
    let memory = object.getattr(intern!(py, "data"))?;
    let dtype = state.dtypes[DType::Float32 as usize].bind(py);
    let make = state.ndarray.bind(py);
    let dense = make.call1(((2, 2), dtype, &memory))?;
    let transposed = make.call1(((2, 2), dtype, &memory, (4, 8)))?;
    let is_dense = |array: &Bound<'_, PyAny>| -> Probed<bool> {
        Ok(present(array.getattr(intern!(py, "_c_contiguous")))?.is_truthy()?)
    };
    let (dense, transposed) = (is_dense(&dense)?, is_dense(&transposed)?);
    check((dense, transposed) == (true, false), || {
        format!("it is {dense} of a dense array and {transposed} of a transposed one")
    })
}

fn export(state: &State, object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = object
        .call_method(intern!(py, "__dlpack__"), (), Some(state.no_stream.bind(py)))
        .map_err(|error| refused(py, "CuPy", error))?;
    Ok(crate::protocols::capsule::owned(crate::protocols::capsule::take(&capsule)?))
}

/// What an array is, from its attributes. `None` where one of them is not what we know.
fn look(state: &State, object: &Bound<'_, PyAny>) -> Result<Option<Tensor<Owner>>> {
    let py = object.py();
    let dtype = object.getattr(intern!(py, "dtype"))?;
    let Some(kind) = DType::all().find(|kind| state.dtypes[*kind as usize].bind(py).is(&dtype)) else {
        return Ok(None);
    };
    let memory = object.getattr(intern!(py, "data"))?;
    let address: usize = memory.getattr(intern!(py, "ptr"))?.extract()?;
    let index: i32 = memory.getattr(intern!(py, "device_id"))?.extract()?;
    let shape: SmallVec<[i64; 8]> = numbers(&object.getattr(intern!(py, "shape"))?)?;
    let is_told = *state.is_contiguity_told.get_or_init(py, || {
        fast_paths::probe(py, FastPath::CupyContiguous, || check_contiguous(state, object)).is_some()
    });
    let dense = is_told && object.getattr(intern!(py, "_c_contiguous"))?.is_truthy()?;
    let layout = if dense {
        Layout::dense(kind.size(), &shape)?
    } else {
        Layout::strided(kind.size(), &shape, &numbers(&object.getattr(intern!(py, "strides"))?)?)?
    };
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::object(memory.unbind());
    let (device, order) = (Device::cuda(index), ByteOrder::Native);
    // SAFETY: CuPy's own description of the array; its memory pointer, which the owner holds, keeps the memory.
    Ok(Some(unsafe { Tensor::new(data, kind, layout, device, order, Access::ReadWrite, owner) }?))
}

fn runs_backwards(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(numbers(&object.getattr(intern!(object.py(), "strides"))?)?.iter().any(|stride| *stride < 0))
}

fn numbers(tuple: &Bound<'_, PyAny>) -> Result<SmallVec<[i64; 8]>> {
    let tuple = tuple.cast::<PyTuple>().map_err(PyErr::from)?;
    tuple.iter().map(|number| Ok(number.extract()?)).collect()
}

/// An array over the memory of a tensor.
fn make<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
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
