//! The Python function `attach`: conversion of tensors that another process has published.

use super::structure::decode_tree;
use super::{FRAMEWORK_NAME, Ticket, parse_seconds};
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::Source;
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result};
use crate::interpreter::guard::without_interpreter;
use crate::interpreter::owner::{InterprocessMemory, Owner};
use crate::reports::trace;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensorferry_core::fallible::try_collect;
use tensorferry_core::plan::{
    self, Alignment, ConvertOptions, SourceDescription, SourceMutability, TargetCapabilities,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, Error, ErrorKind, Layout, Tensor, emergency_pool};
use tensorferry_cuda::{Gpu, SyncPoint};
use tensorferry_share::{
    Attached, AttachedTensor, ReadyState, SharedMemory, TreeStructure, attach_cancellable,
};

/// The default time to wait for the producer.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// Attaches tensors that another process has published, sharing the memory where the framework can use it.
///
/// Attached host memory stays valid when the producer ends. This process holds a lease until its last tensor is released;
/// releasing the last tensor on a GPU waits for the work that is queued there, while other Python threads run.
///
/// Args:
///     ticket: A Ticket, or its text or bytes.
///     framework: The framework of the result, by name or as its module.
///     device, dtype, copy, writable, stream, budget: As for `to`.
///     timeout: Seconds to wait for the producer; 30 by default.
///
/// Returns:
///     The published tensors, in the same containers.
///
/// Raises:
///     TicketError: The ticket was withdrawn, used up or has expired, or its process has ended.
///     CopyRequiredError: `copy=False` was given, and the framework cannot use the memory.
///
/// Example:
///     >>> with ferry.publish(np.arange(3)) as ticket:
///     ...     t = ferry.attach(ticket, "torch")
///     >>> t.tolist()
///     [0, 1, 2]
#[pyfunction]
#[pyo3(
    signature = (ticket, framework=None, *, timeout=None, **options),
    text_signature = "(ticket, framework='numpy', *, device=None, dtype=None, copy=None, writable=None, \
                      stream=None, budget=None, timeout=None)"
)]
pub(crate) fn attach<'py>(
    ticket: &Bound<'py, PyAny>,
    framework: Option<&Bound<'py, PyAny>>,
    timeout: Option<f64>,
    options: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let py = ticket.py();
    emergency_pool::check_headroom()?;
    let claim = Ticket::claim_of(ticket)?;
    let timeout = timeout.map_or(Ok(ATTACH_TIMEOUT), |given| parse_seconds("timeout", given))?;
    let numpy = PyString::intern(py, "numpy").into_any();
    let request = ConversionRequest::from_keywords("attach", framework.unwrap_or(&numpy), options)?;
    check_options(request.target.capabilities(py)?, &request.options)?;
    let attached = fetch(py, &claim, timeout)?;
    let result = convert_tree(ticket, &attached, &request);
    // Dropping a tensor without a result waits for GPU work.
    if !attached.ready.is_empty() {
        without_interpreter(move || drop(attached));
    }
    result
}

/// Converts the attached tensors, in their containers.
fn convert_tree<'py>(
    ticket: &Bound<'py, PyAny>,
    attached: &Attached,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let py = ticket.py();
    let structure = TreeStructure::read(&attached.structure, attached.tensors.len())?;
    let empty = attached.tensors.iter().map(|_| Ok::<_, Failure>(None));
    let mut results: Vec<Option<Bound<'py, PyAny>>> = try_collect(empty)?;
    batch::batched(py, request, || {
        decode_tree(py, &structure, &mut |number| {
            let result = &mut results[number as usize];
            if let Some(known) = result {
                return Ok(known.clone());
            }
            let started = trace::is_tracing().then(Instant::now);
            let tensor = &attached.tensors[number as usize];
            let mut source = Source::in_place(ticket.clone(), FRAMEWORK_NAME, tensor_of(tensor)?);
            if let SharedMemory::Gpu(arena) = tensor.memory() {
                source = source.with_streams(streams_of(arena.gpu(), &attached.ready)?);
            }
            let converted = convert::convert_by_plan(py, source, request, started)?;
            Ok(result.insert(converted).clone())
        })
    })
}

/// Checks the options before the attach uses up a ticket that is valid once.
fn check_options(target: &TargetCapabilities, options: &ConvertOptions) -> Result<()> {
    let layout = Layout::dense(4, &[1])?;
    let sample = SourceDescription {
        framework: FRAMEWORK_NAME,
        dtype: DType::Float32,
        layout: &layout,
        device: Device::CPU,
        order: ByteOrder::Native,
        address: 0,
        alignment: Alignment::Guaranteed,
        access: Access::ReadWrite,
        mutability: SourceMutability::Mutable,
        pending: None,
        through_array: false,
        counts: None,
        drop_lock: false,
    };
    let device_options =
        ConvertOptions { device: options.device, writable: options.writable, ..ConvertOptions::NONE };
    let device = plan::decide(&sample, target, &device_options)?.device;
    if device.is_cuda() {
        crate::conversion::to_gpu::gpu_of(target, device)?;
    }
    if target.own_memory.is_some() && options.copy == Some(false) {
        plan::decide(&sample, target, &ConvertOptions { copy: Some(false), ..ConvertOptions::NONE })?;
    }
    Ok(())
}

/// Attaches with the GIL released; Ctrl-C cancels the wait.
fn fetch(py: Python<'_>, claim: &tensorferry_share::Ticket, timeout: Duration) -> Result<Attached> {
    let (attached, raised) = py.detach(|| {
        let raised = RefCell::new(None);
        let attached = attach_cancellable(claim, timeout, &|| {
            Python::attach(|py| py.check_signals()).map_err(|error| {
                raised.replace(Some(error));
                Error::new(ErrorKind::Cancelled, "the call was interrupted")
            })
        });
        (attached, raised.into_inner())
    });
    match raised {
        Some(error) => Err(Failure::from(error)),
        None => Ok(attached?),
    }
}

impl InterprocessMemory for AttachedTensor {
    fn drop_may_block(&self) -> bool {
        let SharedMemory::Gpu(arena) = self.memory() else { return false };
        Arc::strong_count(self.lease()) == 1 || Arc::strong_count(arena) == 1
    }
}

/// The streams of an attached tensor: ready after the producer's work. The release waits for nothing here, because the lease does.
fn streams_of(gpu: &'static Gpu, ready: &[ReadyState]) -> Result<Streams> {
    for ready in ready.iter().filter(|ready| std::ptr::eq(ready.gpu(), gpu)) {
        if !ready.is_ready()? {
            let sync_point = SyncPoint::Stream(gpu.sync_stream()?);
            ready.order(sync_point)?;
            return Ok(Streams::new(sync_point, SyncPoint::Complete));
        }
    }
    Ok(Streams::new(SyncPoint::Complete, SyncPoint::Complete))
}

fn tensor_of(attached: &AttachedTensor) -> Result<Tensor<Owner>> {
    let (data, access) = (attached.data(), attached.access());
    let (dtype, layout, device) = (attached.dtype(), attached.layout().clone(), attached.device());
    let owner = Owner::shared(attached.clone());
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the reader of the message accepts only tensors whose
    // every element is inside the mapping, which an `AttachedTensor` keeps alive.
    Ok(unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, access, owner) }?)
}
