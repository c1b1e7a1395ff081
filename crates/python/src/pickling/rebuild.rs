//! The rebuild function, which every stream names. Its name and the meaning of its arguments never change: a new format has a new
//! version.

use super::description::{damaged, parse_layout, parse_type};
use super::load_options;
use super::payload::Payload;
use super::stream_format::{FORMAT_VERSION, SPARSE_START, SPARSE_TENSOR};
use crate::errors::{Failure, Result, fail, type_name};
use crate::frameworks::builtin_frameworks;
use crate::interpreter::owner::{Buffer, Owner};
use crate::sparse;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;
use tensorferry_core::{Access, Device, ErrorKind, Tensor, emergency_pool};

/// The payload of a buffer. The arguments are those of format version 1.
#[pyfunction]
#[pyo3(signature = (version, buffer=None, dtype=None, shape=None, order=None, *_newer))]
pub(crate) fn _rebuild<'py>(
    py: Python<'py>,
    version: &Bound<'py, PyAny>,
    buffer: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    shape: Option<&Bound<'py, PyAny>>,
    order: Option<&Bound<'py, PyAny>>,
    _newer: &Bound<'py, PyTuple>,
) -> Result<Bound<'py, PyAny>> {
    if version.extract::<u32>().ok() != Some(FORMAT_VERSION) {
        return Err(unknown_version(version));
    }
    if let Some(Ok(name)) = dtype.map(|dtype| dtype.extract::<&str>()) {
        match (name, shape) {
            (SPARSE_START, _) => {
                load_options::enter_sparse_tensor();
                return Ok(py.None().into_bound(py));
            }
            (SPARSE_TENSOR, Some(tensor)) => return complete_sparse(tensor),
            _ => {}
        }
    }
    let (Some(buffer), Some(dtype), Some(shape)) = (buffer, dtype, shape) else {
        return Err(damaged("a payload of the pickle lacks its bytes, its element type or its shape"));
    };
    emergency_pool::check_headroom()?;
    let (dtype, byte_order) = match dtype.extract::<&str>() {
        Ok(name) => parse_type(name)?,
        Err(_) => return Err(damaged(format!("the element type of a payload is {}", type_name(dtype)))),
    };
    let shape: SmallVec<[i64; 8]> = numbers(shape, "the shape")?;
    let order: Option<SmallVec<[usize; 8]>> = order.map(|order| numbers(order, "the order")).transpose()?;
    let layout = parse_layout(dtype, &shape, order.as_deref())?;
    let exported = Buffer::export(buffer).map_err(|_| {
        damaged(format!("the bytes of a payload are {}, which is not a buffer", type_name(buffer)))
    })?;
    let view = exported.view();
    // SAFETY: `PyBuffer_IsContiguous` requires a struct that `PyObject_GetBuffer` filled, which `Buffer` holds, and one of the letters
    // that it documents.
    let is_contiguous = unsafe { ffi::PyBuffer_IsContiguous(view, b'A' as std::ffi::c_char) } == 1;
    if !is_contiguous {
        let fact = format!("the buffer of a payload of shape {shape:?} and type {dtype} is not contiguous");
        return Err(fail(ErrorKind::InvalidTensor, fact, "pass the buffers as they were sent"));
    }
    if view.len as usize != layout.bytes() {
        return Err(damaged(format!(
            "a payload of shape {shape:?} and type {dtype} needs {} bytes, and its buffer has {}",
            layout.bytes(),
            view.len
        )));
    }
    let access = if view.readonly == 0 { Access::ReadWrite } else { Access::ReadOnly };
    let data = view.buf.cast();
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives. The layout has no gaps and as many bytes as the
    // buffer, as was compared, so its extent is the buffer. The exporter keeps the buffer until the release, which the owner
    // holds, and its `readonly` says whether it may be written.
    let tensor = unsafe {
        Tensor::new(data, dtype, layout, Device::CPU, byte_order, access, Owner::Buffer(exported))
    }?;
    Ok(Payload::of_buffer(py, tensor)?.into_any())
}

/// A sparse tensor whose arrays were read, in the framework that the reader chose if that one has sparse tensors.
fn complete_sparse<'py>(tensor: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = tensor.py();
    if !load_options::leave_sparse_tensor() {
        return Err(damaged("a sparse tensor of the pickle ends before it begins"));
    }
    let target = load_options::current().target.map(|target| target.capabilities(py)).transpose()?;
    match target.and_then(|target| builtin_frameworks::find(target.framework)) {
        Some(entry) if entry.has_sparse => {
            sparse::convert_tensor(tensor, PyString::new(py, entry.name).as_any(), None)
        }
        _ => Ok(tensor.clone()),
    }
}

fn numbers<'py, T: FromPyObjectOwned<'py>, const N: usize>(
    given: &Bound<'py, PyAny>,
    what: &str,
) -> Result<SmallVec<[T; N]>>
where
    [T; N]: smallvec::Array<Item = T>,
{
    let tuple = given
        .cast::<PyTuple>()
        .map_err(|_| damaged(format!("{what} of a payload is {}, not a tuple", type_name(given))))?;
    let numbers: Option<SmallVec<[T; N]>> = tuple.iter().map(|item| item.extract::<T>().ok()).collect();
    numbers.ok_or_else(|| damaged(format!("{what} of a payload is {tuple}, which has items out of range")))
}

fn unknown_version(version: &Bound<'_, PyAny>) -> Failure {
    let fact = format!(
        "the pickle has tensors in format version {version}, and tensorferry {} reads version {FORMAT_VERSION}",
        env!("CARGO_PKG_VERSION")
    );
    fail(
        ErrorKind::InvalidTensor,
        fact,
        "upgrade to the version that wrote it: pip install --upgrade tensorferry",
    )
}
