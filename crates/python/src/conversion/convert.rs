//! Converts a tensor: reads it, plans, runs the plan and wraps the result.

use crate::conversion::fast_path::{self, Outcome};
use crate::conversion::gradient_warning;
use crate::conversion::object_kinds::{Builtin, Form, Recognised, RecognisedObject};
use crate::conversion::read_only::{needed_loan, prepare, record_loan};
use crate::conversion::reading::{read, read_for_plan, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::{ConversionRequest, check_stream};
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::{check_named_stream, order};
use crate::conversion::to_gpu::{copy_to_gpu, gpu_of, share_gpu};
use crate::conversion::to_host::{Copied, copy, deliver};
use crate::conversion::transfer::{self, Started};
use crate::errors::{Result, not_a_tensor};
use crate::frameworks::{builtin_frameworks, torch};
use crate::reports::{TensorReport, trace};
use pyo3::prelude::*;
use std::time::Instant;
use tensorferry_core::Device;
use tensorferry_core::plan::{
    self, ConvertOptions, Note, Plan, Route, SourceDescription, TargetCapabilities,
};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Converts a source that has been read.
pub(crate) fn convert_source<'py>(
    py: Python<'py>,
    source: Source<'py>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    if trace::is_tracing() {
        return convert_by_plan(py, source, request, Some(Instant::now()));
    }
    if request.options != ConvertOptions::NONE || request.stream.is_some() {
        return convert_by_plan(py, source, request, None);
    }
    match fast_path::convert_source(py, source, request.target, request.target.capabilities(py)?) {
        Outcome::Done(result) => Ok(result),
        Outcome::NeedsPlan(source) => convert_by_plan(py, source, request, None),
        Outcome::Failed(failure) => Err(failure),
        Outcome::NotApplicable => Err(not_a_tensor(&py.None().into_bound(py))),
    }
}

/// Converts one tensor.
pub(crate) fn convert_object<'py>(
    recognised: RecognisedObject<'_, 'py>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let object = recognised.object();
    if request.options == ConvertOptions::NONE && request.stream.is_none() {
        match fast_path::convert_object(recognised, request.target) {
            Outcome::Done(result) => return Ok(result),
            Outcome::NeedsPlan(source) => return convert_by_plan(object.py(), source, request, None),
            Outcome::Failed(failure) => return Err(failure),
            Outcome::NotApplicable => {}
        }
    }
    let started = trace::is_tracing().then(Instant::now);
    if stays_with_target(object.py(), recognised.kind(), request)? {
        if let Some(started) = started {
            trace::record(object.py(), unchanged_report(object.py(), request)?, started.elapsed())?;
        }
        return Ok(object.clone());
    }
    convert_by_plan(object.py(), read(recognised)?, request, started)
}

/// Whether the object already belongs to the target and has no memory to read, such as a JAX tracer converted to JAX.
pub(crate) fn stays_with_target(
    py: Python<'_>,
    recognised: Recognised,
    request: &ConversionRequest,
) -> Result<bool> {
    let Recognised::Refused(refusal) = recognised else { return Ok(false) };
    if !refusal.is_usable_by_own_framework()
        || request.options != ConvertOptions::NONE
        || request.stream.is_some()
    {
        return Ok(false);
    }
    let framework = builtin_frameworks::entry_of_refusal(refusal).map(|entry| entry.name);
    Ok(framework == Some(request.target.capabilities(py)?.framework))
}

/// The plan for a source. PyTorch copies a tensor of a subclass itself, unless the caller chose the stream.
fn decide(
    source: &Source<'_>,
    description: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
    request: &ConversionRequest,
) -> Result<Plan> {
    let mut plan = plan::decide(description, target, options)?;
    if (source.framework, target.framework) == ("torch", "torch")
        && !plan.shares()
        && request.stream.is_none()
        && matches!(source.memory, SourceMemory::InPlace(_))
        && recognise(&source.object)?.kind() == Recognised::Tensor(Builtin::Torch, Form::Subclass)
    {
        plan.notes.push(Note::KeepsClass);
    }
    Ok(plan)
}

/// Converts a source that has been read, by a plan.
pub(crate) fn convert_by_plan<'py>(
    py: Python<'py>,
    source: Source<'py>,
    request: &ConversionRequest,
    started: Option<Instant>,
) -> Result<Bound<'py, PyAny>> {
    let target = request.target.capabilities(py)?;
    let description = source.describe_for(target);
    let plan = decide(&source, &description, target, &request.options, request)?;
    check_stream(&description, &plan, request)?;
    gradient_warning::check_plan(py, &description, target, &plan)?;
    let report = started.map(|started| (started, TensorReport::new(&description, target, &plan)));
    let result = run(py, source, target, &plan, request)?;
    if let Some((started, report)) = report {
        trace::record(py, report, started.elapsed())?;
    }
    Ok(result)
}

/// A conversion that has been started.
pub(crate) struct StartedObject<'py> {
    pub(crate) started: Started<'py>,
    /// The reports, if they were requested.
    pub(crate) reports: Vec<TensorReport>,
    /// The device of the result; `None` if it is unchanged or has several.
    pub(crate) device: Option<Device>,
    /// Whether the source is in GPU memory.
    pub(crate) is_gpu_source: bool,
}

impl<'py> StartedObject<'py> {
    /// An object that is its own result.
    pub(crate) fn unchanged(object: &Bound<'py, PyAny>, reports: Vec<TensorReport>) -> Self {
        let started = Started::Done(object.clone());
        Self { started, reports, device: None, is_gpu_source: false }
    }
}

