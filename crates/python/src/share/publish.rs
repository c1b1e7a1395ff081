//! The Python function `publish`: tensors that other processes can attach.

use super::copied_views::{self, Copies, MemoryView};
use super::location::Location;
use super::structure::encode_tree;
use super::{SHARED_MEMORY, SharedBlock, Ticket, parse_seconds};
use crate::api::options::{self, ParsedKeywords};
use crate::conversion::gpu_transfer;
use crate::conversion::host_copy::copy_into;
use crate::conversion::object_kinds::RecognisedObject;
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
/// Shareable memory (from `empty_shared`, attached, or most GPU memory) is published in place: consumers see later writes.
/// Other memory is copied once into shared memory. Tensors of a tree that are the same view of the same memory (tied
/// weights) become one copy, and alias each other in it. The consumer's stream waits for work that is queued on a GPU tensor;
/// the host does not.
///
/// Args:
///     x: A tensor of any framework; or a nested dict, list or tuple of tensors, numbers and text.
///     device: "cpu" publishes a GPU tensor in shared host memory, "cuda" a host tensor in GPU memory.
///     dtype: The element type under which it is published. None keeps the type.
///     copy: None copies memory that cannot be shared, or that is a small part of a large allocation. True always copies.
///         False never copies, and raises CopyRequiredError instead.
///     writable: False publishes read-only memory; True guarantees that consumers can write, and that no immutable
///         tensor and no read-only memory changes by it. None follows the memory: if a tensor that is published in place is
///         read-only or immutable, all tensors are read-only; copies are writable.
///     budget: The maximum number of bytes of shared memory for each copy.
///     once: Whether only one consumer can attach.
///     timeout: Seconds for which the ticket is valid; None for as long as it lives.
///
/// Returns:
///     A Ticket. Consumers can attach for as long as it lives.
///
/// Raises:
///     CopyRequiredError: `copy=False` was given, and the memory cannot be shared.
///     OutOfMemoryError: Shared memory cannot be allocated, or `budget` is exceeded.
///     InvalidArgumentError: `x` contains an object that cannot be published.
///     NotATensorError: `x` contains a tensor without memory.
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
    let timeout = timeout.map(|given| parse_seconds("timeout", given)).transpose()?;
    let keywords = options
        .map_or_else(|| Ok(ParsedKeywords::none()), |given| options::parse("publish", given, false))?;
    if keywords.stream.is_some() {
        let text = "publish() got an unexpected keyword argument 'stream'";
        return Err(PyTypeError::new_err(text).into());
    }
    let mut builder = PublicationBuilder::new(keywords.options);
    let structure = encode_tree(x, &mut |leaf| builder.add_tensor(leaf))?.write()?;
    let options = PublishOptions { once, timeout, access: builder.access };
    let PublicationBuilder { tensors, ready, stream_owners, .. } = builder;
    // `stream_owners` keeps the streams alive meanwhile.
    let published = py.detach(|| publish_after(&tensors, &structure, &options, &ready));
    drop(stream_owners);
    let ticket = Ticket::new_published(published?);
    register_multiprocessing_exit(py)?;
    Ok(ticket)
}

/// Registers the shutdown with multiprocessing, whose children end by `_exit` and run no exit handlers of the system.
fn register_multiprocessing_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED_PROCESS: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    if REGISTERED_PROCESS.load(Ordering::Relaxed) == process {
        return Ok(());
    }
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(util) = modules.get_item("multiprocessing.util") {
        let shut_down = PyCFunction::new_closure(py, None, None, |_, _| tensorferry_share::shut_down())?;
        let priority = [("exitpriority", -1000)].into_py_dict(py)?;
        util.getattr("Finalize")?.call((py.None(), shut_down), Some(&priority))?;
        REGISTERED_PROCESS.store(process, Ordering::Relaxed);
    }
    Ok(())
}

/// Collects the tensors of one publication.
struct PublicationBuilder {
    tensors: Vec<PublishedTensor>,
    /// The copies so far, so that the same memory is copied once.
    copies: Copies,
    access: Access,
    options: ConvertOptions,
    /// The GPU work that consumers must wait for.
    ready: Vec<(&'static Gpu, SyncPoint)>,
    /// Keeps the streams alive until the tensors are published.
    stream_owners: Vec<Owner>,
}

impl PublicationBuilder {
    fn new(options: ConvertOptions) -> Self {
        Self {
            tensors: Vec::new(),
            copies: Copies::default(),
            access: Access::ReadWrite,
            options,
            ready: Vec::new(),
            stream_owners: Vec::new(),
        }
    }

