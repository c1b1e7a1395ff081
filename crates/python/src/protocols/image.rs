//! Reading Pillow images.
//!
//! An image is always copied: Pillow keeps the pixels in blocks of its own, and gives them as bytes. The shape is that of
//! `numpy.asarray(image)`: height, width, and the bands if there are several. The Arrow interface of an image, which counts pixels
//! and not rows, is not used.

use crate::conversion::source::Source;
use crate::errors::{Result, fail, type_name, wrap_exception};
use crate::interpreter::once::interned;
use crate::interpreter::owner::Owner;
use crate::protocols::array_interface;
use crate::protocols::array_method::pending_source;
use pyo3::prelude::*;
use tensorferry_core::plan::Pending;
use tensorferry_core::{ErrorKind, Tensor};

/// Reads an image. It is decoded, because some formats state another mode and size before, such as the later frames of a GIF.
pub(crate) fn read<'py>(image: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    attempt(image, image.call_method0(interned!(image.py(), "load")))?;
    describe(image)
}

/// The source of an image that need not be decoded.
pub(crate) fn describe<'py>(image: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let py = image.py();
    let stated = || -> PyResult<(String, Vec<i64>)> {
        let modes = py.import("PIL.ImageMode")?;
        let mode = modes.call_method1("getmode", (image.getattr(interned!(py, "mode"))?,))?;
        let (width, height): (i64, i64) = image.getattr(interned!(py, "size"))?.extract()?;
        let bands = mode.getattr("bands")?.len()? as i64;
        let shape = if bands > 1 { vec![height, width, bands] } else { vec![height, width] };
        Ok((mode.getattr("typestr")?.extract()?, shape))
    };
    let (typestr, shape) = attempt(image, stated())?;
    let (dtype, _) = array_interface::element_type(&typestr).ok_or_else(|| {
        let fact = format!("the mode of {} has no supported element type", type_name(image));
        fail(ErrorKind::UnsupportedDType, fact, "convert it first: x.convert(\"RGB\")")
    })?;
    pending_source(image.clone(), Pending::Convert, dtype, &shape)
}

/// The pixels of an image.
pub(crate) fn decode(image: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let interface = attempt(image, image.getattr(interned!(image.py(), "__array_interface__")))?;
    array_interface::read(image, &interface)
}

fn attempt<T>(image: &Bound<'_, PyAny>, result: PyResult<T>) -> Result<T> {
    result.map_err(|error| {
        let about = format!("{} cannot be decoded", type_name(image));
        let hint = "check that its file is open, complete and of a format that Pillow can decode";
        wrap_exception(image.py(), error, ErrorKind::FrameworkFailed, &about, hint)
    })
}
