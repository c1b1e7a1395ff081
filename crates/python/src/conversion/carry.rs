//! The life of one tensor: read, plan, run the steps, write.
//!
//! Bytes are copied in `host_copy`.

use crate::api::options::{self, Keywords};
use crate::conversion::gpu;
use crate::conversion::host_copy::{DETACH_FROM, duplicate, job, of_block, packed};
use crate::conversion::kinds::Recognised;
use crate::conversion::progress::Progress;
use crate::conversion::recognise::recognise;
use crate::conversion::source::{Memory, Source, fresh_memory};
use crate::conversion::streams::{NamedStream, Room, Streams, check_named_stream};
use crate::conversion::transfer::{self, Moving};
use crate::errors::{Failure, Result, fail, not_a_tensor};
use crate::frameworks::{self, Target, register, registered};
use crate::interpreter::owner::Owner;
use crate::protocols::array_method;
use crate::protocols::buffer;
use crate::protocols::reader;
use crate::reports::trace;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::Cell;
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{
    self, ConvertOptions, DTypeRequest, FastDecision, Plan, Route, SupportedDevices, TargetCapabilities,
    TargetMutability,
};
use tensorferry_core::{Access, DType, Device, ErrorKind, Layout, Tensor, read_only_loans};
use tensorferry_cuda::{Gpu, RingOptions, SyncPoint, TransferControl};

/// Where to, and how.
pub(crate) struct ConversionRequest {
    pub(crate) target: Target,
    pub(crate) options: ConvertOptions,
    /// The stream on which the caller will use the result.
    pub(crate) stream: Option<NamedStream>,
    /// Who wants to see how far it is.
    pub(crate) progress: Option<Progress>,
    /// Whether it is one of several, which are waited for together.
    pub(crate) batched: Cell<bool>,
}

impl ConversionRequest {
    /// Without wishes.
    pub(crate) fn plain(target: Target) -> Self {
        Self {
            target,
            options: ConvertOptions::NONE,
            stream: None,
            progress: None,
            batched: Cell::new(false),
        }
    }

    /// With the wishes that a function was passed by keyword.
    pub(crate) fn asked(
        function: &str,
        framework: &Bound<'_, PyAny>,
        given: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let keywords =
            given.map_or_else(|| Ok(Keywords::none()), |given| options::parse(function, given, false))?;
        let plain = Self::plain(frameworks::target(framework)?);
        Ok(Self { options: keywords.options, stream: keywords.stream, ..plain })
    }

    /// How bytes are shared out that cross between a GPU and memory that is there already.
    pub(crate) fn ring(&self) -> Result<RingOptions> {
        let ring = settings::transfer();
        Ok(self.options.budget.map_or(Ok(ring), |budget| ring.within(budget))?)
    }
}

/// Reads any object that is a tensor.
#[inline]
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>, recognised: Recognised) -> Result<Source<'py>> {
    match recognised {
        Recognised::Tensor(framework, form) => framework.framework().read(object, form),
        Recognised::Registered(place) => read_registered(object, place),
        Recognised::Protocol | Recognised::Unknown => reader::read(object),
        Recognised::Bytes | Recognised::Buffer => buffer::read(object),
        Recognised::Refused(refusal) => {
            let (fact, hint) = refusal.words();
            Err(fail(ErrorKind::NotATensor, fact, hint))
        }
        Recognised::Leaf | Recognised::Container(_) => Err(not_a_tensor(object)),
    }
}

/// Reads a tensor of a registered framework, which gives us something else to read.
fn read_registered<'py>(object: &Bound<'py, PyAny>, place: usize) -> Result<Source<'py>> {
    let given = registered::open(object, place)?;
    let source = if given.is(object) {
        reader::read(object)?
    } else {
        match recognise(&given)? {
            Recognised::Registered(_) => return Err(registered::gave_another(place)?),
            recognised => read(&given, recognised)?,
        }
    };
    registered::claim(source, object, place)
}

/// How far [`plain`] came.
pub(crate) enum Begun<'py> {
    /// To the end.
    Done(Bound<'py, PyAny>),
    /// The source is read, and the trip needs a plan.
    Read(Source<'py>),
    /// Something is wrong.
    Failed(Failure),
    /// Nowhere: it is another case.
    Nothing,
}

/// The common case and nothing else: a framework's own tensor, or a buffer, that is shared with another framework,
/// without wishes and without a trace. It needs no plan; one question to the planner says that it is a share.
#[inline]
pub(crate) fn plain<'py>(object: &Bound<'py, PyAny>, recognised: Recognised, target: Target) -> Begun<'py> {
    if trace::is_on() {
        return Begun::Nothing;
    }
    let read = match recognised {
        Recognised::Tensor(framework, form) => framework.framework().read(object, form),
        Recognised::Bytes | Recognised::Buffer => buffer::read(object),
        _ => return Begun::Nothing,
    };
    match target.facts(object.py()) {
        Ok(facts) => match read {
            Ok(source) => plain_read(object.py(), source, target, facts),
            Err(failure) => Begun::Failed(failure),
        },
        Err(failure) => Begun::Failed(failure),
    }
}

