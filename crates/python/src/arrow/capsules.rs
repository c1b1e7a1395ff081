//! The capsules of the Arrow PyCapsule interface.

use crate::errors::{Result, fail, type_name, wrap_exception};
use crate::interpreter::objects;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CStr;
use tensorferry_arrow::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use tensorferry_arrow::{Array, ArrayStream, Field, Owned, Releasable};
use tensorferry_core::ErrorKind;

/// Reads all chunks of an object, and the type that they have in common.
pub(super) fn read(object: &Bound<'_, PyAny>) -> Result<(Field, Vec<Array>)> {
    if object.hasattr("__arrow_c_array__")? {
        return read_array(object);
    }
    let mut stream = open_stream(object)?;
    let py = object.py();
    let mut chunks = Vec::new();
    loop {
        // The producer may compute the next chunk.
        match py.detach(|| stream.next_array())? {
            Some(chunk) => chunks.push(chunk),
            None => return Ok((stream.field().clone(), chunks)),
        }
        py.check_signals()?;
    }
}

fn read_array(object: &Bound<'_, PyAny>) -> Result<(Field, Vec<Array>)> {
    let capsules = call(object, "__arrow_c_array__")?;
    let Ok((schema, array)) = capsules.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Err(not_capsules(object, "__arrow_c_array__"));
    };
    let schema = take::<ArrowSchema>(object, &schema, c"arrow_schema")?;
    let array = take::<ArrowArray>(object, &array, c"arrow_array")?;
    // SAFETY: the interface requires of a producer what `from_schema` and `Array::new` require: pointers that are null or valid, and
    // buffers of the sizes that the type and the lengths need, which do not change.
    unsafe {
        let field = Field::from_schema(&schema)?;
        let array = Array::new(array, &field)?;
        Ok((field, vec![array]))
    }
}

/// Opens the stream of an object. Nothing but its schema is read.
pub(super) fn open_stream(object: &Bound<'_, PyAny>) -> Result<ArrayStream> {
    let capsule = call(object, "__arrow_c_stream__")?;
    let stream = take::<ArrowArrayStream>(object, &capsule, c"arrow_array_stream")?;
    // SAFETY: the interface requires of a producer what `ArrayStream::new` requires.
    Ok(unsafe { ArrayStream::new(stream) }?)
}

fn call<'py>(object: &Bound<'py, PyAny>, method: &str) -> Result<Bound<'py, PyAny>> {
    object.call_method1(method, PyTuple::empty(object.py())).map_err(|error| {
        let about = format!("the {method} of {} failed", type_name(object));
        let hint = "check that the object was not consumed before, and holds columns that Arrow can express";
        wrap_exception(object.py(), error, ErrorKind::FrameworkFailed, &about, hint)
    })
}

fn not_capsules(object: &Bound<'_, PyAny>, method: &str) -> crate::errors::Failure {
    fail(
        ErrorKind::InvalidTensor,
        format!("the {method} of {} did not return Arrow capsules", type_name(object)),
        "report this to the library that made the object",
    )
}

/// Moves the struct out of a capsule, which may be destroyed afterwards.
fn take<T: Releasable>(
    object: &Bound<'_, PyAny>,
    capsule: &Bound<'_, PyAny>,
    name: &CStr,
) -> Result<Owned<T>> {
    let Some(pointer) = objects::capsule_pointer(capsule, name) else {
        return Err(not_capsules(object, "Arrow method"));
    };
    // SAFETY: a capsule of this name holds a struct of this type (the Arrow PyCapsule interface). The GIL is held, so that no other
    // consumer takes it meanwhile, and the capsule's destructor leaves a released struct alone.
    Ok(unsafe { Owned::take(pointer.cast::<T>().as_ptr()) }?)
}
