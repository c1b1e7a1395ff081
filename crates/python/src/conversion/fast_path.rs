//! The fast path of the common case: a framework's own tensor, or a buffer, without options and without a trace.
//!
//! The callers check that there are no options. The planner only decides whether to share, to copy memory whose alignment is
//! accidental, or to make a plan. A share needs no plan, and neither does a copy below 64 KiB.

use crate::conversion::host_copy::{DETACH_THRESHOLD_BYTES, duplicate};
use crate::conversion::object_kinds::{Recognised, RecognisedObject};
use crate::conversion::read_only::{flag_read_only, needed_loan, record_loan};
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::Streams;
use crate::conversion::to_gpu::share_gpu;
use crate::errors::Failure;
use crate::frameworks::Target;
use crate::protocols::buffer;
use crate::reports::trace;
use pyo3::prelude::*;
use tensorferry_core::plan::{self, FastDecision, TargetCapabilities};

/// The result of the fast path.
pub(crate) enum Outcome<'py> {
    /// The conversion is done.
    Done(Bound<'py, PyAny>),
    /// The source is read, and the conversion needs a plan.
    NeedsPlan(Source<'py>),
    /// The conversion failed.
    Failed(Failure),
    /// The fast path does not apply, and nothing was read.
    NotApplicable,
}

/// Converts an object by the fast path, if it applies.
#[inline]
pub(crate) fn convert_object<'py>(recognised: RecognisedObject<'_, 'py>, target: Target) -> Outcome<'py> {
    if trace::is_tracing() {
        return Outcome::NotApplicable;
    }
    let object = recognised.object();
    let read = match (recognised.tensor(), recognised.kind()) {
        (Some(tensor), _) => tensor.framework().framework().read(tensor),
        (None, Recognised::Bytes | Recognised::Buffer) => buffer::read(object),
        _ => return Outcome::NotApplicable,
    };
    match target.capabilities(object.py()) {
        Ok(capabilities) => match read {
            Ok(source) => convert_source(object.py(), source, target, capabilities),
            Err(failure) => Outcome::Failed(failure),
        },
        Err(failure) => Outcome::Failed(failure),
    }
}

/// As [`convert_object`], for a source that has been read.
#[inline(always)]
pub(crate) fn convert_source<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: Target,
    capabilities: &'static TargetCapabilities,
) -> Outcome<'py> {
    let access = match plan::fast_decision(&source.describe_for(capabilities), capabilities) {
        Some(FastDecision::Share(access)) => access,
        Some(FastDecision::Snapshot) => return snapshot(py, source, target),
        None => return Outcome::NeedsPlan(source),
    };
    // The source is destructured in place: each move of a tensor on the stack costs as much as planning.
    let mut tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { .. } => return Outcome::NeedsPlan(source),
    };
    flag_read_only(&mut tensor, capabilities, access);
    let loan = needed_loan(&tensor, source.mutability, capabilities);
    let written = if tensor.device().is_cuda() {
        let tensor = match loan {
            Some(lend) => record_loan(tensor, lend),
            None => tensor,
        };
        let streams = source.streams.map_or_else(Streams::unnamed, |streams| *streams);
        share_gpu(py, tensor, streams, target, None)
    } else if let Some(lend) = loan {
        target.write(py, record_loan(tensor, lend))
    } else {
        target.write(py, tensor)
    };
    match written {
        Ok(result) => Outcome::Done(result),
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Copies dense memory whose alignment is accidental. Large tensors go to the planner, whose copies release the GIL.
#[inline]
fn snapshot<'py>(py: Python<'py>, source: Source<'py>, target: Target) -> Outcome<'py> {
    let tensor = match &source.memory {
        SourceMemory::InPlace(tensor) if tensor.layout().bytes() < DETACH_THRESHOLD_BYTES => tensor,
        _ => return Outcome::NeedsPlan(source),
    };
    match duplicate(py, tensor).and_then(|tensor| target.write(py, tensor)) {
        Ok(result) => Outcome::Done(result),
        Err(failure) => Outcome::Failed(failure),
    }
}
