//! Objects that convert themselves to a NumPy array through `__array__`.
//!
//! With NumPy 2, `__array__(copy=False)` requests the object's own memory. The result is shared memory, unless the array has no
//! other reference: xarray and others ignore the argument and return a new array. All other results are conversions by the
//! object, which the plan shows as copies.
//!
//! A conversion may change values: a column of integers with nulls becomes float64. The following objects are rejected:
//!
//! - the object states a dtype that is not NumPy's and implements a table protocol;
//! - the array of a conversion has another dtype or shape than the object states;
//! - the shared array has another dtype or shape than an object that states a NumPy dtype.
//!
//! A conversion may be slow (a Dask graph, a file). If the object states its dtype and shape, the plan is made from these, and
//! the conversion runs once, when the plan is executed. `ferry.plan` runs none: what the object does not state is known when its
//! library reads it. `__array__(copy=False)` is called for a plan too, because NumPy's protocol forbids a copy. Three libraries read or
//! compute the values all the same, and are not called: Dask, TensorStore, and xarray for the variable of an opened file.
//!
//! The method is called directly. `numpy.asarray(x, copy=False)` warns if the method lacks the argument and calls it anyway,
//! and it drops the mask of a masked array.

use crate::api::options;
use crate::api::shape::Lengths;
use crate::conversion::object_kinds::MASKED_FACT;
use crate::conversion::source::{Source, SourceMemory};
use crate::errors::{Failure, Result, fail, library_hint, type_name, without_values, wrap_exception};
use crate::frameworks::numpy;
use crate::interpreter::once::interned;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString};
use tensorferry_core::plan::Pending;
use tensorferry_core::{DType, Device, ErrorKind, Layout, Tensor};

/// Methods that tables, and columns with nulls, implement.
const TABLE_PROTOCOLS: [&str; 4] =
    ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_array__", "__dataframe__"];

/// Reads an object that has `__array__`.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    read_or(object, |object| converted(checked(object, call(object, None)?)?))
}

/// As [`read`], for a plan.
pub(crate) fn describe<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    read_or(object, |object| {
        let shape = stated_shape(object)?;
        let shape = shape.as_deref().unwrap_or(&[0]);
        // Every framework has this type, and no element is smaller.
        pending_source(object.clone(), Pending::ConvertUnknown, DType::UInt8, shape)
    })
}

/// Reads an object that shares its memory, or states its dtype and shape; all others with `convert`.
fn read_or<'py>(
    object: &Bound<'py, PyAny>,
    convert: impl FnOnce(&Bound<'py, PyAny>) -> Result<Source<'py>>,
) -> Result<Source<'py>> {
    let is_dask = is_dask_collection(object)?;
    if is_dask {
        check_dask_meta(object)?;
    } else if !is_unread(object)?
        && let Some(source) = share(object)?
    {
        return Ok(source);
    }
    match plan_conversion(object)? {
        Some(source) => Ok(source),
        None if is_dask => Err(fail(
            ErrorKind::NotATensor,
            format!(
                "the shape of the Dask collection {} is unknown before it is computed",
                type_name(object)
            ),
            "pass x.compute(), or call x.compute_chunk_sizes() first",
        )),
        None if is_empty(object)? => Err(without_values(object)),
        None => convert(object),
    }
}

/// The object's own memory, or the new array that it returns instead; `None` if it cannot share, or does not accept the argument.
fn share<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Source<'py>>> {
    let array = match call(object, Some(false)) {
        Ok(array) => array,
        Err(Failure::WithCause(..)) => return Ok(None),
        // `method_error` wraps every `Exception`, so this is a `KeyboardInterrupt` or the like, or the method has returned something else.
        Err(failure) => return Err(failure),
    };
    if numpy::is_unshared(&array)? {
        return converted(checked(object, array)?).map(Some);
    }
    let tensor = numpy::read_array(&array)?;
    if let Some(stated) = numpy_type(object)? {
        check_stated(object, Some(stated), &tensor)?;
    }
    let mut source = Source::in_place(object.clone(), "array", tensor);
    source.through_array = true;
    Ok(Some(source))
}

/// Runs the conversion of an object by its `__array__`.
pub(crate) fn convert(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    numpy::read_array(&checked(object, call(object, None)?)?)
}

