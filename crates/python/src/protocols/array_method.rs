//! Objects that convert themselves to a NumPy array through `__array__`.
//!
//! NumPy 2's protocol asks for the object's own memory with `__array__(copy=False)`. An array that comes back is a
//! share, unless no other reference reaches its memory: xarray and others ignore the argument. Everything else is a
//! conversion by the object, which the plan shows as a copy.
//!
//! A conversion may change values: a column of integers with nulls becomes float64. An object is refused where that is
//! possible: its type is not a NumPy type and it has a protocol of tables, or its array has another type than it states.
//! A share is refused too if the object states a NumPy type, and the array has another type or shape than the object.
//!
//! A conversion may take long (a Dask graph, a file). Where the object states its type and shape, the plan is made from
//! these, and the conversion runs once, when the tensor is carried.
//!
//! The method is called directly. `numpy.asarray(x, copy=False)` warns about a method without the argument and then
//! calls it anyway, and it drops the mask of a masked array.

use crate::api::options;
use crate::api::shape::Lengths;
use crate::conversion::kinds::Refusal;
use crate::conversion::source::{Memory, Source};
use crate::errors::{Failure, Result, fail, foreign, type_name};
use crate::frameworks::numpy;
use crate::interpreter::owner::Owner;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use tensorferry_core::plan::{Pending, SourceMutability};
use tensorferry_core::{DType, Device, ErrorKind, Layout, Tensor};

/// What tables and arrays with nulls have.
const TABLE_PROTOCOLS: [&str; 4] =
    ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_array__", "__dataframe__"];

/// Reads an object that has `__array__`.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    // Dask answers `copy=False` with a warning and computes.
    if is_dask_collection(object)? {
        check_dask_meta(object)?;
        return planned(object)?.ok_or_else(|| {
            fail(
                ErrorKind::NotATensor,
                format!("the shape of the Dask collection {} is not known yet", type_name(object)),
                "pass x.compute(), or call x.compute_chunk_sizes() first",
            )
        });
    }
    match call(object, Some(false)) {
        Ok(array) if !numpy::is_unshared(&array)? => {
            let tensor = numpy::read_array(&array)?;
            if let Some(stated) = numpy_type(object)? {
                check_stated(object, Some(stated), &tensor)?;
            }
            let mut source = Source::here(object.clone(), "array", tensor);
            source.through_array = true;
            Ok(source)
        }
        Ok(array) => converted(checked(object, array)?),
        // A request to stop; `failed` has turned errors into ours.
        Err(stop @ Failure::Python(_)) => Err(stop),
        // It cannot share, or does not know the argument.
        Err(_) => match planned(object)? {
            Some(source) => Ok(source),
            None => converted(checked(object, call(object, None)?)?),
        },
    }
}

/// The values of an object, converted by itself.
pub(crate) fn convert(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    numpy::read_array(&checked(object, call(object, None)?)?)
}

/// Calls `__array__` and returns an array without a mask.
fn call<'py>(object: &Bound<'py, PyAny>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let name = intern!(py, "__array__");
    let array = match copy {
        Some(copy) => object.call_method(name, (), Some(&[(intern!(py, "copy"), copy)].into_py_dict(py)?)),
        None => object.call_method0(name),
    }
    .map_err(|error| failed(object, "__array__", error))?;
    if !numpy::is_array(&array)? {
        return Err(fail(
            ErrorKind::FrameworkFailed,
            format!(
                "the __array__ of {} returned an object of type {}",
                type_name(object),
                type_name(&array)
            ),
            "make a NumPy array of it first",
        ));
    }
    if array.hasattr(intern!(py, "mask"))? {
        let (fact, hint) = Refusal::Masked.words();
        return Err(fail(ErrorKind::NotATensor, fact, hint));
    }
    Ok(array)
}

fn failed(object: &Bound<'_, PyAny>, name: &str, error: PyErr) -> Failure {
    let about = format!("the {name} of {} failed", type_name(object));
    foreign(object.py(), error, ErrorKind::FrameworkFailed, &about, "make a NumPy array of it first")
}

/// An attribute of the object; `None` where it does not have it.
fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> Result<Option<Bound<'py, PyAny>>> {
    object.getattr_opt(name).map_err(|error| failed(object, name, error))
}

fn is_dask_collection(object: &Bound<'_, PyAny>) -> Result<bool> {
    let name = "__dask_graph__";
    let Some(graph) = attribute(object, name)? else { return Ok(false) };
    Ok(!graph.call0().map_err(|error| failed(object, name, error))?.is_none())
}

/// Refuses a Dask collection of other arrays than NumPy's: its `__array__` drops masks and downloads from GPUs.
fn check_dask_meta(object: &Bound<'_, PyAny>) -> Result<()> {
    let meta = match attribute(object, "_meta")? {
        Some(meta) => Some(meta),
        // xarray's, around a Dask array.
        None => attribute(object, "data")?.map(|data| attribute(&data, "_meta")).transpose()?.flatten(),
    };
    match meta {
        Some(meta) if !numpy::is_plain_array(&meta)? => Err(fail(
            ErrorKind::NotATensor,
            format!("the Dask collection {} is of type {}", type_name(object), type_name(&meta)),
            "pass x.compute()",
        )),
        _ => Ok(()),
    }
}

