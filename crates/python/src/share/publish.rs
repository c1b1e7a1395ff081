//! `publish`: tensors that other processes may attach.

use super::place::Place;
use super::structure::fold;
use super::view::{self, Copies, View};
use super::{FACTS, Room, Ticket, seconds};
use crate::api::options::{self, Keywords};
use crate::conversion::gpu;
use crate::conversion::host_copy::convert;
use crate::conversion::kinds::Recognised;
use crate::conversion::reading::materialise;
use crate::conversion::source::{self, Source};
use crate::conversion::streams::Streams;
use crate::conversion::transfer::{self, PendingTransfer};
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::reports::trace;
use crate::settings;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tensorferry_core::fallible::try_push;
use tensorferry_core::plan::{self, ConvertOptions, Note, Plan, Route, TargetCapabilities};
use tensorferry_core::{Access, Layout, emergency_pool};
use tensorferry_cuda::{Gpu, SyncPoint, TransferControl};
use tensorferry_share::{PublishOptions, PublishedTensor, SharedMemory, publish_after};

/// Lets other processes of this user attach a tensor, or a tree of tensors.
///
/// Memory that others can be given (made by `empty`, or attached; most of what is on a GPU) is published as it is: whoever
/// attaches it sees later writes. Anything else is copied once into shared memory; tensors of a tree that are the same view of
/// the same memory (tied weights) are one copy, and alias each other there as they do here. Work that is queued on a GPU tensor
/// is waited for by the consumer's stream, and by no host.
///
/// Args:
///     x: A tensor of any framework; or a dict, list or tuple of such, of numbers and of text, nested as you like.
///     device: "cpu" brings a GPU tensor into shared host memory, "cuda" the other way round.
///     dtype: The element type under which it is published. None keeps the type.
///     copy: None copies what others cannot be given, or would be given with far more, True always, False never: it
///         raises CopyRequiredError.
///     writable: False gives others memory that they cannot write; True guarantees that they can without harm to
///         anyone. None follows the memory: if one of the tensors is given as it is and is read-only or immutable, all
///         are read-only; copies can be written.
///     budget: The most bytes of shared memory for each copy.
///     once: Whether the first consumer is the last.
///     timeout: For how many seconds the ticket may be used; None for as long as it lives.
///
/// Returns:
///     A Ticket: keep it for as long as others may come.
///
/// Raises:
///     CopyRequiredError: `copy=False` was given, and the memory is of this process alone.
///     OutOfMemoryError: There is no shared memory left, or `budget` is exceeded.
///     NotATensorError: There is something in `x` that other processes cannot be given.
///
/// Example:
///     >>> ticket = ferry.publish({"x": np.arange(3)})
///     >>> ferry.attach(str(ticket), "torch")["x"].tolist()  # usually in another process
///     [0, 1, 2]
#[pyfunction]
#[pyo3(
    signature = (x, *, once=false, timeout=None, **options),
    text_signature = "(x, *, device=None, dtype=None, copy=None, writable=None, budget=None, once=False, timeout=None)"
)]
pub(crate) fn publish(
    x: &Bound<'_, PyAny>,
    once: bool,
    timeout: Option<f64>,
    options: Option<&Bound<'_, PyDict>>,
) -> Result<Ticket> {
    let py = x.py();
    emergency_pool::check_headroom()?;
    let timeout = timeout.map(|given| seconds("timeout", given)).transpose()?;
    let keywords =
        options.map_or_else(|| Ok(Keywords::none()), |given| options::parse("publish", given, false))?;
    if keywords.stream.is_some() {
        let text = "publish() got an unexpected keyword argument 'stream'";
        return Err(PyTypeError::new_err(text).into());
    }
    let mut lot = Lot::new(keywords.options);
    let structure = fold(x, &mut |leaf, recognised| lot.lay(leaf, recognised))?.write()?;
    let options = PublishOptions { once, timeout, access: lot.access };
    let Lot { tensors, ready, keepers, .. } = lot;
    // SAFETY: streams that frameworks have named just now and that are kept, or ours.
    let published = py.detach(|| unsafe { publish_after(&tensors, &structure, &options, &ready) });
    drop(keepers);
    let ticket = Ticket::of(published?);
    end_with_multiprocessing(py)?;
    Ok(ticket)
}

/// Children of multiprocessing end without the system's knowledge, by `_exit`: there, it is asked to call us.
fn end_with_multiprocessing(py: Python<'_>) -> PyResult<()> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    if ASKED.load(Ordering::Relaxed) == process {
        return Ok(());
    }
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(util) = modules.get_item("multiprocessing.util") {
        let end = PyCFunction::new_closure(py, None, None, |_, _| tensorferry_share::shut_down())?;
        let last = [("exitpriority", -1000)].into_py_dict(py)?;
        util.getattr("Finalize")?.call((py.None(), end), Some(&last))?;
        ASKED.store(process, Ordering::Relaxed);
    }
    Ok(())
}

