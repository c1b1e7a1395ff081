//! PyTorch: reads and creates tensors through the DLPack C exchange API, or through capsules where it is missing.
//!
//! The owner of a shared tensor is its storage, not the tensor object: `t.data = other` replaces the storage, and memory
//! kept by the tensor would dangle. Conjugate and negative bits are lazy flags and not part of the memory; PyTorch resolves
//! them in a copy.

mod autograd;
mod bits;
mod cpp_object;
mod sample;
mod slots;
mod state;
mod storage;
mod stream;

pub(crate) use self::state::is_aligned_by_construction;
use self::state::{State, state};
use super::dlpack_exchange::Exchange;
use super::framework::refuse_leaf;
use super::{Framework, allocation_failed, within};
use crate::conversion::alignment;
use crate::conversion::object_kinds::{Builtin, Form, RecognisedTensor};
use crate::conversion::read_only::restore_promised_flag;
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::{DeviceAllocation, Streams};
use crate::errors::{Failure, Result, fail, framework_error};
use crate::interpreter::call;
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::{AttachingOwner, Owner};
use crate::protocols::reader;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::sync::{Mutex, PoisonError};
use tensorferry_core::borrow_table::ElementRange;
use tensorferry_core::plan::{Pending, SourceMutability, TargetCapabilities};
use tensorferry_core::{Access, DType, Device, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Gpu, Stream};

pub(crate) struct Torch;

impl Framework for Torch {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        Ok(&state(py)?.capabilities)
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        if tensor.framework() != Builtin::Torch {
            return Err(crate::errors::not_a_tensor(tensor.object()));
        }
        let (object, form) = (tensor.object(), tensor.form());
        if form == Form::ReadOnly {
            return read_only(object);
        }
        let state = state(object.py())?;
        let (mut tensor, requires_grad, pending);
        // SAFETY: the slots, `is_required`, `borrow`, `check_byte_dtype` and `pending` require an instance of `torch.Tensor`, and so of
        // `TensorBase`: a `RecognisedTensor` of PyTorch is one, except for the wrapper type of `Form::ReadOnly`, which is
        // handled above. `check_storage` comes before the first use of the tensor.
        unsafe {
            requires_grad = state.autograd.is_required(&state.slots, object)?;
            // Autograd may have saved a non-leaf tensor for the backward pass, so its memory is lent as read-only.
            let is_saved = requires_grad && !state.slots.is_leaf.is_true(object)?;
            let access = if is_saved { Access::ReadOnly } else { Access::ReadWrite };
            tensor = borrow(state, object, access).map_err(|failure| explain(object, failure))?;
            restore_promised_flag(&mut tensor);
            check_storage(state, object, &tensor)?;
            check_byte_dtype(state, object, tensor.dtype())?;
            pending = state.bits.pending(&state.slots, object, tensor.dtype())?;
        }
        let device = tensor.device();
        let mutability =
            if requires_grad { SourceMutability::Differentiable } else { SourceMutability::Mutable };
        if !device.is_host() && !device.is_cuda() {
            return Ok(reader::downloadable(object, "torch", &tensor)?.with_mutability(mutability));
        }
        let streams = if device.is_cuda() { Some(Box::new(streams(object.py(), device)?)) } else { None };
        Ok(Source {
            object: object.clone(),
            framework: "torch",
            memory: match pending {
                None => SourceMemory::InPlace(tensor),
                Some(pending) => {
                    let dtype = tensor.dtype();
                    let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
                    let reads = ElementRange::of(&tensor).map(Box::new);
                    SourceMemory::Pending { pending, device, dtype, layout, reads }
                }
            },
            mutability,
            through_array: false,
            counts: None,
            streams,
        })
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, pending: Pending) -> Result<Tensor<Owner>> {
        let object = tensor.object();
        let py = object.py();
        let resolved = call::method(object, interned!(py, "detach"))?;
        let resolved = call::method(&resolved, interned!(py, "resolve_conj"))?;
        let resolved = call::method(&resolved, interned!(py, "resolve_neg"))?;
        let state = state(py)?;
        // A subclass may return any object from these methods.
        if !objects::has_type(&resolved, state.tensor_type.bind(py)) {
            return Err(crate::errors::not_a_tensor(&resolved));
        }
        if pending == Pending::Download {
            return reader::download(&resolved);
        }
        // SAFETY: `borrow` requires an instance of `torch.Tensor`: the line above has compared the type. `check_storage` comes before
        // the first use of the result.
        let tensor = unsafe { borrow(state, &resolved, Access::ReadWrite) }?;
        check_storage(state, object, &tensor)?;
        Ok(tensor)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let tensor = AttachingOwner::of(alignment::record_alignment(py, tensor));
        if let Some(exchange) = &state.exchange {
            return exchange.import(py, tensor).map_err(|failure| framework_error(py, "PyTorch", failure));
        }
        let capsule = crate::protocols::capsule::legacy(py, tensor)?;
        call::call1(state.from_capsule.bind(py), &capsule)
            .map_err(|error| framework_error(py, "PyTorch", error))
    }

    /// Raises the version counter, by which a later backward pass sees that a value that it saved has changed.
    fn begin_write(&self, object: &Bound<'_, PyAny>) -> Result<()> {
        let py = object.py();
        let state = state(py)?;
        if object.getattr(interned!(py, "requires_grad"))?.is_truthy()? {
            refuse_leaf(object, state.is_grad_enabled.bind(py), "torch")?;
        }
        call::call1(state.increment_version.bind(py), object)?;
        Ok(())
    }

    fn has_named_streams(&self) -> bool {
        true
    }

    fn accepts_epoch_memory(&self) -> bool {
        true
    }

    fn streams(&self, py: Python<'_>, gpu: &'static Gpu) -> Result<Streams> {
        streams(py, Device::cuda(gpu.index()))
    }

    fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[i64],
        gpu: &'static Gpu,
        stream: Option<Stream>,
    ) -> Result<DeviceAllocation<'py>> {
        let torch = state(py)?.module.bind(py);
        let options = allocation_options(py, torch, dtype, gpu)?;
        let mut managers = Vec::new();
        if let Some(stream) = stream {
            let cuda = torch.getattr("cuda")?;
            let external = cuda.call_method1("ExternalStream", (stream.handle(), gpu.index()))?;
            managers.push(cuda.call_method1("stream", (external,))?);
        }
        let empty = state(py)?.empty.bind(py);
        let allocated = within(&managers, || empty.call((shape.to_vec(),), Some(&options)));
        let object = allocated.map_err(|error| allocation_failed(py, "PyTorch", error, gpu, dtype, shape))?;
        let data: usize = object.call_method0("data_ptr")?.extract()?;
        let streams = stream.map_or_else(|| self.streams(py, gpu), |stream| Ok(Streams::on(stream)))?;
        Ok(DeviceAllocation { object, data: std::ptr::with_exposed_provenance_mut(data), streams })
    }
}

