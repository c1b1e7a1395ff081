//! The CUDA array interface: a dict that says where the elements lie, as Numba and others give it.

use crate::api::shape::Lengths;
use crate::conversion::source::{Source, still_frozen};
use crate::conversion::streams::{Streams, stream_of};
use crate::errors::{Result, fail, type_name};
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry_core::device::Device;
use tensorferry_core::{Access, ByteOrder, DType, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Stream, SyncPoint, device_of_address};

/// Reads an object through the interface that it gave.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>, interface: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let wrong = |what: &str| {
        fail(
            ErrorKind::InvalidTensor,
            format!("the __cuda_array_interface__ of {} {what}", type_name(object)),
            "pass a plain array, and report this to whoever made it",
        )
    };
    let Ok(interface) = interface.cast::<PyDict>() else { return Err(wrong("is no dict")) };
    let get = |name: &str| -> Result<Option<Bound<'py, PyAny>>> {
        Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
    };
    if get("mask")?.is_some() {
        return Err(fail(
            ErrorKind::NotATensor,
            "the source's array interface has a mask, which no target can keep",
            "pass the data and the mask separately",
        ));
    }
    let (Some(shape), Some(typestr), Some(data)) = (get("shape")?, get("typestr")?, get("data")?) else {
        return Err(wrong("has no shape, typestr or data"));
    };
    let typestr: String = typestr.extract().map_err(|_| wrong("has a typestr that is no text"))?;
    let (dtype, order) = element_type(&typestr).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("elements of type {typestr:?} are no numbers that tensorferry knows"),
            "view them as bytes first",
        )
    })?;
    let shape: Lengths = shape.extract().map_err(|_| wrong("has a shape that is no tuple of numbers"))?;
    let (address, read_only): (usize, bool) =
        data.extract().map_err(|_| wrong("has data that is no address and flag"))?;
    let layout = match get("strides")? {
        None => Layout::dense(dtype.size(), &shape)?,
        Some(strides) => {
            let strides: Lengths = strides.extract().map_err(|_| wrong("has strides that are no numbers"))?;
            if strides.len() != shape.len() {
                return Err(wrong("has more strides than lengths, or fewer"));
            }
            Layout::strided(dtype.size(), &shape, &strides)?
        }
    };
    // An empty array has no address to ask about.
    let device = if address == 0 { Device::cuda(0) } else { device_of_address(address)? };
    if !device.is_cuda() {
        return Err(wrong("gives an address that is no GPU's"));
    }
    let stream = match get("stream")? {
        None => Stream::LEGACY,
        Some(handle) => {
            let handle = handle.extract::<usize>().ok().filter(|&handle| handle != 0);
            // SAFETY: the interface promises that the stream is alive while the object lives, which the owner below holds.
            let stream = handle.and_then(|handle| unsafe { stream_of(handle) });
            stream.ok_or_else(|| wrong("has a stream that is no handle"))?
        }
    };
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::object(object.clone().unbind());
    // SAFETY: the interface promises that the memory is there, and as large as it says, while the object lives; the
    // driver has said whose it is.
    let tensor = unsafe { Tensor::new(data, dtype, layout, device, order, access, owner) }?;
    let streams = Streams::between(SyncPoint::Stream(stream), SyncPoint::Stream(stream));
    Ok(Source::here(object.clone(), "cuda_array", still_frozen(tensor)).with_streams(streams))
}

/// The type behind an array interface's type string.
fn element_type(typestr: &str) -> Option<(DType, ByteOrder)> {
    let [order, kind, digits @ ..] = typestr.as_bytes() else { return None };
    let little = cfg!(target_endian = "little");
    let order = match order {
        b'|' | b'=' => ByteOrder::Native,
        b'<' => {
            if little {
                ByteOrder::Native
            } else {
                ByteOrder::Swapped
            }
        }
        b'>' => {
            if little {
                ByteOrder::Swapped
            } else {
                ByteOrder::Native
            }
        }
        _ => return None,
    };
    let size = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((DType::from_typestr(*kind, size)?, order))
}
