//! What is looked up in PyTorch once: functions, types, fast paths and capabilities.

use super::autograd::Autograd;
use super::bits::Bits;
use super::sample::sample;
use super::slots::Slots;
use super::storage::Storages;
use crate::conversion::object_kinds::Builtin;
use crate::errors::{Result, discard_exception};
use crate::fast_paths::samples::{self, ExpectedTensor};
use crate::fast_paths::{self, FastPath, Probed, check, on_fresh_thread};
use crate::frameworks::dlpack_exchange::Exchange;
use crate::frameworks::import;
use crate::interpreter::objects;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owner::{AttachingOwner, Owner};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::CString;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{Access, DType, Device};

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: "torch",
    title: "PyTorch",
    dtypes: DTypes::ALL.without(DTypes::of(&[
        DType::Int4,
        DType::UInt4,
        DType::Float8E3M4,
        DType::Float8E4M3,
        DType::Float8E4M3B11Fnuz,
        DType::Float6E2M3Fn,
        DType::Float6E3M2Fn,
        DType::Float4E2M1Fn,
    ])),
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: true,
    accepts_swapped_bytes: false,
    strides: Strides::Forward,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Writable,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};

pub(super) struct State {
    pub(super) module: Py<PyModule>,
    pub(super) exchange: Option<Exchange>,
    pub(super) slots: Slots,
    /// `torch.Tensor`.
    pub(super) tensor_type: Py<PyType>,
    /// `torch.UntypedStorage`.
    pub(super) storage_type: Py<PyType>,
    pub(super) storages: Storages,
    pub(super) bits: Bits,
    pub(super) autograd: Autograd,
    /// `torch.int8` and `torch.uint8`. DLPack describes other one-byte dtypes in the same way.
    pub(super) byte_dtypes: [Py<PyAny>; 2],
    pub(super) to_capsule: Py<PyAny>,
    pub(super) from_capsule: Py<PyAny>,
    pub(super) empty: Py<PyAny>,
    pub(super) is_grad_enabled: Py<PyAny>,
    pub(super) increment_version: Py<PyAny>,
    /// Whether this version exports 8-bit floats through DLPack.
    pub(super) exports_float8: bool,
    pub(super) capabilities: TargetCapabilities,
}

pub(super) static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

pub(super) fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let torch = import(py, Builtin::Torch)?.unbind();
        // The probe of storages needs NumPy. Imports happen on the calling thread, because it may hold import locks that
        // another thread would wait for.
        if let Err(error) = py.import("numpy") {
            discard_exception(py, error);
        }
        py.import("torch.utils.dlpack")?;
        // The calling thread may be inside a mode: `torch.device("meta")`, a `TorchFunctionMode` or a `TorchDispatchMode`.
        on_fresh_thread(py, |py| State::new(torch.bind(py)))
    })
}

impl State {
    fn new(torch: &Bound<'_, PyModule>) -> Result<Self> {
        let py = torch.py();
        let dlpack = py.import("torch.utils.dlpack")?;
        let folder = torch.getattr("__path__")?.get_item(0)?.to_string();
        let library = |name| CString::new(format!("{folder}/lib/{name}")).map_err(PyErr::from);
        let (libtorch, libc10) = (library("libtorch_cpu.so")?, library("libc10.so")?);
        let exports_float8 = exports_float8(torch, &dlpack.getattr("to_dlpack")?);
        let mut dtypes = CAPABILITIES.dtypes;
        if !exports_float8 {
            dtypes = dtypes.without(DTypes::FLOAT8);
        }
        // From torch 2.7 on.
        if !torch.hasattr("float8_e8m0fnu")? {
            dtypes = dtypes.without(DTypes::of(&[DType::Float8E8M0Fnu]));
        }
        let class = |name: &str| torch.getattr(name)?.cast_into::<PyType>().map_err(PyErr::from);
        let (tensor_type, storage_type) = (class("Tensor")?, class("UntypedStorage")?);
        Ok(Self {
            module: torch.clone().unbind(),
            exchange: fast_paths::probe(py, FastPath::TorchExchangeApi, || probe_exchange(torch)),
            slots: Slots::of(torch),
            tensor_type: tensor_type.unbind(),
            storage_type: storage_type.unbind(),
            storages: Storages::of(torch),
            bits: Bits::of(torch, &libtorch),
            autograd: Autograd::of(torch, &libc10),
            byte_dtypes: [torch.getattr("int8")?.unbind(), torch.getattr("uint8")?.unbind()],
            to_capsule: dlpack.getattr("to_dlpack")?.unbind(),
            from_capsule: torch.getattr("from_dlpack")?.unbind(),
            empty: torch.getattr("empty")?.unbind(),
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            increment_version: py.import("torch.autograd.graph")?.getattr("increment_version")?.unbind(),
            exports_float8,
            capabilities: TargetCapabilities { dtypes, devices: supported_devices(torch)?, ..CAPABILITIES },
        })
    }
}