/// A copy by PyTorch, which keeps the class of a subclass and what the class stores.
pub(crate) fn copy_with_class<'py>(
    object: &Bound<'py, PyAny>,
    dtype: DType,
    device: Device,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = [("dtype", state(py)?.module.bind(py).getattr(dtype.name())?)].into_py_dict(py)?;
    keywords.set_item("device", device.to_string())?;
    keywords.set_item("copy", true)?;
    let copied = object.call_method0("detach").and_then(|own| own.call_method("to", (), Some(&keywords)));
    copied.map_err(|error| framework_error(py, "PyTorch", error))
}

/// The keyword arguments of `torch.empty` for a dtype on a GPU, cached.
fn allocation_options<'py>(
    py: Python<'py>,
    torch: &Bound<'py, PyModule>,
    dtype: DType,
    gpu: &Gpu,
) -> Result<Bound<'py, PyDict>> {
    static CACHE: Mutex<Vec<(DType, i32, Py<PyDict>)>> = Mutex::new(Vec::new());
    // The lock is never held while Python code runs.
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., options)) = cache().iter().find(|entry| (entry.0, entry.1) == (dtype, gpu.index())) {
        return Ok(options.bind(py).clone());
    }
    let device = torch.getattr("device")?.call1((format!("cuda:{}", gpu.index()),))?;
    let options = [("dtype", torch.getattr(dtype.name())?), ("device", device)].into_py_dict(py)?;
    cache().push((dtype, gpu.index(), options.clone().unbind()));
    Ok(options)
}

