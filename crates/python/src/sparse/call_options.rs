//! The options of one call of `ferry.sparse`.

use crate::api::options::ParsedKeywords;
use crate::conversion::request::ConversionRequest;
use crate::conversion::streams::NamedStream;
use crate::errors::{Result, fail};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::plan::sparse::{SparseFormat, SparseRequest, SparseTarget, no_such_format};
use tensorferry_core::plan::{ConvertOptions, DeviceRequest};
use tensorferry_core::{Device, ErrorKind};

/// The options of a call: format, block size, the options of dense tensors, and the stream.
pub(super) struct SparseCallOptions<'py> {
    format: Option<Bound<'py, PyAny>>,
    blocksize: Option<Bound<'py, PyAny>>,
    pub(super) options: ConvertOptions,
    stream: Option<NamedStream>,
}

impl<'py> SparseCallOptions<'py> {
    pub(super) fn new(
        format: Option<&Bound<'py, PyAny>>,
        blocksize: Option<&Bound<'py, PyAny>>,
        keywords: ParsedKeywords<'py>,
    ) -> Self {
        let ParsedKeywords { options, stream, .. } = keywords;
        Self { format: format.cloned(), blocksize: blocksize.cloned(), options, stream }
    }

    /// The options for arrays that a GPU scatters into a dense tensor on this device.
    pub(super) fn for_arrays(device: Device, conversion: &ConversionRequest, py: Python<'py>) -> Self {
        let options = ConvertOptions { device: DeviceRequest::At(device), ..ConvertOptions::NONE };
        let format = Some(PyString::new(py, SparseFormat::Coo.name()).into_any());
        let mut call_options = Self { format, blocksize: None, options, stream: None };
        if let Some(requested) = &conversion.stream {
            call_options.stream =
                Some(NamedStream { stream: requested.stream, object: requested.object.clone_ref(py) });
        }
        call_options
    }

    /// The stream on which the caller uses the result.
    pub(super) fn stream(&self, py: Python<'_>) -> Option<NamedStream> {
        self.stream
            .as_ref()
            .map(|requested| NamedStream { stream: requested.stream, object: requested.object.clone_ref(py) })
    }

    /// Whether the call has no options.
    pub(super) fn is_default(&self) -> bool {
        self.format.is_none()
            && self.blocksize.is_none()
            && self.options == ConvertOptions::NONE
            && self.stream.is_none()
    }

    /// Whether the call names this format, or none.
    pub(super) fn matches_format(&self, name: &Bound<'py, PyString>) -> Result<bool> {
        Ok(match &self.format {
            None => true,
            Some(format) => format.eq(name)?,
        })
    }

    /// The requested block size.
    pub(super) fn block_size(&self) -> Result<Option<[i64; 2]>> {
        let Some(blocksize) = &self.blocksize else { return Ok(None) };
        let mut sizes = Vec::new();
        if let Ok(items) = blocksize.try_iter() {
            for item in items.take(3) {
                sizes.extend(item?.extract::<i64>().ok().filter(|&size| size > 0));
            }
        }
        match (sizes[..].try_into(), blocksize.len()) {
            (Ok(block), Ok(2)) => Ok(Some(block)),
            _ => Err(fail(
                ErrorKind::InvalidArgument,
                format!("blocksize is {}, not two positive integers", blocksize.repr()?),
                "pass blocksize=(rows, columns)",
            )),
        }
    }

    /// The request for the planner of the core.
    pub(super) fn planner_request<'a>(
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