/// The C exchange API, compared with the public API in both directions.
fn probe_exchange(torch: &Bound<'_, PyModule>) -> Probed<Exchange> {
    let py = torch.py();
    let kind = torch.getattr("Tensor")?.cast_into::<PyType>().map_err(PyErr::from)?;
    let exchange = Exchange::of(&kind)?;
    let tensor = sample(torch, "float32")?.call_method1("new_empty", ((2, 3),))?.call_method0("t")?;
    check(objects::has_type(&tensor, &kind), || "a sample is not a torch.Tensor".to_owned())?;
    let address = |tensor: &Bound<'_, PyAny>| tensor.call_method0("data_ptr")?.extract::<usize>();
    let element_strides: Vec<i64> = tensor.call_method0("stride")?.extract()?;
    let expected = ExpectedTensor {
        address: address(&tensor)?,
        shape: tensor.getattr("shape")?.extract()?,
        strides: element_strides.iter().map(|stride| stride * 4).collect(),
        dtype: DType::Float32,
    };
    let own = || Ok(Owner::object(tensor.call_method0("untyped_storage")?.unbind()));
    // SAFETY: both require an instance of `torch.Tensor`, whose table it is: the check above has compared the type. `own` returns the
    // storage, which owns the memory.
    let (borrowed, exported) =
        unsafe { (exchange.borrow(&tensor, Access::ReadOnly, own)?, exchange.export(&tensor)?) };
    expected.check(&borrowed)?;
    expected.check(&exported)?;
    let memory = samples::float32()?;
    let expected = ExpectedTensor::of(&memory);
    let created = exchange.import(py, AttachingOwner::of(memory))?;
    expected.check_created(&created, address(&created)?)?;
    Ok(exchange)
}

fn exports_float8(torch: &Bound<'_, PyModule>, to_dlpack: &Bound<'_, PyAny>) -> bool {
    sample(torch, "float8_e5m2").and_then(|sample| to_dlpack.call1((sample,))).is_ok()
}

/// Host memory, and CUDA if this build of PyTorch supports it. Whether a GPU exists is checked on first use.
fn supported_devices(torch: &Bound<'_, PyModule>) -> Result<SupportedDevices> {
    let cuda = torch.getattr("version")?.getattr_opt("cuda")?;
    Ok(if cuda.is_some_and(|version| !version.is_none()) {
        SupportedDevices::Both
    } else {
        SupportedDevices::Host
    })
}

/// Whether the allocator of a storage, or of a tensor's storage, guarantees its alignment; `None` for other objects.
pub(crate) fn is_aligned_by_construction(object: &Bound<'_, PyAny>) -> Option<bool> {
    let py = object.py();
    let state = match STATE.get(py) {
        Some(state) => state,
        None if is_torch_object(object) => state(py).ok()?,
        None => return None,
    };
    let of_storage = |storage: &Bound<'_, PyAny>| {
        // SAFETY: `is_aligned` requires a `torch.UntypedStorage`: the type was compared on this line.
        storage.get_type().is(&state.storage_type).then(|| unsafe { state.storages.is_aligned(storage) })
    };
    of_storage(object).or_else(|| {
        let storage =
            is_torch_object(object).then(|| object.call_method0(interned!(py, "untyped_storage")))?;
        of_storage(&storage.ok()?)
    })
}

/// Whether the class of the object is defined in a module of PyTorch.
fn is_torch_object(object: &Bound<'_, PyAny>) -> bool {
    let module = object.get_type().module();
    module.is_ok_and(|module| module.to_str().is_ok_and(|name| name.split('.').next() == Some("torch")))
}
