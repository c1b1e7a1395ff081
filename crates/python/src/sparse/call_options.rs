//! What the caller of `ferry.sparse` asks for.

use crate::api::options::{Asked, Keywords};
use crate::conversion::carry::ConversionRequest;
use crate::errors::{Result, fail};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::plan::sparse::{SparseFormat, SparseRequest, SparseTarget, no_such_format};
use tensorferry_core::plan::{ConvertOptions, DeviceRequest};
use tensorferry_core::{Device, ErrorKind};

/// The options of a call.
pub(super) struct Request<'py> {
    format: Option<Bound<'py, PyAny>>,
    blocksize: Option<Bound<'py, PyAny>>,
    pub(super) options: ConvertOptions,
    stream: Option<Asked>,
}

impl<'py> Request<'py> {
    pub(super) fn new(
        format: Option<&Bound<'py, PyAny>>,
        blocksize: Option<&Bound<'py, PyAny>>,
        keywords: Keywords<'py>,
    ) -> Self {
        let Keywords { options, stream, .. } = keywords;
        Self { format: format.cloned(), blocksize: blocksize.cloned(), options, stream }
    }

    /// For arrays on their way into a dense tensor on this device.
    pub(super) fn for_arrays(device: Device, conversion: &ConversionRequest, py: Python<'py>) -> Self {
        let options = ConvertOptions { device: DeviceRequest::At(device), ..ConvertOptions::NONE };
        let format = Some(PyString::new(py, SparseFormat::Coo.name()).into_any());
        let mut request = Self { format, blocksize: None, options, stream: None };
        if let Some(asked) = &conversion.stream {
            request.stream = Some(Asked { stream: asked.stream, object: asked.object.clone_ref(py) });
        }
        request
    }

    /// The stream on which the caller will use the result.
    pub(super) fn stream(&self, py: Python<'_>) -> Option<Asked> {
        self.stream.as_ref().map(|asked| Asked { stream: asked.stream, object: asked.object.clone_ref(py) })
    }

    /// Whether nothing is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.format.is_none()
            && self.blocksize.is_none()
            && self.options == ConvertOptions::NONE
            && self.stream.is_none()
    }

    /// Whether the format that is asked for, if any, is this one.
    pub(super) fn names(&self, name: &Bound<'py, PyString>) -> Result<bool> {
        Ok(match &self.format {
            None => true,
            Some(format) => format.eq(name)?,
        })
    }

    /// The size of blocks that is asked for.
    pub(super) fn block(&self) -> Result<Option<[i64; 2]>> {
        let Some(given) = &self.blocksize else { return Ok(None) };
        let mut sizes = Vec::new();
        if let Ok(items) = given.try_iter() {
            for item in items.take(3) {
                sizes.extend(item?.extract::<i64>().ok().filter(|&size| size > 0));
            }
        }
        match (sizes[..].try_into(), given.len()) {
            (Ok(block), Ok(2)) => Ok(Some(block)),
            _ => Err(fail(
                ErrorKind::InvalidArgument,
                format!("{} is no size of blocks", given.repr()?),
                "pass blocksize=(rows, columns)",
            )),
        }
    }

    /// What the planner is asked for.
    pub(super) fn sparse<'a>(
        &'a self,
        target: &SparseTarget,
        block: Option<[i64; 2]>,
    ) -> Result<SparseRequest<'a>> {
        let format = match &self.format {
            None => None,
            Some(format) => match format.cast::<PyString>() {
                Ok(format) => Some(format.to_str()?),
                Err(_) => return Err(no_such_format(target, format.repr()?).into()),
            },
        };
        Ok(SparseRequest { format, block })
    }
}
