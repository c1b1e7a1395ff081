//! Reading a tensor by its framework, by a registered reader or by a protocol.

use crate::arrow::column::{self, ArrowColumn};
use crate::conversion::object_kinds::{Recognised, RecognisedObject, Refusal};
use crate::conversion::recognise::recognise;
use crate::conversion::source::{Source, SourceMemory};
use crate::errors::{Failure, Result, advice, fail, not_a_tensor, type_name};
use crate::frameworks::{numpy, user_frameworks};
use crate::interpreter::once::interned;
use crate::interpreter::owner::Owner;
use crate::protocols::array_method;
use crate::protocols::buffer;
use crate::protocols::image;
use crate::protocols::onnx_runtime;
use crate::protocols::reader;
use pyo3::prelude::*;
use tensorferry_core::plan::Pending;
use tensorferry_core::{DType, ErrorKind, Tensor};

/// Reads a tensor.
#[inline]
pub(crate) fn read<'py>(recognised: RecognisedObject<'_, 'py>) -> Result<Source<'py>> {
    if let Some(tensor) = recognised.tensor() {
        return tensor.framework().framework().read(tensor);
    }
    let object = recognised.object();
    match recognised.kind() {
        Recognised::Registered(index) => read_registered(object, index, read, array_method::read),
        Recognised::Protocol | Recognised::Unknown => {
            reader::read(object, |object| read_method(object, array_method::read))
        }
        Recognised::OrtValue => onnx_runtime::read(object),
        Recognised::ArrowColumn => column::read(object),
        Recognised::Image => image::read(object),
        Recognised::KerasVariable => read(recognise(&object.getattr(interned!(object.py(), "value"))?)?),
        Recognised::Bytes | Recognised::Buffer => buffer::read(object),
        Recognised::Refused(refusal) => read_bare_value(object, refusal),
        Recognised::Tensor(..)
        | Recognised::Leaf
        | Recognised::Container(_)
        | Recognised::Arrow
        | Recognised::Pandas => Err(not_a_tensor(object)),
    }
}

/// As [`read`], for a plan: nothing is done that only the conversion needs.
pub(crate) fn read_for_plan<'py>(recognised: RecognisedObject<'_, 'py>) -> Result<Source<'py>> {
    let object = recognised.object();
    match recognised.kind() {
        Recognised::Image => image::describe(object),
        Recognised::Registered(index) => {
            read_registered(object, index, read_for_plan, array_method::describe)
        }
        Recognised::Protocol | Recognised::Unknown => {
            reader::read(object, |object| read_method(object, array_method::describe))
        }
        _ => read(recognised),
    }
}

/// Reads the value of a quantity whose unit is 1, or of a masked array that masks nothing. All other objects of refused types are errors.
fn read_bare_value<'py>(object: &Bound<'py, PyAny>, refusal: Refusal) -> Result<Source<'py>> {
    let value = match refusal {
        Refusal::Masked => numpy::unmasked(object)?,
        Refusal::Library(types) => types.value_without_unit(object)?,
        _ => None,
    };
    let Some(mut value) = value else { return Err(refusal.error(object)) };
    if recognise(&value)?.kind() == Recognised::Leaf {
        value = numpy::as_array(&value)?;
    }
    let mut source = read(recognise(&value)?)?;
    if let SourceMemory::InPlace(_) = source.memory {
        // The next one may have a unit, a mask, or the value of another framework.
        source.framework = "array";
    }
    Ok(source)
}

/// Reads an object through its `__array__`. An array of xarray is refused where its values are, such as a quantity.
fn read_method<'py>(
    object: &Bound<'py, PyAny>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> Result<Source<'py>>,
) -> Result<Source<'py>> {
    let Some((values, refusal)) = refused_values(object)? else { return read(object) };
    read_bare_value(&values, refusal).map_err(|failure| match failure {
        Failure::Ferry(error) => {
            let hint = advice(&error).unwrap_or_default().replace(" x.", " x.data.");
            error.with_advice(hint).into()
        }
        other => other,
    })
}

/// The values of an object of xarray, and why they are refused; `None` for other values and objects.
pub(crate) fn refused_values<'py>(
    object: &Bound<'py, PyAny>,
) -> Result<Option<(Bound<'py, PyAny>, Refusal)>> {
    let Some(values) = array_method::wrapped_values(object)? else { return Ok(None) };
    let kind = recognise(&values)?.kind();
    Ok(if let Recognised::Refused(refusal) = kind { Some((values, refusal)) } else { None })
}

/// Reads a tensor of a registered framework, whose reader returns another object to read.
fn read_registered<'py>(
    object: &Bound<'py, PyAny>,
    index: usize,
    read: impl FnOnce(RecognisedObject<'_, 'py>) -> Result<Source<'py>>,
    read_method: impl FnOnce(&Bound<'py, PyAny>) -> Result<Source<'py>>,
) -> Result<Source<'py>> {
    let given = user_frameworks::call_read(object, index)?;
    let source = if given.is(object) {
        reader::read(object, read_method)?
    } else {
        let recognised = recognise(&given)?;
        match recognised.kind() {
            Recognised::Registered(_) => return Err(user_frameworks::nested_read_error(index)?),
            _ => read(recognised)?,
        }
    };
    user_frameworks::relabel_source(source, object, index)
}

/// The memory of a source that can be read in place.
#[inline(always)]
pub(crate) fn require_in_place(source: Source<'_>) -> Result<Tensor<Owner>> {
    match source.memory {
        SourceMemory::InPlace(tensor) => Ok(tensor),
        SourceMemory::Pending { .. } => Err(fail(
            ErrorKind::NotATensor,
            format!("the values of the {} tensor are not in memory yet", source.framework),
            "leave out copy=False to allow the copy",
        )),
    }
}

/// The values of a source whose framework has work pending, such as a conjugation or a gather from several devices.
///
/// `memory` is that of the source. An Arrow column is gathered as `dtype`, in one pass. Other sources have their own element type.
pub(crate) fn materialise(
    object: &Bound<'_, PyAny>,
    memory: &SourceMemory,
    dtype: DType,
) -> Result<Tensor<Owner>> {
    let &SourceMemory::Pending { pending, dtype: stated, ref layout, .. } = memory else {
        return Err(not_a_tensor(object));
    };
    let recognised = recognise(object)?;
    let tensor = match recognised.tensor() {
        Some(tensor) => tensor.framework().framework().materialise(tensor, pending)?,
        _ if let Ok(column) = object.cast::<ArrowColumn>() => return column.get().gather(object.py(), dtype),
        _ if pending == Pending::Download => reader::download(object)?,
        _ if recognised.kind() == Recognised::Image => image::decode(object)?,
        _ if pending == Pending::Convert => array_method::convert(object)?,
        _ => return Err(not_a_tensor(object)),
    };
    if (tensor.dtype(), tensor.layout().shape()) != (stated, layout.shape()) {
        let (found, shape) = (tensor.dtype(), tensor.layout().shape());
        return Err(fail(
            ErrorKind::InvalidTensor,
            format!(
                "{} states {stated} of shape {:?}, and its values are {found} of shape {shape:?}",
                type_name(object),
                layout.shape()
            ),
            "pass a plain copy of the tensor, and report this to the library that made it",
        ));
    }
    Ok(tensor)
}
