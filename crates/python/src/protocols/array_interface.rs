//! Reading objects through `__array_interface__`, and through `__cuda_array_interface__`, which has the same keys.

use crate::api::shape::Lengths;
use crate::conversion::source::{Source, restore_read_only_flag};
use crate::conversion::streams::{Streams, stream_of};
use crate::errors::{Failure, Result, fail, type_name, wrap_exception};
use crate::frameworks::numpy;
use crate::interpreter::owner::{Buffer, Owner};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tensorferry_core::device::Device;
use tensorferry_core::{Access, ByteOrder, DType, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Stream, SyncPoint, device_of_address};

/// Reads the memory that the `__array_interface__` of an object describes.
pub(crate) fn read(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let interface = Interface::new(object, "__array_interface__", interface)?;
    let Some((dtype, order)) = element_type(&interface.typestr) else {
        // NumPy's types without a counterpart have errors of their own.
        return numpy::read_array(&numpy::as_array(object)?);
    };
    let layout = interface.layout(dtype)?;
    let (data, access, owner) = if interface.data.is_instance_of::<PyTuple>() {
        let (address, access) = interface.address()?;
        (std::ptr::with_exposed_provenance_mut(address), access, Owner::object(object.clone().unbind()))
    } else {
        interface.buffer(&layout)?
    };
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives. Of an address the interface says so, as long as the
    // object lives, which the owner holds. `Interface::buffer` has compared the layout with the buffer, which the owner holds.
    let tensor = unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, owner) }?;
    Ok(restore_read_only_flag(tensor))
}

/// Reads an object through the value of its `__cuda_array_interface__`.
pub(crate) fn read_cuda<'py>(
    object: &Bound<'py, PyAny>,
    interface: &Bound<'py, PyAny>,
) -> Result<Source<'py>> {
    let interface = Interface::new(object, "__cuda_array_interface__", interface)?;
    let (dtype, order) = element_type(&interface.typestr).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("the typestr {:?} is not a supported numeric type", interface.typestr),
            "view the array as bytes first",
        )
    })?;
    let (address, access) = interface.address()?;
    let layout = interface.layout(dtype)?;
    // An empty array has a null address.
    let device = if address == 0 { Device::cuda(0) } else { device_of_address(address)? };
    if !device.is_cuda() {
        return Err(interface.invalid("has an address that is not in GPU memory"));
    }
    let stream = match entry(interface.dict, "stream")? {
        None => Stream::LEGACY,
        Some(handle) => {
            let handle = handle.extract::<usize>().ok().filter(|&handle| handle != 0);
            // SAFETY: `stream_of` requires a stream that outlives the result: the interface says that the stream stays valid as long as
            // the object, which the owner below holds.
            let stream = handle.and_then(|handle| unsafe { stream_of(handle) });
            stream.ok_or_else(|| interface.invalid("has a stream that is not a valid handle"))?
        }
    };
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::object(object.clone().unbind());
    // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives. The interface says so of the object,
    // which the owner holds, and the driver returned the device of the address.
    let tensor = unsafe { Tensor::new(data, dtype, layout, device, order, access, owner) }?;
    let streams = Streams::new(SyncPoint::Stream(stream), SyncPoint::Stream(stream));
    Ok(Source::in_place(object.clone(), "cuda_array", restore_read_only_flag(tensor)).with_streams(streams))
}

/// The dict of an object, with the keys that both protocols require.
struct Interface<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    name: &'static str,
    dict: &'a Bound<'py, PyDict>,
    typestr: String,
    shape: Lengths,
    data: Bound<'py, PyAny>,
}