/// As [`plain`], for a source that has been read.
#[inline(always)]
fn plain_read<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: Target,
    facts: &'static TargetCapabilities,
) -> Begun<'py> {
    let access = match plan::common(&source.facts_for(facts), facts) {
        Some(FastDecision::Share(access)) => access,
        Some(FastDecision::Snapshot) => return snapshot(py, source, target),
        None => return Begun::Read(source),
    };
    // Taken apart where it lies: each move of a tensor from here to there costs as much as planning the trip.
    let mut tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { .. } => return Begun::Read(source),
    };
    flag(&mut tensor, facts, access);
    let written = if tensor.device().is_cuda() {
        let streams = source.streams.map_or_else(Streams::unnamed, |streams| *streams);
        share_gpu(py, lent(tensor, facts), streams, target, None)
    } else if is_forgotten(&tensor, facts) {
        target.write(py, mark(tensor))
    } else {
        target.write(py, tensor)
    };
    match written {
        Ok(result) => Begun::Done(result),
        Err(failure) => Begun::Failed(failure),
    }
}

/// Carries a source that has been read.
pub(crate) fn carry_read<'py>(
    py: Python<'py>,
    source: Source<'py>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    if trace::is_on() {
        return planned(py, source, request, Some(Instant::now()));
    }
    if request.options != ConvertOptions::NONE || request.stream.is_some() {
        return planned(py, source, request, None);
    }
    match plain_read(py, source, request.target, request.target.facts(py)?) {
        Begun::Done(result) => Ok(result),
        Begun::Read(source) => planned(py, source, request, None),
        Begun::Failed(failure) => Err(failure),
        Begun::Nothing => Err(not_a_tensor(&py.None().into_bound(py))),
    }
}

/// Copies dense memory whose alignment is accidental. Large tensors go by plan, which lets other threads run.
#[inline]
fn snapshot<'py>(py: Python<'py>, source: Source<'py>, target: Target) -> Begun<'py> {
    let tensor = match &source.memory {
        Memory::Here(tensor) if tensor.layout().bytes() < DETACH_FROM => tensor,
        _ => return Begun::Read(source),
    };
    match duplicate(tensor).and_then(|tensor| target.write(py, tensor)) {
        Ok(result) => Begun::Done(result),
        Err(failure) => Begun::Failed(failure),
    }
}

/// Carries one tensor.
pub(crate) fn one<'py>(
    object: &Bound<'py, PyAny>,
    recognised: Recognised,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    if request.options == ConvertOptions::NONE && request.stream.is_none() {
        match plain(object, recognised, request.target) {
            Begun::Done(result) => return Ok(result),
            Begun::Read(source) => return planned(object.py(), source, request, None),
            Begun::Failed(failure) => return Err(failure),
            Begun::Nothing => {}
        }
    }
    if stays(object.py(), recognised, request)? {
        return Ok(object.clone());
    }
    let started = trace::is_on().then(Instant::now);
    planned(object.py(), read(object, recognised)?, request, started)
}

/// Whether the object belongs to the target already and has no memory to read, such as a JAX tracer on its way to JAX.
pub(crate) fn stays(py: Python<'_>, recognised: Recognised, request: &ConversionRequest) -> Result<bool> {
    let Recognised::Refused(refusal) = recognised else { return Ok(false) };
    if !refusal.stays_home() || request.options != ConvertOptions::NONE || request.stream.is_some() {
        return Ok(false);
    }
    let home = register::of_refusal(refusal).map(|entry| entry.name);
    Ok(home == Some(request.target.facts(py)?.framework))
}

/// Carries a source that is read, by plan.
pub(crate) fn planned<'py>(
    py: Python<'py>,
    source: Source<'py>,
    request: &ConversionRequest,
    started: Option<Instant>,
) -> Result<Bound<'py, PyAny>> {
    let target = request.target.facts(py)?;
    let facts = source.facts_for(target);
    let plan = plan::decide(&facts, target, &request.options)?;
    check_stream(&facts, &plan, request)?;
    let report = started.map(|started| (started, crate::reports::TensorReport::new(&facts, target, &plan)));
    let result = run(py, source, target, &plan, request)?;
    if let Some((started, report)) = report {
        trace::record(py, report, started.elapsed())?;
    }
    Ok(result)
}

