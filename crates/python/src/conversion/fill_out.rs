//! `out=`: copies a tensor into existing memory of the caller.

use crate::conversion::gpu_transfer;
use crate::conversion::host_copy::{copy_into, copy_packed, overlaps};
use crate::conversion::object_kinds::Recognised;
use crate::conversion::reading::{materialise, read, read_for_plan, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::{ConversionRequest, check_stream};
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::{Streams, check_named_stream, order};
use crate::conversion::transfer::{self, PendingTransfer, Started};
use crate::errors::{Failure, Result, fail, type_name};
use crate::frameworks::user_frameworks;
use crate::interpreter::owner::Owner;
use crate::reports::trace;
use crate::trees::traverse;
use pyo3::prelude::*;
use smallvec::smallvec;
use std::time::Instant;
use tensorferry_core::plan::{
    self, ConvertOptions, DTypeRequest, DeviceRequest, Plan, Reason, Route, SourceMutability,
    TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, ErrorKind, Tensor, read_only_loans};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Copies the values of `object` into `out`, cast to its element type.
pub(crate) fn fill<'py>(
    object: &Bound<'py, PyAny>,
    out: &Bound<'py, PyAny>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let started = trace::is_tracing().then(Instant::now);
    let (conversion, report) = start(object, out, request, started.is_some(), false)?;
    let result = match conversion {
        Started::Done(result) => result,
        Started::Transfer(pending) => transfer::run(py, pending, request.progress.as_ref())?,
    };
    if let (Some(started), Some(report)) = (started, report) {
        trace::record(py, report, started.elapsed())?;
    }
    Ok(result)
}

/// Does the part that needs the interpreter. A copy within host memory is complete then, unless `is_deferred`.
pub(crate) fn start<'py>(
    object: &Bound<'py, PyAny>,
    out: &Bound<'py, PyAny>,
    request: &ConversionRequest,
    reported: bool,
    is_deferred: bool,
) -> Result<(Started<'py>, Option<crate::reports::TensorReport>)> {
    let py = object.py();
    let target = request.target.capabilities(py)?;
    let recognised = recognise(object)?;
    let tensor = traverse::tensor_of_node(recognised)?;
    if tensor.is_none() && traverse::container_of(recognised)?.is_some() {
        let hint = "fill one tensor at a time, or leave out out=";
        return Err(fail(ErrorKind::InvalidArgument, "out= accepts one tensor, and x is a tree", hint));
    }
    let mut source = read(recognise(tensor.as_ref().unwrap_or(object))?)?;
    let (destination, destination_streams) = read_out(out, &source, target, &request.options)?;
    let description = source.describe();
    let plan = plan_of(&description, &destination);
    check_stream(&description, &plan, request)?;
    let report = reported.then(|| crate::reports::TensorReport::new(&description, target, &plan));
    let streams = source.take_streams();
    let tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { dtype, ref layout, .. } => {
            plan::check_budget(layout.bytes(), &request.options)?;
            materialise(&source.object, &source.memory, dtype)?
        }
    };
    let is_on_host = tensor.device().is_host() && destination.device().is_host();
    if !is_on_host
        && tensor.device().is_same_memory_as(destination.device())
        && overlaps(&tensor, &destination)
    {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "the source and out share memory on a GPU",
            "pass an out of its own, or a copy of the source",
        ));
    }
    begin_write(out)?;
    if is_on_host {
        // A source that overlaps the destination is copied before the first byte is written.
        let tensor = if overlaps(&tensor, &destination) {
            plan::check_budget(tensor.layout().bytes(), &request.options)?;
            copy_packed(py, &tensor, tensor.dtype())?
        } else {
            tensor
        };
        if !is_deferred {
            copy_into(Some(py), &tensor, &destination)?;
            return Ok((Started::Done(out.clone()), report));
        }
        return Ok((Started::Transfer(deferred_copy(tensor, destination, out.clone().unbind())), report));
    }
    let total = destination.layout().bytes();
    let result = out.clone().unbind();
    let finish = Box::new(move |_: Python<'_>, _| Ok(result));
    let ring = request.ring()?;
    if destination.device().is_host() {
        let streams = streams.unwrap_or_else(Streams::unnamed);
        let work = gpu_transfer::download_into(tensor, streams, destination, ring);
        let work = Box::new(move |control: &_| work(control).map(|()| None));
        return Ok((Started::Transfer(PendingTransfer { total, block: None, work, finish }), report));
    }
    let mut destination_streams = destination_streams.unwrap_or_else(Streams::unnamed);
    if let Some(named) = &request.stream {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, Some(named))?;
        let gpu = Gpu::get(destination.device().index)?;
        order(py, gpu, destination_streams.ready_after, SyncPoint::Stream(named.stream))?;
        destination_streams = Streams::on(named.stream).with_owner(named.object.bind(py).clone());
    }
    let streams = if tensor.device().is_host() { None } else { streams };
    let filled = gpu_transfer::DeviceDestination::from_tensor(destination, destination_streams)?;
    let work = gpu_transfer::copy_to_device(tensor, streams, filled, ring);
    let work = Box::new(move |control: &_| work(control).map(|()| None));
    Ok((Started::Transfer(PendingTransfer { total, block: None, work, finish }), report))
}

/// Tells the framework of `out` that its values change, also if a registered framework reads it through a tensor of another.
fn begin_write(out: &Bound<'_, PyAny>) -> Result<()> {
    let recognised = recognise(out)?;
    let given;
    let tensor = match recognised.kind() {
        Recognised::Registered(index) => {
            given = user_frameworks::call_read(out, index)?;
            recognise(&given)?.tensor()
        }
        _ => recognised.tensor(),
    };
    tensor.map_or(Ok(()), |tensor| tensor.framework().framework().begin_write(tensor.object()))
}

