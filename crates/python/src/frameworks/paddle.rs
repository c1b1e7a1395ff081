//! Paddle: reads and creates tensors through the DLPack C exchange API, or through public functions where it is missing.
//!
//! Paddle holds a lock while it releases imported memory, so owners of such memory are dropped later (`deferred_drop`). It
//! ignores DLPack's byte offset (tensorferry never exports one), interprets uint16 as bfloat16 (so uint16 is not in its
//! dtypes), and supports at most nine dimensions.

use super::dlpack_exchange::Exchange;
use super::framework::refuse_leaf;
use super::{Framework, import};
use crate::conversion::object_kinds::{Builtin, RecognisedTensor};
use crate::conversion::read_only::restore_promised_flag;
use crate::conversion::source::Source;
use crate::errors::{Failure, Result, fail, framework_error};
use crate::fast_paths::samples::{self, ExpectedTensor};
use crate::fast_paths::{self, FastPath, Probed, check};
use crate::interpreter::call;
use crate::interpreter::deferred_drop::note_paddle_thread;
use crate::interpreter::objects;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::{Owner, drop_deferred};
use pyo3::prelude::*;
use pyo3::types::PyType;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    Pending, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Tensor};

pub(crate) struct Paddle;

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: "paddle",
    title: "Paddle",
    dtypes: DTypes::of(&[
        DType::Bool,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::UInt8,
        DType::Float16,
        DType::BFloat16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
    ]),
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: true,
    accepts_swapped_bytes: false,
    strides: Strides::Forward,
    alignment: 1,
    max_rank: 9,
    mutability: TargetMutability::Writable,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};

/// The element types that older versions lack.
const RECENT_DTYPES: DTypes =
    DTypes::of(&[DType::UInt32, DType::UInt64, DType::Float8E4M3Fn, DType::Float8E5M2]);

struct State {
    exchange: Option<Exchange>,
    capabilities: TargetCapabilities,
    from_dlpack: Py<PyAny>,
    to_dlpack: Py<PyAny>,
}

static STATE: ForkSafeOnce<State> = ForkSafeOnce::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let paddle = import(py, Builtin::Paddle)?;
        let dlpack = py.import("paddle.utils.dlpack")?;
        let dtypes = if paddle.hasattr("uint32")? {
            CAPABILITIES.dtypes.with(RECENT_DTYPES)
        } else {
            CAPABILITIES.dtypes
        };
        Ok(State {
            capabilities: TargetCapabilities { dtypes, ..CAPABILITIES },
            exchange: fast_paths::probe(py, FastPath::PaddleExchangeApi, || probe_exchange(&paddle, &dlpack)),
            from_dlpack: dlpack.getattr("from_dlpack")?.unbind(),
            to_dlpack: dlpack.getattr("to_dlpack")?.unbind(),
        })
    })
}

/// The C exchange API, compared with the public API in both directions. The sample is imported through DLPack, because
/// `to_tensor` returns a symbolic tensor while a static graph is being built.
fn probe_exchange(paddle: &Bound<'_, PyModule>, dlpack: &Bound<'_, PyModule>) -> Probed<Exchange> {
    let py = paddle.py();
    note_paddle_thread();
    let kind = paddle.getattr("Tensor")?.cast_into::<PyType>().map_err(PyErr::from)?;
    let exchange = Exchange::of(&kind)?;
    let memory = samples::float32()?;
    let expected = ExpectedTensor::of(&memory);
    let imported = dlpack.call_method1("from_dlpack", (&*crate::protocols::capsule::legacy(py, memory)?,))?;
    check(objects::has_type(&imported, &kind), || "a sample is not a paddle.Tensor".to_owned())?;
    // SAFETY: `export` requires an instance of `paddle.Tensor`, whose table it is: the line above has compared the type.
    let exported = unsafe { exchange.export(&imported) }?;
    expected.check(&exported)?;
    drop(owned_tensor::paddle(exported));
    let memory = samples::float32()?;
    let expected = ExpectedTensor::of(&memory);
    let created = exchange.import(py, memory)?;
    let public = crate::protocols::capsule::take(&dlpack.call_method1("to_dlpack", (&created,))?)?;
    expected.check_created(&created, public.data() as usize)?;
    let (found, expected) = (public.dtype(), expected.dtype);
    drop(owned_tensor::paddle(public));
    check(found == expected, || format!("the created tensor has the dtype {found}, expected {expected}"))?;
    Ok(exchange)
}

impl Framework for Paddle {
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        Ok(&state(py)?.capabilities)
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let object = tensor.object();
        let py = object.py();
        note_paddle_thread();
        let requires_grad = !object.getattr(interned!(py, "stop_gradient"))?.is_truthy()?;
        let mut tensor = export(tensor).map_err(|failure| explain(object, failure))?;
        // As in torch: autograd may have saved a non-leaf tensor, so its memory is lent as read-only.
        if requires_grad && !object.getattr(interned!(py, "is_leaf"))?.is_truthy()? {
            tensor.set_read_only();
        }
        restore_promised_flag(&mut tensor);
        let mut source = Source::in_place(object.clone(), "paddle", tensor);
        if requires_grad {
            source.mutability = SourceMutability::Differentiable;
        }
        Ok(source)
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        export(tensor)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        note_paddle_thread();
        // This call does not hold Paddle's lock yet.
        drop_deferred(py);
        let tensor = owned_tensor::deferred(tensor);
        let created = match &state.exchange {
            Some(exchange) => exchange.import(py, tensor),
            None => call::call1(state.from_dlpack.bind(py), &*crate::protocols::capsule::legacy(py, tensor)?)
                .map_err(Failure::from),
        };
        created.map_err(|failure| framework_error(py, "Paddle", failure))
    }

    /// Raises the version counter, as for torch.
    fn begin_write(&self, object: &Bound<'_, PyAny>) -> Result<()> {
        let py = object.py();
        if !object.getattr(interned!(py, "stop_gradient"))?.is_truthy()? {
            refuse_leaf(object, &py.import("paddle")?.getattr("is_grad_enabled")?, "paddle")?;
        }
        call::method(object, interned!(py, "_bump_inplace_version"))?;
        Ok(())
    }
}

fn export(tensor: RecognisedTensor<'_, '_>) -> Result<Tensor<Owner>> {
    let object = tensor.object();
    if tensor.framework() != Builtin::Paddle {
        return Err(crate::errors::not_a_tensor(object));
    }
    let py = object.py();
    let state = state(py)?;
    let tensor = match &state.exchange {
        // SAFETY: `export` requires an instance of `paddle.Tensor`, whose table it is: a `RecognisedTensor` of Paddle is one.
        Some(exchange) => unsafe { exchange.export(object) }?,
        None => crate::protocols::capsule::take(&call::call1(state.to_dlpack.bind(py), object)?)?,
    };
    Ok(owned_tensor::paddle(tensor))
}

/// Replaces Paddle's error for a sparse tensor by one with a remedy.
fn explain(object: &Bound<'_, PyAny>, failure: Failure) -> Failure {
    let sparse = object.call_method0("is_sparse").and_then(|value| value.is_truthy()).unwrap_or(false);
    if sparse {
        return fail(
            ErrorKind::NotATensor,
            "a sparse Paddle tensor has no dense memory",
            "pass x.to_dense()",
        );
    }
    framework_error(object.py(), "Paddle", failure)
}