/// Begins the trip of one tensor, and says what it will be if that is to be reported.
pub(crate) fn begin_one<'py>(
    object: &Bound<'py, PyAny>,
    recognised: Recognised,
    request: &ConversionRequest,
    reported: bool,
) -> Result<(transfer::Begun<'py>, Option<crate::reports::TensorReport>)> {
    let py = object.py();
    if stays(py, recognised, request)? {
        return Ok((transfer::Begun::Done(object.clone()), None));
    }
    let source = read(object, recognised)?;
    let target = request.target.facts(py)?;
    let facts = source.facts_for(target);
    let plan = plan::decide(&facts, target, &request.options)?;
    check_stream(&facts, &plan, request)?;
    let report = reported.then(|| crate::reports::TensorReport::new(&facts, target, &plan));
    Ok((begin(py, source, target, &plan, request, true)?, report))
}

/// Sees that a stream is named only where there is one: work on the host is finished when a call returns.
pub(crate) fn check_stream(
    source: &plan::SourceDescription<'_>,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<()> {
    if request.stream.is_none() || source.device.is_cuda() || plan.device.is_cuda() {
        return Ok(());
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        "a stream orders work on a GPU, and this trip stays on the host",
        "leave stream out",
    ))
}

/// Plans one trip, moving nothing.
pub(crate) fn plan_one(
    object: &Bound<'_, PyAny>,
    recognised: Recognised,
    request: &ConversionRequest,
) -> Result<crate::reports::TensorReport> {
    let target = request.target.facts(object.py())?;
    if stays(object.py(), recognised, request)? {
        return Ok(crate::reports::TensorReport::of_itself(target.framework));
    }
    let source = read(object, recognised)?;
    let facts = source.facts_for(target);
    let plan = plan::decide(&facts, target, &request.options)?;
    check_stream(&facts, &plan, request)?;
    // What the trip would say when it gets there.
    if plan.device.is_cuda() && !matches!(plan.route, Route::Itself) {
        gpu_of(target, plan.device)?;
    }
    if plan.device.is_cuda() && request.stream.is_some() {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, request.stream.as_ref())?;
    }
    Ok(crate::reports::TensorReport::new(&facts, target, &plan))
}

fn run<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    match begin(py, source, target, plan, request, false)? {
        transfer::Begun::Done(result) => Ok(result),
        transfer::Begun::Moving(moving) => transfer::drive(py, moving, request.progress.as_ref()),
    }
}

/// Does what needs the interpreter. Copies between a GPU and the host, and all others if the caller wants them `later`, are
/// left to be done.
pub(crate) fn begin<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
    later: bool,
) -> Result<transfer::Begun<'py>> {
    let tensor = match &plan.route {
        Route::Itself => return itself(py, source, target, request).map(transfer::Begun::Done),
        Route::Share => {
            let mut source = source;
            let streams = source.take_streams();
            let mut tensor = in_place(source)?;
            prepare(&mut tensor, target, plan.device, plan.access);
            let tensor = lent(tensor, target);
            if let Some(streams) = streams {
                return share_gpu(py, tensor, streams, request.target, request.stream.as_ref())
                    .map(transfer::Begun::Done);
            }
            tensor
        }
        Route::Copy(_) if plan.device.is_cuda() => return copy_to_gpu(py, source, target, plan, request),
        Route::Copy(_) if plan.target_copies() => {
            let mut tensor = in_place(source)?;
            prepare(&mut tensor, target, plan.device, plan.access);
            tensor
        }
        Route::Copy(_) => match copy(py, source, target, plan, later)? {
            Copied::Here(mut tensor) => {
                prepare(&mut tensor, target, plan.device, plan.access);
                tensor
            }
            Copied::Later(total, work) => {
                return Ok(transfer::Begun::Moving(delivered(total, work, plan, request.target)));
            }
        },
    };
    request.target.write(py, tensor).map(transfer::Begun::Done)
}

/// Moves bytes into a block, and then makes the target's tensor of that.
fn delivered(total: usize, (work, shape): (Fetch, Vec<i64>), plan: &Plan, target: Target) -> Moving {
    let (dtype, device, access) = (plan.dtype, plan.device, plan.access);
    Moving {
        total,
        work: Box::new(move |watch| work(watch).map(Some)),
        finish: Box::new(move |py, block| {
            let block = block.map_or_else(|| HostBlock::new(0), Ok)?;
            let mut tensor = of_block(block, dtype, Layout::dense(dtype.size(), &shape)?)?;
            prepare(&mut tensor, target.facts(py)?, device, access);
            Ok(target.write(py, tensor)?.unbind())
        }),
    }
}

