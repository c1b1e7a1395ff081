//! Batches of `ferry.feed`: the start of a batch's job on the feeder's thread, and the order of its work with the consumer's streams.
//!
//! `tensorferry.feeding` has the thread and the queue. Here a batch differs from the tree of `to_async` in four points: its device
//! and its type may be prefix trees, arrays of text pass beside a tensor, sparse tensors are converted at once, and memory that the
//! loader may write again is copied.

mod prefix_tree;

use crate::api::job::{self, JobConversion, JobTensor, JobTree, JobWork, LateConversion, PreparedJob};
use crate::api::options::{self, ParsedKeywords};
use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::convert::StartedObject;
use crate::conversion::epoch_memory::EpochMemory;
use crate::conversion::gpu_transfer::order_sharing;
use crate::conversion::object_kinds::{Recognised, RecognisedObject};
use crate::conversion::reading::{read, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::sharded;
use crate::conversion::streams::Streams;
use crate::conversion::transfer::{PendingTransfer, Started};
use crate::errors::{Failure, Result, is_dataset};
use crate::frameworks::{self, Target};
use crate::sparse::{self, SparseCall, retry_as_sparse};
use crate::trees::path::Path;
use crate::trees::traverse;
use prefix_tree::PrefixTree;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use tensorferry_core::{Device, ErrorKind};
use tensorferry_cuda::{Gpu, Stream, SyncPoint, TransferControl};

/// The advice for a dataset of Hugging Face whose rows are Python objects.
const DATASET_ADVICE: &str =
    "feed ferry.arrow.batches(dataset, rows, \"numpy\"), which reads the columns as tensors";

/// The options of a feed. `stable` says that the loader never writes the memory of a batch again.
#[pyclass(frozen, module = "tensorferry._native", name = "_BatchOptions")]
pub(crate) struct BatchOptions {
    framework: Py<PyAny>,
    target: Target,
    device: PrefixTree,
    dtype: PrefixTree,
    copy: Option<bool>,
    is_stable: bool,
    /// Whether the loader is a dataset of Hugging Face.
    is_dataset: bool,
}

#[pymethods]
impl BatchOptions {
    #[new]
    fn new(
        loader: &Bound<'_, PyAny>,
        framework: &Bound<'_, PyAny>,
        device: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        copy: &Bound<'_, PyAny>,
        stable: bool,
    ) -> Result<Self> {
        let check = |name: &'static str| {
            move |value: &Bound<'_, PyAny>| -> Result<()> {
                let keywords = PyDict::new(value.py());
                keywords.set_item(name, value)?;
                options::parse("feed", &keywords, false).map(|_| ())
            }
        };
        check("copy")(copy)?;
        let target = frameworks::target(framework)?;
        // Imports the framework on the consumer's thread.
        target.capabilities(framework.py())?;
        Ok(Self {
            framework: framework.clone().unbind(),
            target,
            device: PrefixTree::new("device", device, &check("device"))?,
            dtype: PrefixTree::new("dtype", dtype, &check("dtype"))?,
            copy: copy.extract()?,
            is_stable: stable,
            is_dataset: is_dataset(loader),
        })
    }

    /// Prepares the job of a batch. Called on the feeder's thread, which runs it afterwards.
    fn start(slf: &Bound<'_, Self>, batch: &Bound<'_, PyAny>, memory: &BatchMemory) -> Result<StartedBatch> {
        let place = format!("batch {}", memory.0.begin_batch());
        Self::start_batch(slf, batch, memory, &place).map_err(|failure| match failure {
            Failure::Ferry(error) if error.kind() == ErrorKind::NotATensor => {
                let error = error.at(&place);
                if slf.get().is_dataset { error.with_advice(DATASET_ADVICE) } else { error }.into()
            }
            other => other,
        })
    }
}

