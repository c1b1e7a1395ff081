//! The reducer: a tensor becomes a payload and the arguments of its call, or is left to its own reducer.

use super::framework_state::FrameworkState;
use super::payload::Payload;
use super::payload_plans;
use super::stream_format::{FORMAT_VERSION, SPARSE_START, SPARSE_TENSOR, rebuild_function};
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::reading::{materialise, read};
use crate::conversion::recognise::recognise;
use crate::conversion::source::SourceMemory;
use crate::errors::{Failure, Result};
use crate::interpreter::once::{ForkSafeOnce, interned};
use crate::sparse;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple, PyType};
use tensorferry_core::plan::{Pending, SourceMutability};
use tensorferry_core::{Device, ErrorKind, emergency_pool};

/// The protocol with which tensors that are left to their own reducers are reduced, where the reducer is not told the protocol of
/// the stream. Every stream can hold the result.
const ANY_STREAM_PROTOCOL: u32 = 4;

/// The reducer of tensors: what `__reduce_ex__` returns for other objects.
#[pyfunction]
pub(crate) fn _reduce<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    emergency_pool::check_headroom()?;
    let recognised = recognise(object)?;
    let builtin = match recognised.kind() {
        Recognised::Tensor(builtin, _) => Some(builtin),
        _ => None,
    };
    let source = match read(recognised) {
        Ok(source) => source,
        // A tensor without dense memory: sparse, quantised, meta, of strings. Freed memory is an invalid tensor.
        Err(Failure::Ferry(error))
            if !matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::InvalidTensor) =>
        {
            return match sparse::is_sparse(object)? {
                true => reduce_sparse(object),
                false => own_reduction(object, builtin),
            };
        }
        Err(failure) => return Err(failure),
    };
    let requires_grad = source.mutability == SourceMutability::Differentiable;
    let state = FrameworkState::of(object, builtin, requires_grad)?;
    let (tensor, mutability) = match source.memory {
        SourceMemory::InPlace(tensor) => (tensor, source.mutability),
        SourceMemory::Pending { pending: Pending::Gather | Pending::Convert | Pending::Download, .. } => {
            return own_reduction(object, builtin);
        }
        SourceMemory::Pending { .. } if payload_plans::are_collected() => {
            payload_plans::add(Payload::plan(&source)?.1)?;
            return Ok((py.get_type::<PyInt>(), ()).into_pyobject(py)?.into_any());
        }
        SourceMemory::Pending { dtype, .. } => {
            (materialise(object, &source.memory, dtype)?, SourceMutability::Temporary)
        }
    };
    let device = tensor.device();
    let payload = Payload::of_tensor(py, tensor, source.framework, builtin, mutability)?;
    let arguments = call_arguments(py, source.framework, builtin, device, &state)?;
    Ok((payload, arguments).into_pyobject(py)?.into_any())
}

/// The arguments of the payload's call.
fn call_arguments<'py>(
    py: Python<'py>,
    framework: &str,
    builtin: Option<Builtin>,
    device: Device,
    state: &FrameworkState<'py>,
) -> Result<Bound<'py, PyTuple>> {
    let device = (!device.is_host() || device.index != 0).then(|| device.to_string());
    if state.flags == 0
        && state.attributes.is_none()
        && device.is_none()
        && let Some(builtin) = builtin
    {
        // One object per framework, which pickle memoises.
        static NAME_ONLY: [ForkSafeOnce<Py<PyTuple>>; 7] = [const { ForkSafeOnce::new() }; 7];
        let arguments = NAME_ONLY[builtin as usize]
            .get_or_try_init(py, || PyTuple::new(py, [framework]).map(Bound::unbind))?;
        return Ok(arguments.bind(py).clone());
    }
    Ok(match &state.attributes {
        None => (framework, device, state.flags).into_pyobject(py)?,
        Some(attributes) => (framework, device, state.flags, attributes).into_pyobject(py)?,
    })
}

/// The reduction by the object's own class.
fn own_reduction<'py>(object: &Bound<'py, PyAny>, builtin: Option<Builtin>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    // An array of objects has no buffers, and may contain itself: pickle must meet the array before its items.
    let has_objects = || -> PyResult<bool> { object.getattr("dtype")?.getattr("hasobject")?.is_truthy() };
    if builtin != Some(Builtin::Numpy) || has_objects()? {
        return Ok(object.call_method1(interned!(py, "__reduce_ex__"), (ANY_STREAM_PROTOCOL,))?);
    }
    // An array of NumPy has out-of-band buffers from protocol 5 on. Only an object is told the protocol, so the array is
    // wrapped in one, and taken out of a tuple by a function of the standard library.
    static FIRST_ITEM: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let first_item = FIRST_ITEM.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("operator")?.getattr("itemgetter")?.call1((0,))?.unbind())
    })?;
    let wrapped = Bound::new(py, OwnReduction(object.clone().unbind()))?;
    Ok((first_item.bind(py), ((wrapped,),)).into_pyobject(py)?.into_any())
}

/// The reduction of a sparse tensor: its own, between two calls of the rebuild function. The first keeps the frameworks of its arrays, and
/// the second converts the complete tensor to the framework that the reader chose.
fn reduce_sparse<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let rebuild = rebuild_function(py)?;
    let start = Bound::new(py, SparseStart)?;
    let wrapped = Bound::new(py, OwnReduction(object.clone().unbind()))?;
    let arguments = (FORMAT_VERSION, start, SPARSE_TENSOR, wrapped);
    Ok((rebuild, arguments).into_pyobject(py)?.into_any())
}

/// The first of the two calls. Each sparse tensor has an object of its own, because pickle does not repeat the call of an object that it has
/// memoised.
#[pyclass(frozen, module = "tensorferry._native", name = "_SparseStart")]
pub(crate) struct SparseStart;

#[pymethods]
impl SparseStart {
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let arguments = (FORMAT_VERSION, py.None(), SPARSE_START);
        Ok((rebuild_function(py)?, arguments).into_pyobject(py)?.into_any())
    }
}

/// An object that is reduced as another one.
#[pyclass(frozen, module = "tensorferry._native", name = "_OwnReduction")]
pub(crate) struct OwnReduction(Py<PyAny>);

#[pymethods]
impl OwnReduction {
    /// The class of the object, which pickle compares with that of the reduction.
    #[getter]
    fn __class__<'py>(&self, py: Python<'py>) -> Bound<'py, PyType> {
        self.0.bind(py).get_type()
    }

    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyAny>> {
        self.0.bind(py).call_method1(interned!(py, "__reduce_ex__"), (protocol,))
    }
}