/// Gives the source back; a stream that was asked for waits for what is queued on it.
fn itself<'py>(
    py: Python<'py>,
    mut source: Source<'py>,
    target: &TargetCapabilities,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    if let Some(asked) = &request.stream {
        check_named_stream(request.target.builtin()?.has_named_streams(), target, Some(asked))?;
        let place = source.facts().device;
        if let Some(streams) = source.take_streams()
            && place.is_cuda()
        {
            // SAFETY: streams that the framework and the caller have just named.
            py.detach(|| unsafe {
                Gpu::get(place.index)?.order(streams.gives, SyncPoint::Stream(asked.stream))
            })?;
        }
    }
    Ok(source.object)
}

/// Shares GPU memory, in the order of both ends' streams.
#[cold]
fn share_gpu<'py>(
    py: Python<'py>,
    tensor: Tensor<Owner>,
    from: Streams,
    target: Target,
    stream: Option<&NamedStream>,
) -> Result<Bound<'py, PyAny>> {
    let framework = target.builtin()?;
    check_named_stream(framework.has_named_streams(), target.facts(py)?, stream)?;
    let to = match stream {
        Some(asked) => Streams::on(asked.stream).kept_by(asked.object.bind(py).clone()),
        None => framework.streams(py, Gpu::get(tensor.device().index)?)?,
    };
    let (tensor, waits) = gpu::hand_over(tensor, from, to)?;
    framework.write_gpu(py, tensor, waits)
}

/// The GPU that a result goes to. Where there is none at all, a framework that holds nothing else cannot help.
pub(crate) fn gpu_of(target: &TargetCapabilities, device: Device) -> Result<&'static Gpu> {
    let lost = || target.devices == SupportedDevices::Cuda && Gpu::count().unwrap_or(0) == 0;
    Gpu::get(device.index).map_err(|error| match error.kind() {
        ErrorKind::UnsupportedDevice if lost() => fail(
            ErrorKind::UnsupportedDevice,
            format!("{} holds GPU memory only, and {}", target.title, error.fact()),
            "carry it to numpy or torch, which hold host memory",
        ),
        _ => error.into(),
    })
}

/// Copies into memory of the target's own on a GPU.
fn copy_to_gpu<'py>(
    py: Python<'py>,
    source: Source<'py>,
    target: &TargetCapabilities,
    plan: &Plan,
    request: &ConversionRequest,
) -> Result<transfer::Begun<'py>> {
    let framework = request.target.builtin()?;
    check_named_stream(framework.has_named_streams(), target, request.stream.as_ref())?;
    let mut source = source;
    let streams = source.take_streams();
    let tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, .. } => {
            let tensor = materialise(&source.object, pending)?;
            if tensor.device().is_same_memory_as(plan.device)
                && fits(&tensor, target, plan.dtype)
                && let Some(streams) = streams
            {
                return share_gpu(py, tensor, streams, request.target, request.stream.as_ref())
                    .map(transfer::Begun::Done);
            }
            tensor
        }
    };
    let streams = if tensor.device().is_host() { None } else { streams };
    let near = gpu_of(target, plan.device)?;
    // On the stream where it will be used: its allocator hands it out again in the order of that one.
    let stream = request.stream.as_ref().map(|asked| asked.stream);
    let room = framework.allocate(py, plan.dtype, tensor.layout().shape(), near, stream)?;
    let Room { object, data, streams: theirs } = room;
    let total = tensor.layout().count() * plan.dtype.size();
    let filled = gpu::Target { data, dtype: plan.dtype, device: plan.device, streams: theirs, owner: None };
    let ring = RingOptions { batched: request.batched.get(), ..settings::transfer() };
    let work = gpu::fill(tensor, streams, filled, ring);
    let result = object.unbind();
    Ok(transfer::Begun::Moving(Moving {
        total,
        work: Box::new(move |watch| work(watch).map(|()| None)),
        finish: Box::new(move |_, _| Ok(result)),
    }))
}

/// Assigns a tensor to the target's CPU device that the plan names, and flags it.
fn prepare(tensor: &mut Tensor<Owner>, target: &TargetCapabilities, device: Device, access: Access) {
    tensor.set_cpu(device);
    flag(tensor, target, access);
}