/// Calls `__array__` and returns an array without a mask.
fn call<'py>(object: &Bound<'py, PyAny>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let name = interned!(py, "__array__");
    let array = match copy {
        Some(copy) => object.call_method(name, (), Some(&[(interned!(py, "copy"), copy)].into_py_dict(py)?)),
        None => object.call_method0(name),
    }
    .map_err(|error| method_error(object, "__array__", error))?;
    if !numpy::is_array(&array)? {
        return Err(fail(
            ErrorKind::FrameworkFailed,
            format!(
                "the __array__ of {} returned an object of type {}",
                type_name(object),
                type_name(&array)
            ),
            "convert it to a NumPy array first",
        ));
    }
    if !array.hasattr(interned!(py, "mask"))? {
        return Ok(array);
    }
    numpy::unmasked(&array)?.ok_or_else(|| {
        fail(
            ErrorKind::NotATensor,
            MASKED_FACT,
            "pass x[:].filled(value), or x[:].data and x[:].mask separately",
        )
    })
}

/// The error for a method or attribute of the object that raised an exception.
fn method_error(object: &Bound<'_, PyAny>, name: &str, error: PyErr) -> Failure {
    let about = format!("the {name} of {} failed", type_name(object));
    wrap_exception(
        object.py(),
        error,
        ErrorKind::FrameworkFailed,
        &about,
        "convert it to a NumPy array first",
    )
}

/// An attribute of the object; `None` if it is missing.
fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> Result<Option<Bound<'py, PyAny>>> {
    object.getattr_opt(name).map_err(|error| method_error(object, name, error))
}

fn is_dask_collection(object: &Bound<'_, PyAny>) -> Result<bool> {
    let name = "__dask_graph__";
    let Some(graph) = attribute(object, name)? else { return Ok(false) };
    Ok(!graph.call0().map_err(|error| method_error(object, name, error))?.is_none())
}

/// Whether it is a dataset of h5py with a null dataspace.
fn is_empty(object: &Bound<'_, PyAny>) -> Result<bool> {
    let is_h5py = type_name(object).starts_with("h5py.");
    Ok(is_h5py && attribute(object, "shape")?.is_some_and(|shape| shape.is_none()))
}

/// Whether it is a TensorStore, or an object of xarray whose values are in a file.
fn is_unread(object: &Bound<'_, PyAny>) -> Result<bool> {
    if type_name(object).starts_with("tensorstore.") {
        return Ok(true);
    }
    match attribute(object, "_in_memory")? {
        Some(in_memory) if in_memory.extract().is_ok_and(|in_memory: bool| !in_memory) => {}
        _ => return Ok(false),
    }
    // xarray also counts arrays of other libraries, such as JAX, as not in memory.
    Ok(wrapped_values(object)?.is_some_and(|data| type_name(&data).starts_with("xarray.")))
}

/// The values of an object of xarray, which are not read; `None` for other objects.
pub(crate) fn wrapped_values<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
    if attribute(object, "_in_memory")?.is_none() {
        return Ok(None);
    }
    let variable = attribute(object, "variable")?;
    attribute(variable.as_ref().unwrap_or(object), "_data")
}

/// Rejects a Dask collection of arrays other than NumPy's: its `__array__` drops masks and downloads from GPUs.
fn check_dask_meta(object: &Bound<'_, PyAny>) -> Result<()> {
    let meta = match attribute(object, "_meta")? {
        Some(meta) => Some(meta),
        // An xarray object around a Dask array.
        None => attribute(object, "data")?.map(|data| attribute(&data, "_meta")).transpose()?.flatten(),
    };
    match meta {
        Some(meta) if !numpy::is_exact_array(&meta)? => Err(fail(
            ErrorKind::NotATensor,
            format!("the Dask collection {} has chunks of type {}", type_name(object), type_name(&meta)),
            "pass x.compute()",
        )),
        _ => Ok(()),
    }
}

/// The element type of the object's `dtype`, if that is a NumPy dtype.
fn numpy_type(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    match attribute(object, "dtype")? {
        Some(stated) if !stated.is_none() => Ok(numpy::dtype_of(&stated)?),
        _ => Ok(None),
    }
}