impl BatchOptions {
    fn start_batch<'py>(
        slf: &Bound<'py, Self>,
        batch: &Bound<'py, PyAny>,
        memory: &BatchMemory,
        place: &str,
    ) -> Result<StartedBatch> {
        let (py, this) = (slf.py(), slf.get());
        // One object may get two types if it appears twice.
        let visits_each = !(this.device.is_uniform() && this.dtype.is_uniform());
        let resolved = arrow::read::resolve(batch, Purpose::Conversion)?;
        let batch = resolved.as_ref().unwrap_or(batch);
        this.device.check("device", batch, "")?;
        this.dtype.check("dtype", batch, "")?;
        let mut work = JobWork::new(py)?;
        let is_traced = work.is_traced();
        let mut start = BatchStart {
            options: this,
            batch,
            memory: &memory.0,
            is_traced,
            streams: Vec::new(),
            has_tensor: false,
            text_failure: None,
        };
        let recognised = recognise(batch)?;
        if let Some(container) = traverse::container_of(recognised)? {
            let tree = traverse::walk_for_job(batch, container, visits_each, &mut |leaf, path| {
                work.add(start.start_tensor(leaf, path)?, path)?;
                Ok(leaf.object().clone())
            })?;
            let object = tree.unbind();
            let late_conversion =
                Box::new(LateBatch { options: slf.clone().unbind(), batch: object.clone_ref(py) });
            work.tree = Some(JobTree { object, visits_each, late_conversion });
        } else {
            work.tensors.push(start.start_tensor(recognised, &Path::ROOT)?);
        }
        if let (Some(failure), false) = (start.text_failure, start.has_tensor) {
            return Err(failure.within(place));
        }
        let (job, prepared) = job::prepare_job(py, work, TransferControl::timed())?;
        let (job, prepared) = (job.unbind(), Mutex::new(prepared));
        Ok(StartedBatch { job, prepared, target: this.target, streams: start.streams })
    }

    /// The keyword arguments of `to` for one tensor.
    fn keywords<'py>(&self, batch: &Bound<'py, PyAny>, path: &Path<'py, '_>) -> Result<Bound<'py, PyDict>> {
        let py = batch.py();
        let keywords = PyDict::new(py);
        for (name, option) in [("device", &self.device), ("dtype", &self.dtype)] {
            if let Some(value) = option.value_at(batch, path.steps())? {
                keywords.set_item(name, value)?;
            }
        }
        if let Some(copy) = self.copy {
            keywords.set_item("copy", copy)?;
        }
        Ok(keywords)
    }

    fn request(&self, keywords: &Bound<'_, PyDict>) -> Result<ConversionRequest> {
        let ParsedKeywords { options, sharding, .. } = options::parse("feed", keywords, false)?;
        let is_snapshot = self.copy.is_none() && !self.is_stable;
        Ok(ConversionRequest { options, sharding, is_snapshot, ..ConversionRequest::new(self.target) })
    }
}

/// The start of a batch's job.
struct BatchStart<'a, 'py> {
    options: &'a BatchOptions,
    batch: &'a Bound<'py, PyAny>,
    memory: &'a Arc<EpochMemory>,
    is_traced: bool,
    /// The streams of the results, if the users of the target choose streams.
    streams: Vec<EpochStream>,
    has_tensor: bool,
    /// Why the first array of text in the tree is not a tensor. It passes beside a tensor.
    text_failure: Option<Failure>,
}

impl<'py> BatchStart<'_, 'py> {
    /// Starts the conversion of one tensor.
    fn start_tensor(&mut self, leaf: RecognisedObject<'_, 'py>, path: &Path<'py, '_>) -> Result<JobTensor> {
        let object = leaf.object();
        let py = object.py();
        let keywords = self.options.keywords(self.batch, path)?;
        let request = ConversionRequest {
            epoch_memory: Some(Arc::clone(self.memory)),
            ..self.options.request(&keywords)?
        };
        let source = object.clone().unbind();
        let begun = match sharded::start_object(leaf, &request, self.is_traced) {
            Ok(begun) => begun,
            Err(failure) if is_text(object)? => {
                let is_root = path.steps().is_empty();
                let located = if is_root { failure } else { failure.at(&path.format()) };
                self.text_failure.get_or_insert(located);
                let result = if request.is_snapshot && object.hasattr("flags")? {
                    object.call_method0("copy")?
                } else {
                    object.clone()
                };
                let conversion = JobConversion::Done(result.unbind());
                return Ok(JobTensor { source, conversion, reports: Vec::new() });
            }
            Err(failure) => {
                let framework = self.options.framework.bind(py);
                if request.is_snapshot {
                    keywords.set_item("copy", true)?;
                }
                let result = retry_as_sparse(failure, SparseCall::To, object, framework, Some(&keywords))?;
                self.has_tensor = true;
                let conversion = JobConversion::Done(result.unbind());
                return Ok(JobTensor { source, conversion, reports: Vec::new() });
            }
        };
        self.has_tensor = true;
        let StartedObject { mut started, reports, device, is_gpu_source } = begun;
        if let Some(device) = device.filter(|device| device.is_cuda())
            && self.options.target.builtin()?.has_named_streams()
        {
            let block = if let Started::Transfer(pending) = &started { pending.block } else { None };
            let (address, stream) = match block {
                Some((address, stream)) => (Some(address), stream),
                None => (None, self.memory.stream(Gpu::get(device.index)?)?),
            };
            if is_gpu_source {
                started = move_to_stream(started, self.options.target, stream)?;
            }
            // The host waits for uploads, and not for other work.
            let ready_after = if is_gpu_source { SyncPoint::Stream(stream) } else { SyncPoint::Complete };
            self.streams.push(EpochStream { device, address, ready_after, stream });
        }
        Ok(JobTensor { source, conversion: started.into(), reports })
    }
}

/// Whether the object is an array of text or of Python objects, which is not a tensor.
fn is_text(object: &Bound<'_, PyAny>) -> Result<bool> {
    let Ok(Some(dtype)) = object.getattr_opt("dtype") else { return Ok(false) };
    let text = |name: &str| -> PyResult<String> {
        Ok(dtype.getattr_opt(name)?.map(|value| value.to_string()).unwrap_or_default())
    };
    Ok(["O", "U", "S", "T"].contains(&text("kind")?.as_str()) || text("name")? == "string")
}

