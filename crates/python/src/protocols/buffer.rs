//! Reading objects through the buffer protocol.

use crate::conversion::source::Source;
use crate::errors::{Result, fail, type_name, wrap_exception};
use crate::interpreter::owner::{Buffer, Owner};
use pyo3::prelude::*;
use std::ffi::CStr;
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

/// Reads an object through the buffer protocol.
#[inline(always)]
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let buffer = Buffer::export(object).map_err(|error| {
        let about = format!("the buffer of {} cannot be exported", type_name(object));
        wrap_exception(
            object.py(),
            error,
            ErrorKind::InvalidTensor,
            &about,
            "pass a buffer that is still open",
        )
    })?;
    Ok(Source::in_place(object.clone(), "buffer", from_buffer(buffer)?))
}

/// Reads an exported buffer.
#[inline(always)]
pub(crate) fn from_buffer(buffer: Buffer) -> Result<Tensor<Owner>> {
    let view = buffer.view();
    if !view.suboffsets.is_null() {
        return Err(fail(
            ErrorKind::UnsupportedLayout,
            "the buffer has suboffsets (pointers to its rows)",
            "copy it to a contiguous buffer first: bytes(x)",
        ));
    }
    // SAFETY: `from_ptr` requires a C string that outlives the result: the buffer protocol says so of a format that is not null, until
    // the release of the view, which `buffer` holds.
    let format = if view.format.is_null() { c"B" } else { unsafe { CStr::from_ptr(view.format) } };
    let (dtype, order) = element_type(format.to_bytes(), view.itemsize as usize).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("the buffer format {:?} is not a supported numeric type", format.to_string_lossy()),
            "view it as bytes first: memoryview(x).cast(\"B\")",
        )
    })?;
    let rank = view.ndim.max(0) as usize;
    // SAFETY: `from_raw_parts` requires `rank` numbers. The buffer protocol says that `shape` and `strides` have `ndim` numbers
    // where they are not null, which the arms compare. They are valid until the release of the view, which `buffer` holds.
    let layout = unsafe {
        match (rank, view.shape.is_null(), view.strides.is_null()) {
            (0, ..) => Layout::dense(dtype.size(), &[]),
            (_, true, _) => Layout::dense(dtype.size(), &[view.len as i64 / dtype.size() as i64]),
            (_, false, true) => {
                Layout::dense(dtype.size(), std::slice::from_raw_parts(view.shape.cast(), rank))
            }
            (_, false, false) => Layout::strided(
                dtype.size(),
                std::slice::from_raw_parts(view.shape.cast(), rank),
                std::slice::from_raw_parts(view.strides.cast(), rank),
            ),
        }
    }?;
    let access = if view.readonly == 0 { Access::ReadWrite } else { Access::ReadOnly };
    let data = view.buf.cast();
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives, writable unless it is read-only. The buffer
    // protocol says so of the exporter's memory until the release of the view, which the owner holds.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, Owner::Buffer(buffer)) }?)
}

/// The element type of a `struct` format with one element.
fn element_type(format: &[u8], size: usize) -> Option<(DType, ByteOrder)> {
    let little = cfg!(target_endian = "little");
    let (order, code) = match format {
        [b'@' | b'=', code @ ..] => (ByteOrder::Native, code),
        [b'<', code @ ..] => (if little { ByteOrder::Native } else { ByteOrder::Swapped }, code),
        [b'>' | b'!', code @ ..] => (if little { ByteOrder::Swapped } else { ByteOrder::Native }, code),
        code => (ByteOrder::Native, code),
    };
    // The letter determines the kind, and the item size the width: `l` has 4 or 8 bytes, depending on the prefix.
    let kind = match code {
        b"?" => b'b',
        b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => b'i',
        b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" | b"c" => b'u',
        b"e" | b"f" | b"d" => b'f',
        b"Zf" | b"Zd" => b'c',
        _ => return None,
    };
    Some((DType::from_typestr(kind, size)?, order))
}