/// A copy within host memory, for another thread.
fn deferred_copy(tensor: Tensor<Owner>, destination: Tensor<Owner>, result: Py<PyAny>) -> PendingTransfer {
    let total = destination.layout().bytes();
    let (from, to) = (gpu_transfer::HeldTensor::new(tensor), gpu_transfer::HeldTensor::new(destination));
    let work = move |_: &_| {
        let (from, to) = ({ &from }, { &to });
        copy_into(None, &from.tensor, &to.tensor).map(|()| None)
    };
    PendingTransfer { total, block: None, work: Box::new(work), finish: Box::new(move |_, _| Ok(result)) }
}

/// The plan of a copy into `out`, for the report.
fn plan_of(source: &plan::SourceDescription<'_>, destination: &Tensor<Owner>) -> Plan {
    let mut reasons: smallvec::SmallVec<[Reason; 2]> = smallvec![Reason::Into];
    if source.dtype != destination.dtype() {
        reasons.push(Reason::Cast { from: source.dtype, to: destination.dtype() });
    }
    Plan {
        route: Route::Copy(reasons),
        dtype: destination.dtype(),
        device: destination.device(),
        access: Access::ReadWrite,
        notes: smallvec![],
    }
}

/// Reads `out` and checks that it can be filled.
fn read_out(
    out: &Bound<'_, PyAny>,
    source: &Source<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<(Tensor<Owner>, Option<Streams>)> {
    let mut given = read_for_plan(recognise(out)?).map_err(|failure| match failure {
        Failure::Ferry(error) | Failure::WithCause(error, _) => fail(
            ErrorKind::InvalidArgument,
            format!("out cannot be filled: {}", error.fact()),
            "pass a writable array or tensor of the target framework",
        ),
        other => other,
    })?;
    let invalid = |fact: String, hint: &str| Err(fail(ErrorKind::InvalidArgument, fact, hint));
    if given.framework != target.framework {
        let fact =
            format!("out is an object of type {} and the target is {}", type_name(out), target.framework);
        let described = given.describe();
        let is_in_host_memory = described.pending.is_none() && described.device.is_host();
        let write = format!("write out[...] = ferry.to(x, \"{}\")", target.framework);
        return invalid(
            fact,
            match given.framework {
                "buffer" => {
                    "pass out=numpy.frombuffer(out, dtype).reshape(x.shape), and \"numpy\" as the target"
                }
                "dlpack" if out.hasattr("__setitem__")? => &write,
                "array" | "dlpack" if is_in_host_memory => {
                    "pass out=ferry.to(out, \"numpy\", copy=False), and \"numpy\" as the target"
                }
                "array" if out.hasattr("__setitem__")? => "write out[...] = ferry.to(x, \"numpy\")",
                _ => "name the framework of out, or pass an out of the target framework",
            },
        );
    }
    if options.copy == Some(false) {
        return invalid(
            "out is filled by copying, and copy=False was given".into(),
            "pass only one of the two",
        );
    }
    if options.writable == Some(false) {
        return invalid("out is written, and writable=False was given".into(), "pass only one of the two");
    }
    let described = given.describe();
    if let DeviceRequest::At(device) = options.device
        && described.device.base_device() != device
    {
        let fact = format!("out is on {}, and device={device} was given", described.device);
        return invalid(fact, "pass only one of the two");
    }
    if described.device.is_cuda() && !described.layout.is_dense() {
        return invalid("out is on a GPU and not contiguous".into(), "pass a contiguous out");
    }
    if described.pending.is_some() {
        return invalid(
            "out is a lazy view: its memory does not hold its values".into(),
            "pass an out without a conj or neg bit",
        );
    }
    if !read_only_loans::may_be_written(described.address) {
        return invalid(
            "out has the memory of an immutable tensor, or read-only memory".into(),
            "pass an out with memory of its own",
        );
    }
    if !described.allows_writing() && described.mutability == SourceMutability::Differentiable {
        return invalid(
            "out requires a gradient and is not a leaf: a backward pass may need its values".into(),
            "pass out=out.detach()",
        );
    }
    if !described.allows_writing() || target.mutability == TargetMutability::Immutable {
        return invalid("out cannot be written".into(), "pass a writable array or tensor");
    }
    if described.order == ByteOrder::Swapped {
        return invalid("out is not in this machine's byte order".into(), "pass an out in native order");
    }
    if described.layout.may_overlap() {
        return invalid("elements of out overlap in memory".into(), "pass an out that is not broadcast");
    }
    let shape = source.describe().layout.shape().to_vec();
    if described.layout.shape() != shape {
        return invalid(
            format!("out has shape {:?} and the source has {shape:?}", described.layout.shape()),
            "pass an out of the source's shape",
        );
    }
    let options_for_dtype =
        ConvertOptions { copy: Some(true), budget: None, device: DeviceRequest::Nearest, ..*options };
    let requested = plan::decide(&source.describe(), target, &options_for_dtype)?.dtype;
    if requested != described.dtype {
        let hint = if options.dtype == DTypeRequest::Same {
            let cast = DTypeRequest::Type(described.dtype);
            plan::decide(&source.describe(), target, &ConvertOptions { dtype: cast, ..options_for_dtype })?;
            "pass dtype= to allow the cast"
        } else {
            "pass the dtype of out as dtype="
        };
        return invalid(format!("out has dtype {} and the result has {requested}", described.dtype), hint);
    }
    let streams = given.take_streams();
    Ok((require_in_place(given)?, streams))
}