/// Starts the conversion of one tensor, with a report if one is requested.
pub(crate) fn start_object<'py>(
    recognised: RecognisedObject<'_, 'py>,
    request: &ConversionRequest,
    reported: bool,
) -> Result<StartedObject<'py>> {
    let object = recognised.object();
    let py = object.py();
    if stays_with_target(py, recognised.kind(), request)? {
        let reports = if reported { vec![unchanged_report(py, request)?] } else { Vec::new() };
        return Ok(StartedObject::unchanged(object, reports));
    }
    start_source(py, read(recognised)?, request, reported, true)
}

/// Starts the conversion of a source that has been read.
pub(crate) fn start_source<'py>(
    py: Python<'py>,
    source: Source<'py>,
    request: &ConversionRequest,
    reported: bool,
    is_deferred: bool,
) -> Result<StartedObject<'py>> {
    let target = request.target.capabilities(py)?;
    let description = source.describe_for(target);
    let options = request.options_for(source.mutability);
    let plan = decide(&source, &description, target, &options, request)?;
    check_stream(&description, &plan, request)?;
    gradient_warning::check_plan(py, &description, target, &plan)?;
    let reports = if reported { vec![TensorReport::new(&description, target, &plan)] } else { Vec::new() };
    let (device, is_gpu_source) = (Some(plan.device), description.device.is_cuda());
    let started = start(py, source, target, &plan, request, is_deferred)?;
    Ok(StartedObject { started, reports, device, is_gpu_source })
}

/// The report about an object that [`stays_with_target`].
fn unchanged_report(py: Python<'_>, request: &ConversionRequest) -> Result<TensorReport> {
    Ok(TensorReport::unchanged(request.target.capabilities(py)?.framework))
}

/// Plans the conversion of one tensor without moving bytes.
pub(crate) fn plan_object(
    recognised: RecognisedObject<'_, '_>,
    request: &ConversionRequest,
) -> Result<TensorReport> {
    let object = recognised.object();
    if stays_with_target(object.py(), recognised.kind(), request)? {
        return unchanged_report(object.py(), request);
    }
    plan_source(object.py(), read_for_plan(recognised)?, request)
}

/// Plans the conversion of a source that has been read.
pub(crate) fn plan_source(
    py: Python<'_>,
    source: Source<'_>,
    request: &ConversionRequest,
) -> Result<TensorReport> {
    let target = request.target.capabilities(py)?;
    let description = source.describe_for(target);
    let options = request.options_for(source.mutability);
    let plan = decide(&source, &description, target, &options, request)?;
    check_stream(&description, &plan, request)?;
    // Raise the errors that the conversion itself would raise.
    if plan.device.is_cuda() && !matches!(plan.route, Route::Itself) {
        gpu_of(target, plan.device)?;
    }
    if plan.device.is_cuda() && request.stream.is_some() {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, request.stream.as_ref())?;
    }
    Ok(TensorReport::new(&description, target, &plan))
}

fn run<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    match start(py, source, target, plan, request, false)? {
        Started::Done(result) => Ok(result),
        Started::Transfer(pending) => transfer::run(py, pending, request.progress.as_ref()),
    }
}

/// Does the part of a conversion that needs the interpreter. Copies between a GPU and the host are returned as transfers,
/// and so are all copies with `is_deferred`.
pub(crate) fn start<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
    is_deferred: bool,
) -> Result<Started<'py>> {
    if plan.notes.contains(&Note::KeepsClass) {
        return torch::copy_with_class(&source.object, plan.dtype, plan.device).map(Started::Done);
    }
    let tensor = match &plan.route {
        Route::Itself => return return_source(py, source, target, request).map(Started::Done),
        Route::Share => {
            let mut source = source;
            let streams = source.take_streams();
            let mutability = source.mutability;
            let mut tensor = require_in_place(source)?;
            prepare(&mut tensor, target, plan.device, plan.access);
            if let Some(lend) = needed_loan(&tensor, mutability, target) {
                tensor = record_loan(tensor, lend);
            }
            if let Some(streams) = streams {
                return share_gpu(py, tensor, streams, request.target, request.stream.as_ref())
                    .map(Started::Done);
            }
            tensor
        }
        Route::Copy(_) if plan.device.is_cuda() => return copy_to_gpu(py, source, target, plan, request),
        Route::Copy(_) if plan.target_copies() => {
            let mut tensor = require_in_place(source)?;
            prepare(&mut tensor, target, plan.device, plan.access);
            tensor
        }
        Route::Copy(_) => match copy(py, source, target, plan, is_deferred)? {
            Copied::Done(mut tensor) => {
                prepare(&mut tensor, target, plan.device, plan.access);
                tensor
            }
            Copied::Pending(total, work) => {
                return Ok(Started::Transfer(deliver(total, work, plan, request.target)));
            }
        },
    };
    request.target.write(py, tensor).map(Started::Done)
}

/// Returns the source itself. A stream that the caller named waits for the work queued on the source.
fn return_source<'py>(
    py: Python<'py>,
    mut source: Source<'py>,
    target: &TargetCapabilities,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    if let Some(named) = &request.stream {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, Some(named))?;
        let device = source.describe().device;
        if let Some(streams) = source.take_streams()
            && device.is_cuda()
        {
            order(py, Gpu::get(device.index)?, streams.ready_after, SyncPoint::Stream(named.stream))?;
        }
    }
    Ok(source.object)
}
