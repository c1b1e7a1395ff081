//! `attach`: tensors that another process has published.

use super::structure::unfold;
use super::{NAME, Ticket, seconds};
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::Source;
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result};
use crate::interpreter::guard::without_interpreter;
use crate::interpreter::owner::{Lend, Owner};
use crate::reports::trace;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
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

/// How long a producer may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Carries what another process has published to a framework: the same memory, where the framework can use it.
///
/// Host memory that is attached stays valid when the producer ends. It is held for this process until the last tensor is
/// gone; the last tensor on a GPU waits for the work that is queued there when it goes, and other threads go on meanwhile.
///
/// Args:
///     ticket: A Ticket, or its text or bytes.
///     framework: Whose tensors they become.
///     device, dtype, copy, writable, stream, budget: As for `to`.
///     timeout: For how many seconds to wait for the producer; 30 if left out.
///
/// Returns:
///     What was published, in the same containers.
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
    let timeout = timeout.map_or(Ok(PATIENCE), |given| seconds("timeout", given))?;
    let numpy = PyString::intern(py, "numpy").into_any();
    let request = ConversionRequest::from_keywords("attach", framework.unwrap_or(&numpy), options)?;
    check(request.target.facts(py)?, &request.options)?;
    let attached = fetched(py, &claim, timeout)?;
    let structure = TreeStructure::read(&attached.structure, attached.tensors.len())?;
    let nothing = attached.tensors.iter().map(|_| Ok::<_, Failure>(None));
    let mut results: Vec<Option<Bound<'py, PyAny>>> = try_collect(nothing)?;
    batch::batched(py, &request, || {
        unfold(py, &structure, &mut |number| {
            let place = &mut results[number as usize];
            if let Some(known) = place {
                return Ok(known.clone());
            }
            let started = trace::is_on().then(Instant::now);
            let tensor = &attached.tensors[number as usize];
            let mut source = Source::here(ticket.clone(), NAME, of_attached(tensor)?);
            if let SharedMemory::Gpu(arena) = tensor.memory() {
                source = source.with_streams(streams_of(arena.gpu(), &attached.ready)?);
            }
            let result = convert::convert_by_plan(py, source, &request, started)?;
            Ok(place.insert(result).clone())
        })
    })
}

/// Sees that the wishes can be met by somebody, before a ticket that is good once is used.
fn check(target: &TargetCapabilities, options: &ConvertOptions) -> Result<()> {
    let layout = Layout::dense(4, &[1])?;
    let sample = SourceDescription {
        framework: NAME,
        dtype: DType::Float32,
        layout: &layout,
        device: Device::CPU,
        order: ByteOrder::Native,
        address: 0,
        alignment: Alignment::Guaranteed,
        access: Access::ReadWrite,
        mutability: SourceMutability::Mutable,
        pending: None,
        requires_grad: false,
        through_array: false,
        drop_lock: false,
    };
    let plain = ConvertOptions { device: options.device, writable: options.writable, ..ConvertOptions::NONE };
    let device = plan::decide(&sample, target, &plain)?.device;
    if device.is_cuda() {
        crate::conversion::to_gpu::gpu_of(target, device)?;
    }
    if target.own_memory.is_some() && options.copy == Some(false) {
        plan::decide(&sample, target, &ConvertOptions { copy: Some(false), ..ConvertOptions::NONE })?;
    }
    Ok(())
}

/// Asks the producer, without the interpreter; Ctrl-C ends it.
fn fetched(py: Python<'_>, claim: &tensorferry_share::Ticket, timeout: Duration) -> Result<Fetched> {
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
        None => Ok(Fetched(ManuallyDrop::new(attached?))),
    }
}

/// What was attached, for as long as results are made of it.
struct Fetched(ManuallyDrop<Attached>);

impl Deref for Fetched {
    type Target = Attached;

    fn deref(&self) -> &Attached {
        &self.0
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again.
        let attached = unsafe { ManuallyDrop::take(&mut self.0) };
        // What became of none of the results is waited for, on the GPUs that it is on.
        if !attached.ready.is_empty() {
            without_interpreter(move || drop(attached));
        }
    }
}

impl Lend for AttachedTensor {
    fn waits(&self) -> bool {
        let SharedMemory::Gpu(arena) = self.memory() else { return false };
        Arc::strong_count(self.lease()) == 1 || Arc::strong_count(arena) == 1
    }
}

/// Where what another process has queued on a tensor can be waited for. Nobody waits when it is let go: the lease does.
fn streams_of(gpu: &'static Gpu, ready: &[ReadyState]) -> Result<Streams> {
    for ready in ready.iter().filter(|ready| std::ptr::eq(ready.gpu(), gpu)) {
        if !ready.is_now()? {
            let meeting = SyncPoint::Stream(gpu.sync_stream()?);
            // SAFETY: a stream of ours.
            unsafe { ready.order(meeting)? };
            return Ok(Streams::between(meeting, SyncPoint::Nothing));
        }
    }
    Ok(Streams::between(SyncPoint::Nothing, SyncPoint::Nothing))
}

fn of_attached(attached: &AttachedTensor) -> Result<Tensor<Owner>> {
    let (data, access) = (attached.data(), attached.access());
    let (dtype, layout, device) = (attached.dtype(), attached.layout().clone(), attached.device());
    let owner = Owner::shared(attached.clone());
    // SAFETY: the message's reader has seen that every element lies in the mapping, which the owner keeps.
    Ok(unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, access, owner) }?)
}