/// The element type that a conversion must return, if the object states one. netCDF4 states that of the numbers in the file, some of which
/// it may scale or mask.
fn stated_type(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    // A NumPy dtype has no nulls.
    if let Some(dtype) = numpy_type(object)? {
        return Ok((!type_name(object).starts_with("netCDF4.")).then_some(dtype));
    }
    let stated = attribute(object, "dtype")?.filter(|stated| !stated.is_none());
    if let Some(hint) = table_hint(object) {
        let dtype = stated.map(|stated| format!(" of type {stated}")).unwrap_or_default();
        return Err(fail(
            ErrorKind::NotATensor,
            format!(
                "{}{dtype} does not share its memory as an array, and a conversion may change dtypes and nulls",
                type_name(object)
            ),
            hint,
        ));
    }
    let Some(stated) = stated else { return Ok(None) };
    options::parse_concrete_dtype(Some(&stated)).map_err(|_| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("{} has the dtype {stated}, and a conversion may change its values", type_name(object)),
            match stated.is(object.py().get_type::<PyString>()) {
                true => numpy::NUMBER_THE_STRINGS,
                false => "convert it to a NumPy array first: numpy.asarray(x, dtype=...)",
            },
        )
    })
}

/// The hint for a table or a column with nulls; `None` for other objects.
pub(crate) fn table_hint(object: &Bound<'_, PyAny>) -> Option<String> {
    let has = |name: &str| object.hasattr(name).unwrap_or(false);
    let hint = || match has("to_numpy") {
        true => "fill the nulls and cast to one type, then pass x.to_numpy()".to_owned(),
        false => "pass one column at a time, without nulls, as a NumPy array".to_owned(),
    };
    TABLE_PROTOCOLS.into_iter().any(has).then(|| library_hint(object).unwrap_or_else(hint))
}

/// The object's `shape`, if it is a valid shape.
fn stated_shape(object: &Bound<'_, PyAny>) -> Result<Option<Lengths>> {
    let shape = attribute(object, "shape")?.and_then(|shape| shape.extract::<Lengths>().ok());
    Ok(shape.filter(|shape| shape.iter().all(|&length| length >= 0)))
}

/// A source with a pending conversion; `None` if the object does not state its dtype and shape.
fn plan_conversion<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Source<'py>>> {
    let (Some(dtype), Some(shape)) = (stated_type(object)?, stated_shape(object)?) else { return Ok(None) };
    pending_source(object.clone(), Pending::Convert, dtype, &shape).map(Some)
}

/// A source for the array that a conversion returned.
fn converted(array: Bound<'_, PyAny>) -> Result<Source<'_>> {
    let tensor = numpy::read_array(&array)?;
    pending_source(array, Pending::Convert, tensor.dtype(), tensor.layout().shape())
}

pub(super) fn pending_source<'py>(
    object: Bound<'py, PyAny>,
    pending: Pending,
    dtype: DType,
    shape: &[i64],
) -> Result<Source<'py>> {
    let layout = Layout::dense(dtype.size(), shape)?;
    let memory = SourceMemory::Pending { pending, device: Device::CPU, dtype, layout, reads: None };
    Ok(Source::pending(object, "array", memory))
}

/// The array of a conversion, after a check of its dtype and shape. If other references to its memory exist, the result is a
/// read-only view, so that the memory is copied before a write.
fn checked<'py>(object: &Bound<'py, PyAny>, array: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let is_unshared = numpy::is_unshared(&array)?;
    check_stated(object, stated_type(object)?, &numpy::read_array(&array)?)?;
    if is_unshared {
        return Ok(array);
    }
    let view = array.call_method0(interned!(object.py(), "view"))?;
    view.getattr(interned!(object.py(), "flags"))?.setattr(interned!(object.py(), "writeable"), false)?;
    Ok(view)
}

/// Fails if the array has another dtype or shape than the object states.
fn check_stated(object: &Bound<'_, PyAny>, stated: Option<DType>, tensor: &Tensor<Owner>) -> Result<()> {
    if let Some(stated) = stated
        && stated != tensor.dtype()
    {
        return Err(fail(
            ErrorKind::UnsupportedDType,
            format!(
                "{} has the dtype {stated}, but its __array__ returns {}",
                type_name(object),
                tensor.dtype()
            ),
            "convert it to a NumPy array first: numpy.asarray(x, dtype=...)",
        ));
    }
    if let Some(shape) = stated_shape(object)?
        && *shape != *tensor.layout().shape()
    {
        return Err(fail(
            ErrorKind::FrameworkFailed,
            format!(
                "{} has the shape {:?}, but its __array__ returns the shape {:?}",
                type_name(object),
                &*shape,
                tensor.layout().shape()
            ),
            "convert it to a NumPy array first",
        ));
    }
    Ok(())
}