/// Says to a target that listens that the memory is only to be read.
#[inline(always)]
fn flag(tensor: &mut Tensor<Owner>, target: &TargetCapabilities, access: Access) {
    if target.mutability == TargetMutability::Flagged && access == Access::ReadOnly {
        tensor.set_read_only();
    }
}

/// The memory of a source that the planner found readable in place.
#[inline(always)]
pub(crate) fn in_place(source: Source<'_>) -> Result<Tensor<Owner>> {
    match source.memory {
        Memory::Here(tensor) => Ok(tensor),
        Memory::Later { .. } => Err(fail(
            ErrorKind::NotATensor,
            format!("the values of the {} tensor are not in memory yet", source.framework),
            "leave out copy=False to allow the copy",
        )),
    }
}

/// Whether it is read-only memory that goes to a framework which will forget that it is.
#[inline(always)]
fn is_forgotten(tensor: &Tensor<Owner>, target: &TargetCapabilities) -> bool {
    tensor.access() == Access::ReadOnly && target.mutability == TargetMutability::Immutable
}

/// The memory of a source as the target is to share it: what would be forgotten gets a mark.
fn lent(tensor: Tensor<Owner>, target: &TargetCapabilities) -> Tensor<Owner> {
    if is_forgotten(&tensor, target) { mark(tensor) } else { tensor }
}

#[cold]
fn mark(tensor: Tensor<Owner>) -> Tensor<Owner> {
    if tensor.layout().is_empty() {
        return tensor;
    }
    let (low, high) = tensor.layout().extent();
    let start = (tensor.data() as usize).wrapping_add_signed(low as isize);
    let mark = read_only_loans::lend(start, start + (high - low) as usize);
    // SAFETY: a frozen owner holds the first one until its own drop.
    unsafe { tensor.map_owner(|owner| owner.frozen(mark)) }
}

/// Brings values into a block.
type Fetch = Box<dyn FnOnce(&TransferControl) -> tensorferry_core::Result<HostBlock> + Send>;

/// A copy in host memory of our own.
enum Copied {
    /// Made.
    Here(Tensor<Owner>),
    /// To be made: so many bytes, of this shape.
    Later(usize, (Fetch, Vec<i64>)),
}

/// Memory of our own with the source's values, in the type that the plan names.
fn copy(
    py: Python<'_>,
    source: Source<'_>,
    target: &TargetCapabilities,
    plan: &Plan,
    later: bool,
) -> Result<Copied> {
    let mut source = source;
    let streams = source.take_streams();
    let tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, .. } => {
            let tensor = materialise(&source.object, pending)?;
            if tensor.device().is_host()
                && tensor.access() == Access::ReadWrite
                && fits(&tensor, target, plan.dtype)
            {
                return Ok(Copied::Here(tensor));
            }
            tensor
        }
    };
    let (shape, dtype) = (tensor.layout().shape().to_vec(), plan.dtype);
    let total = tensor.layout().count() * dtype.size();
    match streams {
        Some(streams) if tensor.device().is_cuda() => {
            let work = gpu::download(tensor, streams, dtype, settings::transfer());
            Ok(Copied::Later(total, (Box::new(work), shape)))
        }
        _ if later => {
            let held = gpu::Held::new(tensor, [None, None]);
            let work = move |_: &TransferControl| {
                let tensor = &{ &held }.tensor;
                let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
                let block = HostBlock::new(layout.bytes())?;
                job(tensor, block.data(), dtype, &layout).run()?;
                Ok(block)
            };
            Ok(Copied::Later(total, (Box::new(work), shape)))
        }
        _ => packed(py, &tensor, dtype).map(Copied::Here),
    }
}

pub(crate) fn materialise(object: &Bound<'_, PyAny>, pending: plan::Pending) -> Result<Tensor<Owner>> {
    match recognise(object)? {
        Recognised::Tensor(framework, _) => framework.framework().materialise(object, pending),
        _ if pending == plan::Pending::Convert => array_method::convert(object),
        _ => Err(not_a_tensor(object)),
    }
}

/// Whether memory that nobody else uses meets the target's facts as it is.
fn fits(tensor: &Tensor<Owner>, target: &TargetCapabilities, dtype: DType) -> bool {
    let address = tensor.data() as usize;
    let facts = fresh_memory(tensor.dtype(), tensor.layout(), tensor.device());
    let facts = plan::SourceDescription { order: tensor.order(), address, ..facts };
    let options = ConvertOptions { dtype: DTypeRequest::Type(dtype), ..ConvertOptions::NONE };
    plan::decide(&facts, target, &options).is_ok_and(|plan| plan.shares() || plan.target_copies())
}
