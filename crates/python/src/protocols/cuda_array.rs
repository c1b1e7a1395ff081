//! Reading objects through `__cuda_array_interface__`, which Numba and others implement.

use crate::api::shape::Lengths;
use crate::conversion::source::{Source, restore_read_only_flag};
use crate::conversion::streams::{Streams, stream_of};
use crate::errors::{Result, fail, type_name};
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry_core::device::Device;
use tensorferry_core::{Access, ByteOrder, DType, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Stream, SyncPoint, device_of_address};

/// Reads an object through the value of its `__cuda_array_interface__`.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>, interface: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let invalid = |what: &str| {
        fail(
            ErrorKind::InvalidTensor,
            format!("the __cuda_array_interface__ of {} {what}", type_name(object)),
            "pass another array, and report this to the library that created it",
        )
    };
    let Ok(interface) = interface.cast::<PyDict>() else { return Err(invalid("is not a dict")) };
    let get = |name: &str| -> Result<Option<Bound<'py, PyAny>>> {
        Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
    };
    if get("mask")?.is_some() {
        return Err(fail(
            ErrorKind::NotATensor,
            "the array interface of the source has a mask, which no target supports",
            "pass the data and the mask separately",
        ));
    }
    let (Some(shape), Some(typestr), Some(data)) = (get("shape")?, get("typestr")?, get("data")?) else {
        return Err(invalid("lacks shape, typestr or data"));
    };
    let typestr: String = typestr.extract().map_err(|_| invalid("has a typestr that is not a string"))?;
    let (dtype, order) = element_type(&typestr).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("the typestr {typestr:?} is not a supported numeric type"),
            "view the array as bytes first",
        )
    })?;
    let shape: Lengths =
        shape.extract().map_err(|_| invalid("has a shape that is not a tuple of integers"))?;
    let (address, read_only): (usize, bool) =
        data.extract().map_err(|_| invalid("has data that is not a pair of address and read-only flag"))?;
    let layout = match get("strides")? {
        None => Layout::dense(dtype.size(), &shape)?,
        Some(strides) => {
            let strides: Lengths =
                strides.extract().map_err(|_| invalid("has strides that are not a tuple of integers"))?;
            if strides.len() != shape.len() {
                let (strides, rank) = (strides.len(), shape.len());
                return Err(invalid(&format!("has {strides} strides for {rank} dimensions")));
            }
            Layout::strided(dtype.size(), &shape, &strides)?
        }
    };
    // An empty array has a null address.
    let device = if address == 0 { Device::cuda(0) } else { device_of_address(address)? };
    if !device.is_cuda() {
        return Err(invalid("has an address that is not in GPU memory"));
    }
    let stream = match get("stream")? {
        None => Stream::LEGACY,
        Some(handle) => {
            let handle = handle.extract::<usize>().ok().filter(|&handle| handle != 0);
            // SAFETY: `stream_of` requires a stream that outlives the result: the interface says that the stream stays valid as long as
            // the object, which the owner below holds.
            let stream = handle.and_then(|handle| unsafe { stream_of(handle) });
            stream.ok_or_else(|| invalid("has a stream that is not a valid handle"))?
        }
    };
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::object(object.clone().unbind());
    // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives. The interface says so of the object,
    // which the owner holds, and the driver returned the device of the address.
    let tensor = unsafe { Tensor::new(data, dtype, layout, device, order, access, owner) }?;
    let streams = Streams::new(SyncPoint::Stream(stream), SyncPoint::Stream(stream));
    Ok(Source::in_place(object.clone(), "cuda_array", restore_read_only_flag(tensor)).with_streams(streams))
}

/// The element type and byte order of a typestr.
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
