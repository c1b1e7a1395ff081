//! Streams: arrays that a producer delivers one by one.

use crate::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use crate::array::Array;
use crate::errors::invalid_struct;
use crate::hints;
use crate::owned::Owned;
use crate::schema::Field;
use std::ffi::{CStr, c_int};
use tensorferry_core::{Error, ErrorKind, Result};

/// A stream whose schema has been read.
#[derive(Debug)]
pub struct ArrayStream {
    stream: Owned<ArrowArrayStream>,
    field: Field,
}

impl ArrayStream {
    /// Reads the schema of a stream.
    ///
    /// # Errors
    /// When the producer fails, or the schema violates the interface.
    ///
    /// # Safety
    /// The callbacks of the stream, and the schema and arrays that they write, are as the specification requires; see
    /// [`Field::from_schema`] and [`Array::new`].
    pub unsafe fn new(mut stream: Owned<ArrowArrayStream>) -> Result<Self> {
        let Some(get_schema) = stream.get().get_schema else {
            return Err(invalid_struct("the stream has no get_schema"));
        };
        let mut schema = ArrowSchema::released();
        // SAFETY: the stream is not released, and the schema is a struct to be written (the contract of `new`).
        let code = unsafe { get_schema(stream.get_mut(), &raw mut schema) };
        if code != 0 {
            return Err(failure(&mut stream, "get_schema", code));
        }
        // SAFETY: the producer wrote the schema, which nothing else uses (the contract of `new`).
        let field = unsafe { Field::from_schema(&Owned::take(&raw mut schema)?)? };
        Ok(Self { stream, field })
    }

    /// The type of the arrays.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The next array; `None` at the end.
    ///
    /// # Errors
    /// When the producer fails, or the array violates the interface.
    pub fn next_array(&mut self) -> Result<Option<Array>> {
        let Some(get_next) = self.stream.get().get_next else {
            return Err(invalid_struct("the stream has no get_next"));
        };
        let mut array = ArrowArray::released();
        // SAFETY: the stream is not released, and the array is a struct to be written (the contract of `ArrayStream::new`).
        let code = unsafe { get_next(self.stream.get_mut(), &raw mut array) };
        if code != 0 {
            return Err(failure(&mut self.stream, "get_next", code));
        }
        if array.release.is_none() {
            return Ok(None);
        }
        // SAFETY: the producer wrote an array of the stream's type, which nothing else uses (the contract of `ArrayStream::new`).
        unsafe { Array::new(Owned::take(&raw mut array)?, &self.field).map(Some) }
    }
}

/// The error of a callback that returned a number.
fn failure(stream: &mut Owned<ArrowArrayStream>, callback: &str, code: c_int) -> Error {
    let text = stream.get().get_last_error.and_then(|get_last_error| {
        // SAFETY: the stream is not released (the contract of `ArrayStream::new`). The text is null, or ends with a zero byte and lives
        // until the next callback; it is copied here.
        unsafe {
            let text = get_last_error(stream.get_mut());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    });
    let text = text.unwrap_or_else(|| std::io::Error::from_raw_os_error(code).to_string());
    // The last line of a traceback is its cause.
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Error::new(ErrorKind::FrameworkFailed, format!("{callback} of the Arrow stream failed: {line}"))
        .with_hint(hints::CHECK_PRODUCER)
}
