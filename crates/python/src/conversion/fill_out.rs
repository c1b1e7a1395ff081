//! `out=`: memory of the caller's, filled with the values of a tensor.

use crate::conversion::gpu;
use crate::conversion::host_copy::{convert, job, packed};
use crate::conversion::reading::{in_place, materialise, read};
use crate::conversion::recognise::recognise;
use crate::conversion::request::{ConversionRequest, check_stream};
use crate::conversion::source::{Memory, Source};
use crate::conversion::streams::{Streams, check_named_stream};
use crate::conversion::transfer::{self, PendingTransfer, Started};
use crate::errors::{Failure, Result, fail};
use crate::interpreter::owner::Owner;
use crate::reports::trace;
use pyo3::prelude::*;
use smallvec::smallvec;
use std::time::Instant;
use tensorferry_core::plan::{
    self, ConvertOptions, DTypeRequest, DeviceRequest, Plan, Reason, Route, TargetCapabilities,
    TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Fills `out` with the values of `object`, cast to its type.
pub(crate) fn fill<'py>(
    object: &Bound<'py, PyAny>,
    out: &Bound<'py, PyAny>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let started = trace::is_on().then(Instant::now);
    let (begun, report) = begin(object, out, request, started.is_some(), false)?;
    let result = match begun {
        Started::Done(result) => result,
        Started::Transfer(moving) => transfer::run(py, moving, request.progress.as_ref())?,
    };
    if let (Some(started), Some(report)) = (started, report) {
        trace::record(py, report, started.elapsed())?;
    }
    Ok(result)
}

/// Does what needs the interpreter; between two places on the host that is everything, unless the caller wants it `later`.
pub(crate) fn begin<'py>(
    object: &Bound<'py, PyAny>,
    out: &Bound<'py, PyAny>,
    request: &ConversionRequest,
    reported: bool,
    later: bool,
) -> Result<(Started<'py>, Option<crate::reports::TensorReport>)> {
    let py = object.py();
    let target = request.target.facts(py)?;
    let mut source = read(object, recognise(object)?)?;
    let (destination, room) = destination(out, &source, target, &request.options)?;
    let facts = source.facts();
    let plan = plan_of(&facts, &destination);
    check_stream(&facts, &plan, request)?;
    let report = reported.then(|| crate::reports::TensorReport::new(&facts, target, &plan));
    let streams = source.take_streams();
    let tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, ref layout, .. } => {
            plan::check_budget(layout.bytes(), &request.options)?;
            materialise(&source.object, pending)?
        }
    };
    if tensor.device().is_host() && destination.device().is_host() {
        // A source that lies under the destination is read whole before the first byte is written.
        let tensor = if overlap(&tensor, &destination) {
            plan::check_budget(tensor.layout().bytes(), &request.options)?;
            packed(py, &tensor, tensor.dtype())?
        } else {
            tensor
        };
        if !later {
            convert(py, &tensor, destination.data(), destination.dtype(), destination.layout())?;
            return Ok((Started::Done(out.clone()), report));
        }
        return Ok((Started::Transfer(packed_later(tensor, destination, out.clone().unbind())), report));
    }
    let total = destination.layout().bytes();
    let result = out.clone().unbind();
    let finish = Box::new(move |_: Python<'_>, _| Ok(result));
    let lanes = request.ring()?;
    if destination.device().is_host() {
        let streams = streams.unwrap_or_else(Streams::unnamed);
        let work = gpu::download_into(tensor, streams, destination, lanes);
        let work = Box::new(move |watch: &_| work(watch).map(|()| None));
        return Ok((Started::Transfer(PendingTransfer { total, work, finish }), report));
    }
    if tensor.device().is_same_memory_as(destination.device()) && overlap(&tensor, &destination) {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "the source and out share memory on a GPU",
            "pass an out of its own, or a copy of the source",
        ));
    }
    let mut room = room.unwrap_or_else(Streams::unnamed);
    if let Some(asked) = &request.stream {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, Some(asked))?;
        let (gpu, gives) = (Gpu::get(destination.device().index)?, room.gives);
        // SAFETY: streams that the framework and the caller have just named.
        py.detach(|| unsafe { gpu.order(gives, SyncPoint::Stream(asked.stream)) })?;
        room = Streams::on(asked.stream).kept_by(asked.object.bind(py).clone());
    }
    let streams = if tensor.device().is_host() { None } else { streams };
    let filled = gpu::Target {
        data: destination.data(),
        dtype: destination.dtype(),
        device: destination.device(),
        streams: room,
        owner: Some(destination.into_owner()),
    };
    let work = gpu::fill(tensor, streams, filled, lanes);
    let work = Box::new(move |watch: &_| work(watch).map(|()| None));
    Ok((Started::Transfer(PendingTransfer { total, work, finish }), report))
}

