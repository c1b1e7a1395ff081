//! The capsules of the Arrow PyCapsule interface.

use crate::errors::{Result, fail, type_name, wrap_exception};
use crate::interpreter::objects;
use crate::interpreter::type_cache::Cache;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CStr;
use tensorferry_arrow::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use tensorferry_arrow::{Array, ArrayStream, Field, Owned, Releasable};
use tensorferry_core::ErrorKind;

/// What an object exports.
pub(super) enum Opened {
    /// One array, and its type.
    Array(Field, Array),
    /// A stream of which nothing but the schema is read.
    Stream(ArrayStream),
}

/// Calls the method of an object: `__arrow_c_array__` if it has one, otherwise `__arrow_c_stream__`.
pub(super) fn open(object: &Bound<'_, PyAny>) -> Result<Opened> {
    if has_array_method(object)? {
        let (field, array) = read_array(object)?;
        return Ok(Opened::Array(field, array));
    }
    let capsule = call(object, "__arrow_c_stream__")?;
    let stream = take::<ArrowArrayStream>(object, &capsule, c"arrow_array_stream")?;
    // The producer may run a query to know its types.
    // SAFETY: the interface requires of a producer what `ArrayStream::new` requires.
    let stream = object.py().detach(|| unsafe { ArrayStream::new(stream) });
    Ok(Opened::Stream(stream?))
}

/// Whether an object is a stream: what has no length, and no array as a whole, is not there a second time.
pub(super) fn can_be_read_once(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(!has_array_method(object)? && !object.get_type().hasattr("__len__")?)
}

/// Reads the type of a stream, and nothing of the stream itself.
pub(super) fn read_schema(object: &Bound<'_, PyAny>) -> Result<Field> {
    const METHOD: &str = "__arrow_c_schema__";
    let with_schema = if object.hasattr(METHOD)? {
        object.clone()
    } else {
        match object.getattr_opt("schema")? {
            Some(schema) if schema.hasattr(METHOD)? => schema,
            _ => {
                return Err(fail(
                    ErrorKind::InvalidArgument,
                    format!(
                        "a stream of type {} does not tell its schema, and a plan does not read it",
                        type_name(object)
                    ),
                    "plan one of its batches",
                ));
            }
        }
    };
    let capsule = call(&with_schema, METHOD)?;
    let schema = take::<ArrowSchema>(object, &capsule, c"arrow_schema")?;
    // SAFETY: the interface requires of a producer what `from_schema` requires: pointers that are null or valid.
    Ok(unsafe { Field::from_schema(&schema) }?)
}

/// Whether a type has `__arrow_c_array__`.
static HAS_ARRAY_METHOD: Cache<bool> = Cache::new();

/// Whether the type of an object has `__arrow_c_array__`. It is looked up once for each type, because the `__getattr__` of polars
/// takes longer for a name that does not exist than a conversion.
fn has_array_method(object: &Bound<'_, PyAny>) -> Result<bool> {
    let kind = object.get_type();
    if let Some(known) = HAS_ARRAY_METHOD.get(object.py(), kind.as_ptr()) {
        return Ok(known);
    }
    let has_method = kind.hasattr("__arrow_c_array__")?;
    HAS_ARRAY_METHOD.put(&kind, has_method);
    Ok(has_method)
}

/// Reads all chunks of an object, and the type that they have in common.
pub(super) fn read(object: &Bound<'_, PyAny>) -> Result<(Field, Vec<Array>)> {
    let mut stream = match open(object)? {
        Opened::Array(field, array) => return Ok((field, vec![array])),
        Opened::Stream(stream) => stream,
    };
    let py = object.py();
    let mut chunks = Vec::new();
    loop {
        // The producer may compute the next chunk.
        match py.detach(|| stream.next_array())? {
            Some(chunk) => chunks.push(chunk),
            None => {
                let field = stream.field().clone();
                py.detach(|| drop(stream));
                return Ok((field, chunks));
            }
        }
        py.check_signals()?;
    }
}

fn read_array(object: &Bound<'_, PyAny>) -> Result<(Field, Array)> {
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
        Ok((field, array))
    }
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