/// The NumPy type that an object states, if it does.
fn numpy_type(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    match attribute(object, "dtype")? {
        Some(stated) if !stated.is_none() => Ok(numpy::dtype_of(&stated)?),
        _ => Ok(None),
    }
}

/// The type that the array of an object must have, if the object states one.
fn stated_type(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    // A NumPy type has no nulls.
    if let Some(dtype) = numpy_type(object)? {
        return Ok(Some(dtype));
    }
    let stated = attribute(object, "dtype")?.filter(|stated| !stated.is_none());
    if let Some(hint) = table_hint(object) {
        let dtype = stated.map(|stated| format!(" of type {stated}")).unwrap_or_default();
        return Err(fail(
            ErrorKind::NotATensor,
            format!(
                "{}{dtype} does not share its memory as an array, and a conversion may change types and nulls",
                type_name(object)
            ),
            hint,
        ));
    }
    let Some(stated) = stated else { return Ok(None) };
    options::plain_dtype(Some(&stated)).map_err(|_| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("{} has values of type {stated}, and a conversion may change them", type_name(object)),
            "convert it to a NumPy array yourself: numpy.asarray(x, dtype=...)",
        )
    })
}

/// What to do with a table or an array with nulls; `None` for any other object.
pub(crate) fn table_hint(object: &Bound<'_, PyAny>) -> Option<&'static str> {
    let has = |name: &str| object.hasattr(name).unwrap_or(false);
    TABLE_PROTOCOLS.into_iter().any(has).then(|| match has("to_numpy") {
        true => "fill the nulls and cast to one type, then pass x.to_numpy()",
        false => "pass one column at a time, without nulls, as a NumPy array",
    })
}

/// The shape that an object states, if it is one.
fn stated_shape(object: &Bound<'_, PyAny>) -> Result<Option<Lengths>> {
    let shape = attribute(object, "shape")?.and_then(|shape| shape.extract::<Lengths>().ok());
    Ok(shape.filter(|shape| shape.iter().all(|&length| length >= 0)))
}

/// An object whose conversion is still to run; `None` where it does not state its type and shape.
fn planned<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Source<'py>>> {
    let (Some(dtype), Some(shape)) = (stated_type(object)?, stated_shape(object)?) else { return Ok(None) };
    later(object.clone(), dtype, &shape).map(Some)
}

/// An array that the object has made.
fn converted(array: Bound<'_, PyAny>) -> Result<Source<'_>> {
    let tensor = numpy::read_array(&array)?;
    later(array, tensor.dtype(), tensor.layout().shape())
}

fn later<'py>(object: Bound<'py, PyAny>, dtype: DType, shape: &[i64]) -> Result<Source<'py>> {
    let layout = Layout::dense(dtype.size(), shape)?;
    Ok(Source {
        object,
        framework: "array",
        memory: Memory::Later { pending: Pending::Convert, device: Device::CPU, dtype, layout },
        mutability: SourceMutability::Mutable,
        requires_grad: false,
        through_array: false,
        streams: None,
    })
}

/// The array of a conversion, once its type and shape are those that the object states. It is read-only where somebody else
/// may see its memory, so that it is copied before anybody writes it.
fn checked<'py>(object: &Bound<'py, PyAny>, array: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let is_unshared = numpy::is_unshared(&array)?;
    check_stated(object, stated_type(object)?, &numpy::read_array(&array)?)?;
    if is_unshared {
        return Ok(array);
    }
    let view = array.call_method0(intern!(object.py(), "view"))?;
    view.getattr(intern!(object.py(), "flags"))?.setattr(intern!(object.py(), "writeable"), false)?;
    Ok(view)
}

/// Refuses an array of another type or shape than the object states.
fn check_stated(object: &Bound<'_, PyAny>, stated: Option<DType>, tensor: &Tensor<Owner>) -> Result<()> {
    if let Some(stated) = stated
        && stated != tensor.dtype()
    {
        return Err(fail(
            ErrorKind::UnsupportedDType,
            format!(
                "{} has values of type {stated}, and its __array__ converts them to {}",
                type_name(object),
                tensor.dtype()
            ),
            "convert it to a NumPy array yourself: numpy.asarray(x, dtype=...)",
        ));
    }
    if let Some(shape) = stated_shape(object)?
        && *shape != *tensor.layout().shape()
    {
        return Err(fail(
            ErrorKind::FrameworkFailed,
            format!(
                "{} has the shape {:?}, and its __array__ returns the shape {:?}",
                type_name(object),
                &*shape,
                tensor.layout().shape()
            ),
            "make a NumPy array of it first",
        ));
    }
    Ok(())
}