/// Between two places on the host, on some other thread.
fn packed_later(tensor: Tensor<Owner>, destination: Tensor<Owner>, result: Py<PyAny>) -> PendingTransfer {
    let total = destination.layout().bytes();
    let (from, to) = (gpu::Held::new(tensor, [None, None]), gpu::Held::new(destination, [None, None]));
    let work = move |_: &_| {
        let (from, to) = ({ &from }, { &to });
        let to = &to.tensor;
        job(&from.tensor, to.data(), to.dtype(), to.layout()).run().map(|()| None)
    };
    PendingTransfer { total, work: Box::new(work), finish: Box::new(move |_, _| Ok(result)) }
}

fn plan_of(facts: &plan::SourceDescription<'_>, destination: &Tensor<Owner>) -> Plan {
    let mut reasons: smallvec::SmallVec<[Reason; 2]> = smallvec![Reason::Into];
    if facts.dtype != destination.dtype() {
        reasons.push(Reason::Cast { from: facts.dtype, to: destination.dtype() });
    }
    Plan {
        route: Route::Copy(reasons),
        dtype: destination.dtype(),
        device: destination.device(),
        access: Access::ReadWrite,
        notes: smallvec![],
    }
}

fn destination(
    out: &Bound<'_, PyAny>,
    source: &Source<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<(Tensor<Owner>, Option<Streams>)> {
    let mut given = read(out, recognise(out)?).map_err(|failure| match failure {
        Failure::Ferry(error) | Failure::Because(error, _) => fail(
            ErrorKind::InvalidArgument,
            format!("out cannot be filled: {}", error.fact()),
            "pass a writable array or tensor of the target framework",
        ),
        other => other,
    })?;
    let bad = |fact: String, hint: &str| Err(fail(ErrorKind::InvalidArgument, fact, hint));
    if given.framework != target.framework {
        let fact = format!("out is a {} tensor and the target is {}", given.framework, target.framework);
        return bad(fact, "name the framework of out, or pass an out of the target");
    }
    if options.copy == Some(false) {
        return bad("out is filled by copying, and copy=False was given".into(), "leave out one of the two");
    }
    if options.writable == Some(false) {
        return bad("out is written, and writable=False was given".into(), "leave out one of the two");
    }
    let facts = given.facts();
    if let DeviceRequest::At(device) = options.device
        && facts.device.plain() != device
    {
        let fact = format!("out is on {}, and device={device} was asked for", facts.device);
        return bad(fact, "leave out one of the two");
    }
    if facts.device.is_cuda() && !facts.layout.is_dense() {
        return bad("out is strided, on a GPU".into(), "pass an out that is contiguous");
    }
    if facts.pending.is_some() {
        return bad("out is a view whose memory holds other values".into(), "pass an out without a lazy bit");
    }
    if facts.access == Access::ReadOnly
        || !facts.mutability.allows_writing()
        || target.mutability == TargetMutability::Immutable
    {
        return bad("out must not be written".into(), "pass a writable array or tensor");
    }
    if facts.order == ByteOrder::Swapped {
        return bad("out is not in this machine's byte order".into(), "pass an out in native order");
    }
    if facts.layout.may_overlap() {
        return bad("elements of out overlap in memory".into(), "pass an out that is not broadcast");
    }
    let shape = source.facts().layout.shape().to_vec();
    if facts.layout.shape() != shape {
        return bad(
            format!("out has shape {:?} and the source has {shape:?}", facts.layout.shape()),
            "pass an out of the source's shape",
        );
    }
    let wishes_of_type =
        ConvertOptions { copy: Some(true), budget: None, device: DeviceRequest::Nearest, ..*options };
    let wanted = plan::decide(&source.facts(), target, &wishes_of_type)?.dtype;
    if wanted != facts.dtype {
        let hint = if options.dtype == DTypeRequest::Same {
            "pass dtype= to allow the cast"
        } else {
            "pass the dtype of out"
        };
        return bad(format!("out holds {} and would have to hold {wanted}", facts.dtype), hint);
    }
    let streams = given.take_streams();
    Ok((in_place(given)?, streams))
}

fn overlap(one: &Tensor<Owner>, other: &Tensor<Owner>) -> bool {
    let range = |tensor: &Tensor<Owner>| {
        let (low, high) = tensor.layout().extent();
        let data = tensor.data() as i64;
        (data.wrapping_add(low), data.wrapping_add(high))
    };
    let ((a, b), (c, d)) = (range(one), range(other));
    a < d && c < b
}