    /// Adds a tensor, in place or as a copy, and returns its index.
    fn add_tensor(&mut self, recognised: RecognisedObject<'_, '_>) -> Result<u32> {
        let py = recognised.object().py();
        let started = trace::is_tracing().then(Instant::now);
        let mut source = crate::conversion::reading::read(recognised)?;
        let location = Location::of(&mut source)?;
        let target = TargetCapabilities {
            own_memory: location.copy_reason(&source.describe(), &self.options),
            ..SHARED_MEMORY
        };
        let mut plan = plan::decide(&source.describe(), &target, &self.options)?;
        let view = if plan.shares() { None } else { MemoryView::of(&source, &plan) };
        let known_copy = view.as_ref().and_then(|view| self.copies.find(view));
        if known_copy.is_some() {
            plan.route = Route::Share;
            plan.notes.push(Note::Tied);
        }
        let description = source.describe();
        let report =
            started.map(|started| (started, crate::reports::TensorReport::new(&description, &target, &plan)));
        let published_tensor = match (known_copy, view) {
            (Some(known_copy), _) => known_copy,
            (None, Some(view)) => {
                let (source, held) = copied_views::hold(source);
                let published_tensor = self.publish_copy(py, source, &plan)?;
                self.copies.add(view, published_tensor.clone(), held);
                published_tensor
            }
            (None, None) if plan.shares() => self.publish_in_place(source, location)?,
            (None, None) => self.publish_copy(py, source, &plan)?,
        };
        if plan.access == Access::ReadOnly {
            self.access = Access::ReadOnly;
        }
        if let Some((started, report)) = report {
            trace::record(py, report, started.elapsed())?;
        }
        try_push(&mut self.tensors, published_tensor)?;
        Ok(self.tensors.len() as u32 - 1)
    }

    /// Publishes a tensor in place.
    fn publish_in_place(&mut self, mut source: Source<'_>, location: Location) -> Result<PublishedTensor> {
        let streams = source.take_streams();
        let published_tensor = location.publish(crate::conversion::reading::require_in_place(source)?)?;
        if let (SharedMemory::Gpu(arena), Some(streams)) = (&published_tensor.memory, streams) {
            self.add_sync_point(arena.gpu(), streams.ready_after);
            self.stream_owners.extend(streams.owner);
        }
        Ok(published_tensor)
    }

    fn add_sync_point(&mut self, gpu: &'static Gpu, sync_point: SyncPoint) {
        if !self.ready.iter().any(|(known, last)| std::ptr::eq(*known, gpu) && *last == sync_point) {
            self.ready.push((gpu, sync_point));
        }
    }

    /// Publishes a copy in shared memory, with the dtype and device of the plan.
    fn publish_copy(
        &mut self,
        py: Python<'_>,
        mut source: Source<'_>,
        plan: &Plan,
    ) -> Result<PublishedTensor> {
        let streams = source.take_streams();
        let tensor = match source.memory {
            source::SourceMemory::InPlace(tensor) => tensor,
            source::SourceMemory::Pending { dtype, ref layout, .. } => {
                plan::check_budget(layout.bytes(), &self.options)?;
                materialise(&source.object, &source.memory, dtype)?
            }
        };
        let (dtype, layout) = (plan.dtype, Layout::dense(plan.dtype.size(), tensor.layout().shape())?);
        let block = SharedBlock::new(py, plan.device, layout.bytes())?;
        let published_tensor = block.published(dtype, layout.clone());
        let streams = if tensor.device().is_host() { None } else { streams };
        if plan.device.is_cuda() {
            let gpu = Gpu::get(plan.device.index)?;
            let stream = gpu.sync_stream()?;
            let out = block.tensor(dtype, layout.clone())?;
            let target = gpu_transfer::DeviceDestination::from_tensor(out, Streams::on(stream))?;
            run_transfer(
                py,
                layout.bytes(),
                gpu_transfer::copy_to_device(tensor, streams, target, settings::ring_options()),
            )?;
            self.add_sync_point(gpu, SyncPoint::Stream(stream));
        } else if tensor.device().is_host() {
            copy_into(Some(py), &tensor, &block.tensor(dtype, layout)?)?;
        } else {
            let out = block.tensor(dtype, layout.clone())?;
            let streams = streams.unwrap_or_else(Streams::unnamed);
            run_transfer(
                py,
                layout.bytes(),
                gpu_transfer::download_into(tensor, streams, out, settings::ring_options()),
            )?;
        }
        Ok(published_tensor)
    }
}

/// Runs a transfer with the GIL released; Ctrl-C cancels it.
fn run_transfer(
    py: Python<'_>,
    total: usize,
    work: impl FnOnce(&TransferControl) -> tensorferry_core::Result<()> + Send + 'static,
) -> Result<()> {
    let work = Box::new(move |control: &TransferControl| work(control).map(|()| None));
    let moving = PendingTransfer { total, block: None, work, finish: Box::new(|py, _| Ok(py.None())) };
    transfer::run(py, moving, None).map(|_| ())
}
