//! The capsules of the Arrow PyCapsule interface.

use super::device_memory;
use crate::errors::{Failure, Result, fail, type_name, wrap_exception};
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::type_cache::Cache;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ffi::CStr;
use std::fmt::Display;
use tensorferry_arrow::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowSchema};
use tensorferry_arrow::{Array, ArrayStream, DeviceArray, Field, Owned, Releasable};
use tensorferry_core::ErrorKind;

/// What an object exports.
pub(super) enum Opened {
    /// One array, and its type.
    Array(Field, Array),
    /// A stream of which nothing but the schema is read.
    Stream(ArrayStream),
}

/// A method of the interface.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Array,
    Stream,
    DeviceArray,
}

impl Method {
    fn name(self, py: Python<'_>) -> &Bound<'_, PyString> {
        match self {
            Self::Array => interned!(py, "__arrow_c_array__"),
            Self::Stream => interned!(py, "__arrow_c_stream__"),
            Self::DeviceArray => interned!(py, "__arrow_c_device_array__"),
        }
    }
}

/// The methods of the interface that a type has.
#[derive(Clone, Copy, Debug)]
struct Methods {
    array: bool,
    stream: bool,
    device: bool,
}

impl Methods {
    /// The methods of an object's type. They are looked up once for each type, because the `__getattr__` of polars takes longer for
    /// a name that does not exist than a conversion.
    fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        static KNOWN: Cache<Methods> = Cache::new();
        let (py, kind) = (object.py(), object.get_type());
        if let Some(known) = KNOWN.get(py, kind.as_ptr()) {
            return Ok(known);
        }
        let methods = Self {
            array: kind.hasattr(Method::Array.name(py))?,
            stream: kind.hasattr(Method::Stream.name(py))?,
            device: kind.hasattr(Method::DeviceArray.name(py))?,
        };
        KNOWN.put(&kind, methods);
        Ok(methods)
    }
}

/// What the method of an object returns.
enum Exported {
    Array(Field, Array),
    Stream(Owned<ArrowArrayStream>),
}

/// Calls the method of an object, and reads the schema of a stream.
pub(super) fn open(object: &Bound<'_, PyAny>) -> Result<Opened> {
    match export(object)? {
        Exported::Array(field, array) => Ok(Opened::Array(field, array)),
        Exported::Stream(stream) => {
            // The producer may run a query to know its types.
            // SAFETY: the interface requires of a producer what `ArrayStream::new` requires.
            let stream = object.py().detach(|| unsafe { ArrayStream::new(stream) });
            Ok(Opened::Stream(stream?))
        }
    }
}

/// Calls the method of an object: `__arrow_c_array__` if it has one, otherwise `__arrow_c_stream__`.
///
/// An object without them, or whose memory is on a GPU so that they raise, is read through `__arrow_c_device_array__`.
fn export(object: &Bound<'_, PyAny>) -> Result<Exported> {
    let py = object.py();
    let methods = Methods::of(object)?;
    let method = match methods {
        Methods { array: true, .. } => Method::Array,
        Methods { stream: false, device: true, .. } => Method::DeviceArray,
        _ => Method::Stream,
    };
    let call = |method: Method| object.call_method0(method.name(py));
    let (method, exported) = match call(method) {
        Err(error)
            if methods.device && method != Method::DeviceArray && error.is_instance_of::<PyException>(py) =>
        {
            (Method::DeviceArray, call(Method::DeviceArray))
        }
        exported => (method, exported),
    };
    let exported = exported.map_err(|error| call_failed(object, method.name(py), error))?;
    if method == Method::Stream {
        return take(object, &exported, c"arrow_array_stream").map(Exported::Stream);
    }
    let Ok((schema, array)) = exported.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Err(not_capsules(object, method.name(py)));
    };
    let (field, array) = match method {
        Method::Array => read_array(object, &schema, &array)?,
        _ => read_device_array(object, &schema, &array)?,
    };
    Ok(Exported::Array(field, array))
}

/// Whether a plan leaves an object unread: a query, or a stream. What has no length, and no array as a whole, is not there a second time.
pub(super) fn is_unread_by_plans(object: &Bound<'_, PyAny>) -> Result<bool> {
    let methods = Methods::of(object)?;
    let has_length = || object.get_type().hasattr("__len__");
    Ok(methods.stream && !methods.array && (!has_length()? || is_query(object)))
}

/// Whether an object is a relation of DuckDB, whose query runs each time that it is read.
fn is_query(object: &Bound<'_, PyAny>) -> bool {
    type_name(object).ends_with(".DuckDBPyRelation")
}