/// The current stream of the calling thread.
fn streams(py: Python<'_>, device: Device) -> Result<Streams> {
    let state = state(py)?;
    Ok(Streams::on(stream::current(state.module.bind(py), state.exchange.as_ref(), device)?))
}

/// A tensor over the memory of `object`, kept alive by its storage.
///
/// # Safety
/// The object is an instance of `torch.Tensor`. The caller uses the result only if [`check_storage`] accepts it.
#[inline(always)]
unsafe fn borrow(state: &State, object: &Bound<'_, PyAny>, access: Access) -> Result<Tensor<Owner>> {
    let py = object.py();
    // SAFETY: the slot and `Exchange::borrow` require an instance of `torch.Tensor`, and so does this function. The latter and
    // `map_owner` require an owner that keeps the memory: the storage does, also after the tensor gets another one
    // (`t.data = other`). If a subclass returns another storage, `check_storage` rejects the tensor.
    unsafe {
        let own = || -> Result<Owner> { Ok(Owner::object(state.slots.storage.call(object)?.unbind())) };
        match &state.exchange {
            Some(exchange) => exchange.borrow(object, access, own),
            None => {
                let capsule = call::call1(state.to_capsule.bind(py), object)?;
                let tensor = crate::protocols::capsule::take(&capsule)?;
                let storage = own()?;
                let mut tensor = tensor.map_owner(|_| storage);
                if access == Access::ReadOnly {
                    tensor.set_read_only();
                }
                Ok(tensor)
            }
        }
    }
}

/// Reads `torch.utils.dlpack.ReadOnlyTensorWrapper`, which implements DLPack only: its own C exchange API and `__dlpack__`.
fn read_only<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = object.py();
    let exported = match state(py)?.exchange {
        Some(_) => Exchange::export_by_own_table(object),
        None => None,
    };
    let tensor = match exported {
        Some((_, exported)) => exported,
        None => call::method(object, interned!(py, "__dlpack__"))
            .map_err(Failure::from)
            .and_then(|capsule| crate::protocols::capsule::take(&capsule)),
    };
    let mut tensor = tensor.map_err(|failure| framework_error(py, "PyTorch", failure))?;
    tensor.set_read_only();
    Ok(Source::in_place(object.clone(), "torch", owned_tensor::managed(tensor)))
}

/// Checks that the owner is a storage which contains the tensor's memory. `x.untyped_storage().resize_(0)` leaves shape and strides;
/// a subclass or an active mode can override `untyped_storage` through `__torch_function__`.
#[inline(always)]
fn check_storage(state: &State, object: &Bound<'_, PyAny>, tensor: &Tensor<Owner>) -> Result<()> {
    let Owner::Object(storage) = tensor.owner() else { return Ok(()) };
    let storage = storage.get().bind(object.py());
    if tensor.layout().is_empty() {
        return Ok(());
    }
    if storage.get_type_ptr() == state.storage_type.bind(object.py()).as_type_ptr() {
        // SAFETY: `range` requires a `torch.UntypedStorage`: the line above has compared the type.
        let (start, length) = unsafe { state.storages.range(storage) }?;
        let (low, high) = tensor.layout().extent();
        let (start, data) = (start as i128, tensor.data() as i128);
        if start <= data + i128::from(low) && data + i128::from(high) <= start + length as i128 {
            return Ok(());
        }
    }
    Err(too_small_storage(object).unwrap_or_else(|| {
        fail(
            ErrorKind::NotATensor,
            "the storage of the torch tensor does not contain its memory",
            "pass x.as_subclass(torch.Tensor), outside any __torch_function__ mode",
        )
    }))
}

/// The error for a tensor whose elements end behind its storage, which `resize_` can make smaller.
#[cold]
fn too_small_storage(object: &Bound<'_, PyAny>) -> Option<Failure> {
    let number = |value: PyResult<Bound<'_, PyAny>>| value.ok()?.extract::<i128>().ok();
    let shape: Vec<i128> = object.getattr("shape").ok()?.extract().ok()?;
    let strides: Vec<i128> = object.call_method0("stride").ok()?.extract().ok()?;
    let steps: i128 = shape.iter().zip(strides).map(|(length, stride)| (length - 1) * stride).sum();
    let last = number(object.call_method0("storage_offset"))? + steps;
    let required = (last + 1) * number(object.getattr("itemsize"))?;
    let length = number(object.call_method0("untyped_storage").ok()?.call_method0("nbytes"))?;
    let is_empty = shape.contains(&0);
    (!is_empty && required > length).then(|| {
        fail(
            ErrorKind::InvalidTensor,
            format!("the storage of the torch tensor has {length} bytes, and its elements need {required}"),
            "restore the memory first; FSDP frees parameters outside of forward and backward, \
             and FSDP.summon_full_params(module) gathers them",
        )
    })
}