impl<'a, 'py> Interface<'a, 'py> {
    fn new(
        object: &'a Bound<'py, PyAny>,
        name: &'static str,
        interface: &'a Bound<'py, PyAny>,
    ) -> Result<Self> {
        let invalid = |what: &str| invalid(object, name, what);
        let Ok(dict) = interface.cast::<PyDict>() else { return Err(invalid("is not a dict")) };
        if entry(dict, "mask")?.is_some() {
            return Err(fail(
                ErrorKind::NotATensor,
                "the array interface of the source has a mask, which no target supports",
                "pass the data and the mask separately",
            ));
        }
        let (Some(shape), Some(typestr), Some(data)) =
            (entry(dict, "shape")?, entry(dict, "typestr")?, entry(dict, "data")?)
        else {
            return Err(invalid("lacks shape, typestr or data"));
        };
        // NumPy takes bytes too.
        let typestr = match typestr.extract::<&[u8]>() {
            Ok(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Err(_) => typestr.extract().map_err(|_| invalid("has a typestr that is not a string"))?,
        };
        let shape = shape.extract().map_err(|_| invalid("has a shape that is not a tuple of integers"))?;
        Ok(Self { object, name, dict, typestr, shape, data })
    }

    fn invalid(&self, what: &str) -> Failure {
        invalid(self.object, self.name, what)
    }

    fn layout(&self, dtype: DType) -> Result<Layout> {
        let Some(strides) = entry(self.dict, "strides")? else {
            return Ok(Layout::dense(dtype.size(), &self.shape)?);
        };
        let strides: Lengths =
            strides.extract().map_err(|_| self.invalid("has strides that are not a tuple of integers"))?;
        if strides.len() != self.shape.len() {
            let (strides, rank) = (strides.len(), self.shape.len());
            return Err(self.invalid(&format!("has {strides} strides for {rank} dimensions")));
        }
        Ok(Layout::strided(dtype.size(), &self.shape, &strides)?)
    }

    /// The data as an address.
    fn address(&self) -> Result<(usize, Access)> {
        let data = self.data.extract();
        let (address, read_only): (usize, Bound<'_, PyAny>) =
            data.map_err(|_| self.invalid("has data that is not a pair of address and read-only flag"))?;
        Ok((address, if read_only.is_truthy()? { Access::ReadOnly } else { Access::ReadWrite }))
    }

    /// The data as a buffer, which contains every element of the layout.
    fn buffer(&self, layout: &Layout) -> Result<(*mut u8, Access, Owner)> {
        let buffer = Buffer::export(&self.data).map_err(|error| {
            let about = format!("the data of the {} of {}", self.name, type_name(self.object));
            wrap_exception(self.object.py(), error, ErrorKind::InvalidTensor, &about, REPORT)
        })?;
        let offset = entry(self.dict, "offset")?.map_or(Ok(0), |offset| offset.extract::<i64>());
        let offset = offset.map_err(|_| self.invalid("has an offset that is not an integer"))?;
        let view = buffer.view();
        let (low, high) = layout.extent();
        let (first, end) = (offset.saturating_add(low), offset.saturating_add(high));
        let is_inside = layout.is_empty() || (0 <= first && end <= view.len as i64);
        if !is_inside || !buffer.is_contiguous() {
            let what =
                format!("has {} bytes of data, and its elements are in bytes {first} to {end}", view.len);
            return Err(self.invalid(&what));
        }
        let access = if view.readonly == 0 { Access::ReadWrite } else { Access::ReadOnly };
        Ok((view.buf.cast::<u8>().wrapping_offset(offset as isize), access, Owner::Buffer(buffer)))
    }
}

/// The value of a key; `None` if it is missing or None.
fn entry<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(dict.get_item(key)?.filter(|value| !value.is_none()))
}

const REPORT: &str = "pass another array, and report this to the library that created it";

fn invalid(object: &Bound<'_, PyAny>, name: &str, what: &str) -> Failure {
    fail(ErrorKind::InvalidTensor, format!("the {name} of {} {what}", type_name(object)), REPORT)
}

/// The element type and byte order of a typestr.
pub(super) fn element_type(typestr: &str) -> Option<(DType, ByteOrder)> {
    let [order, kind, digits @ ..] = typestr.as_bytes() else { return None };
    let order = match order {
        b'|' | b'=' => ByteOrder::Native,
        b'<' | b'>' if (*order == b'<') == cfg!(target_endian = "little") => ByteOrder::Native,
        b'<' | b'>' => ByteOrder::Swapped,
        _ => return None,
    };
    let size = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((DType::from_typestr(*kind, size)?, order))
}
