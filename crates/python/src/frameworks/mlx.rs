//! MLX: reads arrays through DLPack and creates them with `mlx.core.array`, which copies.
//!
//! MLX arrays have value semantics: `a += 1` creates a new array unless the memory has no other reference. A DLPack capsule
//! counts as a reference; a memoryview does not, and would see the write. Sources are therefore immutable.

use super::{Framework, import};
use crate::conversion::object_kinds::{Builtin, RecognisedTensor};
use crate::conversion::source::Source;
use crate::errors::{Result, fail, framework_error};
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    Pending, Reason, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Tensor};

pub(crate) struct Mlx;

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: "mlx",
    title: "MLX",
    dtypes: DTypes::of(&[
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
        DType::BFloat16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
    ]),
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: Some(Reason::OwnMemory),
    keeps_64_bit: true,
    narrow_by_default: true,
    accepts_swapped_bytes: false,
    strides: Strides::Forward,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Immutable,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};

static MODULE: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();

/// The oldest supported version. Older ones do not keep memory alive that they export through DLPack.
const MIN_VERSION: (u32, u32) = (0, 32);

fn module(py: Python<'_>) -> Result<&Bound<'_, PyAny>> {
    let module = MODULE.get_or_try_init(py, || -> Result<_> {
        let module = import(py, Builtin::Mlx)?;
        let version = module.getattr("__version__")?.to_string();
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < MIN_VERSION {
            return Err(fail(
                ErrorKind::FrameworkMissing,
                format!("MLX {version} is too old: it does not keep shared memory alive"),
                format!("pip install -U \"mlx>={}.{}\"", MIN_VERSION.0, MIN_VERSION.1),
            ));
        }
        Ok(module.into_any().unbind())
    })?;
    Ok(module.bind(py))
}

impl Framework for Mlx {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        module(py)?;
        Ok(&CAPABILITIES)
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let object = tensor.object();
        module(object.py())?;
        let tensor = export(object)?;
        Ok(Source::in_place(object.clone(), "mlx", tensor).with_mutability(SourceMutability::Immutable))
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        let object = tensor.object();
        export(object)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let module = module(py)?;
        let dtype = tensor.dtype();
        // `mlx.core.array` accepts NumPy's own dtypes only; bfloat16 is passed as uint16 and reinterpreted. Bools are passed as
        // bytes and cast: MLX would keep a byte such as 2, and compute `True & True` as False.
        let (transport, kind) = match dtype {
            DType::BFloat16 => (DType::UInt16, DType::UInt16),
            DType::Bool => (DType::UInt8, DType::Bool),
            other => (other, other),
        };
        let array = super::numpy::write_array(py, tensor.normalised().reinterpret(transport)?)?;
        let mlx_dtype =
            |dtype: DType| module.getattr(if dtype == DType::Bool { "bool_" } else { dtype.name() });
        let created = mlx_dtype(kind).and_then(|kind| call::call2(&module.getattr("array")?, &array, &kind));
        let created = if kind == dtype {
            created
        } else {
            created.and_then(|created| created.call_method1("view", (mlx_dtype(dtype)?,)))
        };
        // The copy must be complete before the source may change.
        let created = created.and_then(|created| {
            call::call1(&module.getattr("eval")?, &created)?;
            Ok(created)
        });
        created.map_err(|error| framework_error(py, "MLX", error))
    }
}

fn export(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = call::method(object, interned!(py, "__dlpack__")).map_err(|error| {
        if error.value(py).to_string().contains("function transformations") {
            return fail(
                ErrorKind::NotATensor,
                "the MLX array has no memory: the function is being traced by compile, grad or vmap",
                "convert the array outside the traced function",
            );
        }
        framework_error(py, "MLX", error)
    })?;
    Ok(owned_tensor::managed(crate::protocols::capsule::take(&capsule)?))
}