/// Rejects `torch.int3` and similar dtypes, which PyTorch exports as int8.
///
/// # Safety
/// The object is an instance of `torch.Tensor`.
unsafe fn check_byte_dtype(state: &State, object: &Bound<'_, PyAny>, dtype: DType) -> Result<()> {
    if !matches!(dtype, DType::Int8 | DType::UInt8) {
        return Ok(());
    }
    // SAFETY: the slot requires an instance of `torch.Tensor`, and so does this function.
    let given = unsafe { state.slots.dtype.get(object) }?;
    let is_exact = state.byte_dtypes.iter().any(|dtype| given.is(dtype.bind(object.py())));
    if is_exact { Ok(()) } else { Err(no_counterpart(&given.to_string())) }
}

/// The name of the tensor's dtype, if no other framework has it.
fn torch_only_dtype(object: &Bound<'_, PyAny>) -> Option<String> {
    let name = object.getattr(interned!(object.py(), "dtype")).ok()?.to_string();
    DType::from_name(name.strip_prefix("torch.").unwrap_or(&name)).is_none().then_some(name)
}

fn is_float8(object: &Bound<'_, PyAny>) -> bool {
    object.getattr(interned!(object.py(), "dtype")).is_ok_and(|dtype| dtype.to_string().contains("float8"))
}

fn no_counterpart(name: &str) -> Failure {
    fail(
        ErrorKind::UnsupportedDType,
        format!("{name} has no counterpart in other frameworks"),
        "pass x.view(torch.uint8) for the raw bytes, or convert it first",
    )
}

/// Replaces PyTorch's error for a tensor without dense memory by one that states the reason and a remedy.
fn explain(object: &Bound<'_, PyAny>, failure: Failure) -> Failure {
    let truthy = |name: &str| object.getattr(name).and_then(|value| value.is_truthy()).unwrap_or(false);
    let layout = object.getattr("layout").map(|layout| layout.to_string()).unwrap_or_default();
    let (fact, hint) = if truthy("is_nested") {
        (
            "a nested torch tensor has rows of different shapes",
            "pass its components: x.unbind(), or x.to_padded_tensor(0)",
        )
    } else if layout.contains("sparse") {
        ("a sparse torch tensor has no dense memory", "pass x.to_dense(), or its indices and values")
    } else if layout.contains("mkldnn") {
        ("a torch tensor in MKL-DNN layout has no strided memory", "pass x.to_dense()")
    } else if truthy("is_meta") {
        ("a torch tensor on the meta device has no values", "create it on a real device first")
    } else if truthy("is_quantized") {
        (
            "a quantised torch tensor consists of integers, scales and zero points",
            "pass x.dequantize(), or x.int_repr() for the raw integers",
        )
    } else if is_functorch(object) {
        (
            "a tensor inside a torch.func transform (vmap, grad, jvp) has no memory of its own",
            "convert the tensor outside the transformed function",
        )
    } else if let Some(name) = torch_only_dtype(object) {
        return no_counterpart(&name);
    } else if let Some(failure) = too_small_storage(object) {
        return failure;
    } else if state(object.py()).is_ok_and(|state| !state.exports_float8) && is_float8(object) {
        return fail(
            ErrorKind::UnsupportedDType,
            "this version of PyTorch does not export its 8-bit floats",
            "pass x.view(torch.uint8) for the raw bytes, or update PyTorch",
        );
    } else {
        return framework_error(object.py(), "PyTorch", failure);
    };
    fail(ErrorKind::NotATensor, fact, hint)
}

/// Whether the tensor is a wrapper of `torch.func`. Its `repr` would read its values.
fn is_functorch(object: &Bound<'_, PyAny>) -> bool {
    let module = object.py().import("torch._C._functorch");
    let found = module.and_then(|module| module.call_method1("is_functorch_wrapped_tensor", (object,)));
    found.and_then(|found| found.is_truthy()).unwrap_or(false)
}