/// The stream of one result.
struct EpochStream {
    device: Device,
    /// The address of the result, if it is known already.
    address: Option<usize>,
    ready_after: SyncPoint,
    stream: Stream,
}

/// Moves a result from the current stream of the feeder's thread to the stream of the epoch.
fn move_to_stream<'py>(started: Started<'py>, target: Target, stream: Stream) -> Result<Started<'py>> {
    Ok(match started {
        Started::Done(result) => Started::Done(share_on_stream(&result, target, None, Streams::on(stream))?),
        Started::Transfer(PendingTransfer { total, work, finish, .. }) => {
            let finish = Box::new(move |py: Python<'_>, moved| {
                let result = finish(py, moved)?.into_bound(py);
                Ok(share_on_stream(&result, target, None, Streams::on(stream))?.unbind())
            });
            Started::Transfer(PendingTransfer { total, block: None, work, finish })
        }
    })
}

/// A tensor of the target over the memory of another one of its tensors, for use on the streams `to`. `from` are the streams of the
/// memory, if not the current ones of this thread.
fn share_on_stream<'py>(
    result: &Bound<'py, PyAny>,
    target: Target,
    from: Option<Streams>,
    to: Streams,
) -> Result<Bound<'py, PyAny>> {
    let (py, framework) = (result.py(), target.builtin()?);
    let source = read(recognise(result)?)?;
    let from = match from {
        Some(streams) => streams,
        None => framework.streams(py, Gpu::get(source.describe().device.index)?)?,
    };
    let (tensor, waiting) = order_sharing(require_in_place(source)?, from, to)?;
    framework.write_gpu(py, tensor, waiting)
}

/// Converts what a batch got after its start.
struct LateBatch {
    options: Py<BatchOptions>,
    batch: Py<PyAny>,
}

impl LateConversion for LateBatch {
    fn convert<'py>(
        &self,
        leaf: RecognisedObject<'_, 'py>,
        path: &Path<'py, '_>,
    ) -> Result<Bound<'py, PyAny>> {
        let options = self.options.get();
        let keywords = options.keywords(self.batch.bind(leaf.object().py()), path)?;
        sharded::convert_object(leaf, &options.request(&keywords)?)
    }
}

/// A batch whose job has started.
#[pyclass(frozen, module = "tensorferry._native", name = "_StartedBatch")]
pub(crate) struct StartedBatch {
    #[pyo3(get)]
    job: Py<PyAny>,
    prepared: Mutex<Option<PreparedJob>>,
    target: Target,
    /// The streams of the results on GPUs.
    streams: Vec<EpochStream>,
}

#[pymethods]
impl StartedBatch {
    /// Moves the bytes on this thread, the feeder's. Then the job is done.
    fn run(&self, py: Python<'_>) {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(prepared) = prepared {
            prepared.run(py);
        }
    }

    /// Orders the work of the consumer's current streams after the uploads, and the reuse of the memory after the consumer's work.
    /// Called on the consumer's thread with the result of the job; returns the batch for the consumer.
    fn order_for_consumer<'py>(&self, result: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = result.py();
        if self.streams.is_empty() {
            return Ok(result);
        }
        traverse::walk_any(&result, false, &mut |leaf, _| {
            let object = leaf.object();
            let Recognised::Tensor(..) = leaf.kind() else { return Ok(object.clone()) };
            if sparse::is_sparse(object)? {
                return Ok(object.clone());
            }
            let source = read(leaf)?;
            let description = source.describe();
            let (device, address) = (description.device, description.address);
            match self.stream_of(device, address) {
                Some(known) => {
                    let feeder = Streams::new(known.ready_after, SyncPoint::Stream(known.stream));
                    let consumer = self.target.builtin()?.streams(py, Gpu::get(device.index)?)?;
                    share_on_stream(object, self.target, Some(feeder), consumer)
                }
                None => Ok(object.clone()),
            }
        })
    }
}

impl StartedBatch {
    /// The stream of a result. Results of unknown address on one GPU have the same stream, and if one of them waits for queued work,
    /// all of them do.
    fn stream_of(&self, device: Device, address: usize) -> Option<&EpochStream> {
        let on_device = || self.streams.iter().filter(move |known| known.device == device);
        let others = || on_device().filter(|known| known.address.is_none());
        on_device()
            .find(|known| known.address == Some(address))
            .or_else(|| others().find(|known| known.ready_after != SyncPoint::Complete))
            .or_else(|| others().next())
    }
}

/// The GPU memory of one epoch.
#[pyclass(frozen, module = "tensorferry._native", name = "_BatchMemory")]
pub(crate) struct BatchMemory(Arc<EpochMemory>);

#[pymethods]
impl BatchMemory {
    #[new]
    fn new(prefetch: usize) -> Self {
        Self(Arc::new(EpochMemory::new(prefetch)))
    }

    /// Frees what is idle, and from now on all memory that is released.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchMemory>()?;
    module.add_class::<BatchOptions>()?;
    module.add_class::<StartedBatch>()
}