/// Reads the type of a stream or a query, and no row.
pub(super) fn read_schema(object: &Bound<'_, PyAny>) -> Result<Field> {
    const METHOD: &str = "__arrow_c_schema__";
    if is_query(object) {
        let empty =
            object.call_method1("limit", (0,)).map_err(|error| call_failed(object, "limit", error))?;
        return Ok(match open(&empty)? {
            Opened::Array(field, _) => field,
            Opened::Stream(stream) => stream.field().clone(),
        });
    }
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
    let capsule =
        with_schema.call_method0(METHOD).map_err(|error| call_failed(&with_schema, METHOD, error))?;
    let schema = take::<ArrowSchema>(object, &capsule, c"arrow_schema")?;
    // SAFETY: the interface requires of a producer what `from_schema` requires: pointers that are null or valid.
    Ok(unsafe { Field::from_schema(&schema) }?)
}

/// Reads all chunks of an object, and the type that they have in common.
pub(super) fn read(object: &Bound<'_, PyAny>) -> Result<(Field, Vec<Array>)> {
    let stream = match export(object)? {
        Exported::Array(field, array) => return Ok((field, vec![array])),
        Exported::Stream(stream) => stream,
    };
    let py = object.py();
    let read = py.detach(|| -> tensorferry_core::Result<_> {
        // SAFETY: the interface requires of a producer what `ArrayStream::new` requires.
        let mut stream = unsafe { ArrayStream::new(stream) }?;
        let (field, mut chunks) = (stream.field().clone(), Vec::new());
        // Most columns have one chunk, for which the GIL is released once: at the second call the stream is at its end.
        for _ in 0..2 {
            match stream.next_array()? {
                Some(chunk) => chunks.push(chunk),
                None => return Ok((field, chunks, None)),
            }
        }
        Ok((field, chunks, Some(stream)))
    });
    let (field, mut chunks, mut stream) = read.map_err(producer_failed)?;
    while let Some(open) = stream {
        py.check_signals()?;
        let (chunk, rest) = next_chunk(py, open)?;
        chunks.extend(chunk);
        stream = rest;
    }
    Ok((field, chunks))
}

/// The next chunk, and the stream unless it is at its end. The producer may compute the chunk, or wait for a thread that needs the
/// GIL; a stream that ends or fails is released without the GIL, too.
pub(super) fn next_chunk(
    py: Python<'_>,
    mut stream: ArrayStream,
) -> Result<(Option<Array>, Option<ArrayStream>)> {
    let (next, stream) = py.detach(move || {
        let next = stream.next_array();
        let is_open = matches!(next, Ok(Some(_)));
        (next, is_open.then_some(stream))
    });
    Ok((next.map_err(producer_failed)?, stream))
}

/// The error of a producer. An interrupt that Python code of the producer heard arrives as its text.
fn producer_failed(error: tensorferry_core::Error) -> Failure {
    if error.fact().ends_with(": KeyboardInterrupt") {
        PyKeyboardInterrupt::new_err(()).into()
    } else {
        error.into()
    }
}

fn read_array(
    object: &Bound<'_, PyAny>,
    schema: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
) -> Result<(Field, Array)> {
    let schema = take::<ArrowSchema>(object, schema, c"arrow_schema")?;
    let array = take::<ArrowArray>(object, array, c"arrow_array")?;
    // SAFETY: the interface requires of a producer what `from_schema` and `Array::new` require: pointers that are null or valid, and
    // buffers of the sizes that the type and the lengths need, which do not change.
    unsafe {
        let field = Field::from_schema(&schema)?;
        let array = Array::new(array, &field)?;
        Ok((field, array))
    }
}

fn read_device_array(
    object: &Bound<'_, PyAny>,
    schema: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
) -> Result<(Field, Array)> {
    let schema = take::<ArrowSchema>(object, schema, c"arrow_schema")?;
    let Some(pointer) = objects::capsule_pointer(array, c"arrow_device_array") else {
        return Err(not_capsules(object, Method::DeviceArray.name(object.py())));
    };
    // SAFETY: a capsule of this name holds a struct of this type (the Arrow PyCapsule interface). The GIL is held, so that no other
    // consumer takes it meanwhile, and the capsule's destructor leaves a released struct alone.
    let array = unsafe { DeviceArray::take(pointer.cast::<ArrowDeviceArray>().as_ptr()) }?;
    device_memory::order_after_producer(object.py(), &array)?;
    // SAFETY: the interface requires of a producer what `from_schema` and `on_device` require, as in `read_array`, with buffers on
    // the device that the struct names.
    unsafe {
        let field = Field::from_schema(&schema)?;
        let array = Array::on_device(array.array, &field, array.device)?;
        Ok((field, array))
    }
}

fn call_failed(object: &Bound<'_, PyAny>, method: impl Display, error: PyErr) -> Failure {
    let about = format!("the {method} of {} failed", type_name(object));
    let hint = "check that the object was not consumed before, and holds columns that Arrow can express";
    wrap_exception(object.py(), error, ErrorKind::FrameworkFailed, &about, hint)
}

fn not_capsules(object: &Bound<'_, PyAny>, method: impl Display) -> Failure {
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