/// What goes with one ticket.
struct Lot {
    tensors: Vec<PublishedTensor>,
    /// What was copied, so that the same memory is copied once.
    copies: Copies,
    access: Access,
    options: ConvertOptions,
    /// What consumers have to wait for.
    ready: Vec<(&'static Gpu, SyncPoint)>,
    /// What keeps the streams alive.
    keepers: Vec<Owner>,
}

impl Lot {
    fn new(options: ConvertOptions) -> Self {
        Self {
            tensors: Vec::new(),
            copies: Copies::default(),
            access: Access::ReadWrite,
            options,
            ready: Vec::new(),
            keepers: Vec::new(),
        }
    }

    /// Lays a tensor into shared memory, if it is not there.
    fn lay(&mut self, object: &Bound<'_, PyAny>, recognised: Recognised) -> Result<u32> {
        let py = object.py();
        let started = trace::is_on().then(Instant::now);
        let mut source = crate::conversion::reading::read(object, recognised)?;
        let place = Place::of(&mut source)?;
        let target = TargetCapabilities { own_memory: place.reason(&source.facts(), &self.options), ..FACTS };
        let mut plan = plan::decide(&source.facts(), &target, &self.options)?;
        let view = if plan.shares() { None } else { View::of(&source, &plan) };
        let copied = view.as_ref().and_then(|view| self.copies.find(view));
        if copied.is_some() {
            plan.route = Route::Share;
            plan.notes.push(Note::Tied);
        }
        let facts = source.facts();
        let report =
            started.map(|started| (started, crate::reports::TensorReport::new(&facts, &target, &plan)));
        let outgoing = match (copied, view) {
            (Some(copied), _) => copied,
            (None, Some(view)) => {
                let (source, kept) = view::keep(source);
                let outgoing = self.copied(py, source, &plan)?;
                self.copies.add(view, outgoing.clone(), kept);
                outgoing
            }
            (None, None) if plan.shares() => self.as_it_is(source, place)?,
            (None, None) => self.copied(py, source, &plan)?,
        };
        if plan.access == Access::ReadOnly {
            self.access = Access::ReadOnly;
        }
        if let Some((started, report)) = report {
            trace::record(py, report, started.elapsed())?;
        }
        try_push(&mut self.tensors, outgoing)?;
        Ok(self.tensors.len() as u32 - 1)
    }

    /// A tensor where it lies.
    fn as_it_is(&mut self, mut source: Source<'_>, place: Place) -> Result<PublishedTensor> {
        let streams = source.take_streams();
        let outgoing = place.outgoing(crate::conversion::reading::in_place(source)?)?;
        if let (SharedMemory::Gpu(arena), Some(streams)) = (&outgoing.memory, streams) {
            self.wait_for(arena.gpu(), streams.gives);
            self.keepers.extend(streams.keeper);
        }
        Ok(outgoing)
    }

    fn wait_for(&mut self, gpu: &'static Gpu, side: SyncPoint) {
        if !self.ready.iter().any(|(known, last)| std::ptr::eq(*known, gpu) && *last == side) {
            self.ready.push((gpu, side));
        }
    }

    /// A copy in shared memory, in the type that the plan names.
    fn copied(&mut self, py: Python<'_>, mut source: Source<'_>, plan: &Plan) -> Result<PublishedTensor> {
        let streams = source.take_streams();
        let tensor = match source.memory {
            source::Memory::Here(tensor) => tensor,
            source::Memory::Later { pending, ref layout, .. } => {
                plan::check_budget(layout.bytes(), &self.options)?;
                materialise(&source.object, pending)?
            }
        };
        let (dtype, layout) = (plan.dtype, Layout::dense(plan.dtype.size(), tensor.layout().shape())?);
        let room = Room::new(py, plan.device, layout.bytes())?;
        let outgoing = room.outgoing(dtype, layout.clone());
        let streams = if tensor.device().is_host() { None } else { streams };
        if plan.device.is_cuda() {
            let gpu = Gpu::get(plan.device.index)?;
            let stream = gpu.sync_stream()?;
            let filled = gpu::Target {
                data: room.data(),
                dtype,
                device: plan.device,
                streams: Streams::on(stream),
                owner: Some(Owner::shared(room)),
            };
            moved(py, layout.bytes(), gpu::fill(tensor, streams, filled, settings::transfer()))?;
            self.wait_for(gpu, SyncPoint::Stream(stream));
        } else if tensor.device().is_host() {
            convert(py, &tensor, room.data(), dtype, &layout)?;
        } else {
            let out = room.tensor(dtype, layout.clone())?;
            let streams = streams.unwrap_or_else(Streams::unnamed);
            moved(py, layout.bytes(), gpu::download_into(tensor, streams, out, settings::transfer()))?;
        }
        Ok(outgoing)
    }
}

/// Has bytes move, without the interpreter; Ctrl-C ends it.
fn moved(
    py: Python<'_>,
    total: usize,
    work: impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send + 'static,
) -> Result<()> {
    let work = Box::new(move |watch: &TransferControl| work(watch).map(|()| None));
    let moving = PendingTransfer { total, work, finish: Box::new(|py, _| Ok(py.None())) };
    transfer::run(py, moving, None).map(|_| ())
}
