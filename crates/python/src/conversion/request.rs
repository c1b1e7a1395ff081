//! The request of one conversion: target, options, stream and progress.

use crate::api::options::{self, ParsedKeywords};
use crate::conversion::epoch_memory::EpochMemory;
use crate::conversion::progress::Progress;
use crate::conversion::streams::NamedStream;
use crate::errors::{Result, fail};
use crate::frameworks::{self, Target};
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::Cell;
use std::sync::Arc;
use tensorferry_core::plan::{ConvertOptions, DeviceRequest, Plan, SourceDescription, SourceMutability};
use tensorferry_core::{Device, ErrorKind};
use tensorferry_cuda::RingOptions;

/// The target of a conversion, and its options.
pub(crate) struct ConversionRequest {
    pub(crate) target: Target,
    pub(crate) options: ConvertOptions,
    /// The `jax.sharding.Sharding` of the result, which takes precedence over the device in the options.
    pub(crate) sharding: Option<Py<PyAny>>,
    /// Whether memory that its owner may write again is copied.
    pub(crate) is_snapshot: bool,
    /// The streams and the memory for uploads of an epoch.
    pub(crate) epoch_memory: Option<Arc<EpochMemory>>,
    /// The stream on which the caller will use the result.
    pub(crate) stream: Option<NamedStream>,
    /// The receiver of progress reports.
    pub(crate) progress: Option<Progress>,
    /// Whether the transfer belongs to a batch, whose end is waited for once.
    pub(crate) batched: Cell<bool>,
}

impl ConversionRequest {
    /// A request without options.
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            options: ConvertOptions::NONE,
            sharding: None,
            is_snapshot: false,
            epoch_memory: None,
            stream: None,
            progress: None,
            batched: Cell::new(false),
        }
    }

    /// The same target and options for one device.
    pub(crate) fn for_device(&self, device: Device) -> Self {
        let options = ConvertOptions { device: DeviceRequest::At(device), ..self.options };
        let epoch_memory = self.epoch_memory.clone();
        Self { options, is_snapshot: self.is_snapshot, epoch_memory, ..Self::new(self.target) }
    }

    /// The options for a source of this mutability.
    pub(crate) fn options_for(&self, mutability: SourceMutability) -> ConvertOptions {
        match self.is_snapshot && mutability.may_change() {
            true => ConvertOptions { copy: Some(true), ..self.options },
            false => self.options,
        }
    }

    /// A request with the keyword arguments of `function`.
    pub(crate) fn from_keywords(
        function: &str,
        framework: &Bound<'_, PyAny>,
        given: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let keywords = given
            .map_or_else(|| Ok(ParsedKeywords::none()), |given| options::parse(function, given, false))?;
        let request = Self::new(frameworks::target(framework)?);
        Ok(Self { options: keywords.options, stream: keywords.stream, ..request })
    }

    /// The ring buffer for a transfer between a GPU and existing memory, within the budget.
    pub(crate) fn ring(&self) -> Result<RingOptions> {
        let ring = settings::ring_options();
        Ok(self.options.budget.map_or(Ok(ring), |budget| ring.within(budget))?)
    }
}

/// Raises if a stream is named and no GPU is involved: work on the host is complete when a call returns.
pub(crate) fn check_stream(
    source: &SourceDescription<'_>,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<()> {
    if request.stream.is_none() || source.device.is_cuda() || plan.device.is_cuda() {
        return Ok(());
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        "stream= orders work on a GPU, and this conversion stays on the host",
        "leave stream out",
    ))
}
