//! `take`: a tensor of any framework as a managed tensor of DLPack.
//!
//! The fast path shares a framework's own tensor, or a buffer, in host memory. Everything else goes through the planner, with the
//! extension as the target.

use super::entry::{Step, enter};
use super::request::CheckedRequest;
use crate::arrow::read::{self, Purpose};
use crate::conversion::gpu_transfer::{DeviceDestination, copy_to_device, order_sharing};
use crate::conversion::gradient_warning;
use crate::conversion::host_copy::copy_packed;
use crate::conversion::object_kinds::Recognised;
use crate::conversion::read_only::flag_read_only;
use crate::conversion::reading::{self, materialise, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::streams::Streams;
use crate::errors::{Failure, Result, fail, type_name};
use crate::interpreter::owner::Owner;
use crate::protocols::buffer;
use crate::reports::{TensorReport, trace};
use crate::settings;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::Instant;
use tensorferry_core::c_api::Request;
use tensorferry_core::dlpack::abi::{FLAG_IS_COPIED, ManagedTensorVersioned};
use tensorferry_core::dlpack::to_versioned;
use tensorferry_core::plan::{self, FastDecision, SourceMutability};
use tensorferry_core::{Access, ByteOrder, ErrorKind, Layout, Tensor};
use tensorferry_cuda::{Gpu, Stream, StreamMemory, SyncPoint, TransferControl};

type Managed = NonNull<ManagedTensorVersioned>;

/// The function of the table.
///
/// # Safety
/// The thread has the GIL. `object` is a live object, `request` is null or valid, and `tensor` can be written.
pub(super) unsafe extern "C" fn take(
    object: *mut c_void,
    request: *const Request,
    tensor: *mut *mut ManagedTensorVersioned,
) -> c_int {
    let object = object.cast::<ffi::PyObject>();
    // SAFETY: `enter` requires the GIL, `read` a valid request and `ref_from_ptr` a live object: the contract of `take`. The
    // request outlives the call, and nothing here keeps it longer.
    let taken = unsafe {
        enter(
            |py| match CheckedRequest::read(request) {
                Ok(request) => share_fast(Bound::ref_from_ptr(py, &object), request),
                Err(failure) => Step::Slow(NotShared::Failed(failure)),
            },
            |py, state| {
                let object = Bound::ref_from_ptr(py, &object);
                match state {
                    NotShared::Failed(failure) => Err(failure),
                    NotShared::Read(source, request) => by_plan(py, source, request, None),
                    NotShared::NotRead(request) => {
                        let started = trace::is_tracing().then(Instant::now);
                        by_plan(py, read_any(object)?, request, started)
                    }
                }
            },
        )
    };
    match taken {
        // SAFETY: `tensor` can be written, by the contract of `take`.
        Some(managed) => unsafe {
            tensor.write(managed.as_ptr());
            0
        },
        None => -1,
    }
}

/// A tensor that the fast path did not share.
enum NotShared<'a, 'py> {
    /// An error.
    Failed(Failure),
    /// The source was read, and needs a plan or an error.
    Read(Source<'py>, CheckedRequest<'a>),
    /// Nothing was read.
    NotRead(CheckedRequest<'a>),
}

/// Shares host memory without a plan.
#[inline(always)]
fn share_fast<'a, 'py>(
    object: &Bound<'py, PyAny>,
    request: CheckedRequest<'a>,
) -> Step<Managed, NotShared<'a, 'py>> {
    if trace::is_tracing() || request.is_transposed() {
        return Step::Slow(NotShared::NotRead(request));
    }
    let read = match recognise(object) {
        Ok(recognised) => match (recognised.tensor(), recognised.kind()) {
            (Some(tensor), _) => tensor.framework().framework().read(tensor),
            (None, Recognised::Bytes | Recognised::Buffer) => buffer::read(object),
            _ => return Step::Slow(NotShared::NotRead(request)),
        },
        Err(failure) => Err(failure),
    };
    let source = match read {
        Ok(source) => source,
        Err(failure) => return Step::Slow(NotShared::Failed(failure)),
    };
    let target = request.capabilities();
    let access = {
        let description = source.describe();
        let is_accepted = request.accepts(&description) && description.device.is_host();
        match plan::fast_decision(&description, target) {
            Some(FastDecision::Share(access)) if is_accepted => access,
            _ => return Step::Slow(NotShared::Read(source, request)),
        }
    };
    let mut tensor = match source.memory {
        SourceMemory::InPlace(tensor) => tensor,
        SourceMemory::Pending { .. } => return Step::Slow(NotShared::Read(source, request)),
    };
    flag_read_only(&mut tensor, target, access);
    match to_versioned(tensor) {
        Ok(managed) => Step::Done(managed),
        Err(error) => Step::Slow(NotShared::Failed(error.into())),
    }
}

/// Reads any object that `to` accepts as one tensor.
fn read_any<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let resolved = read::resolve(object, Purpose::Conversion)?;
    let recognised = recognise(resolved.as_ref().unwrap_or(object))?;
    if let Recognised::Leaf | Recognised::Container(_) = recognised.kind() {
        let fact =
            format!("the extension accepts one tensor, and its argument is of type {}", type_name(object));
        return Err(fail(ErrorKind::NotATensor, fact, "pass a tensor or a buffer, such as numpy.asarray(x)"));
    }
    reading::read(recognised)
}

/// Shares or copies a source by a plan.
fn by_plan(
    py: Python<'_>,
    source: Source<'_>,
    request: CheckedRequest<'_>,
    started: Option<Instant>,
) -> Result<Managed> {
    request.check(&source)?;
    let target = request.capabilities();
    let source = if request.is_transposed() { transposed(source) } else { source };
    let description = source.describe();
    let plan =
        plan::decide(&description, target, &request.options()).map_err(|error| request.explain(error))?;
    gradient_warning::check_plan(py, &description, target, &plan)?;
    let report = started.map(|started| (started, TensorReport::new(&description, target, &plan)));
    let (is_copied, access) = (!plan.shares(), plan.access);
    let mut source = if is_copied { materialised(source, &request)? } else { source };
    let streams = source.take_streams();
    let mut tensor = if is_copied && !is_ready(&source, &request) {
        match require_in_place(source)? {
            tensor if tensor.device().is_host() => copy_packed(py, &tensor, plan.dtype)?,
            tensor => return finish(order_copy(py, tensor, streams, &request)?, true, &request, report, py),
        }
    } else {
        require_in_place(source)?
    };
    flag_read_only(&mut tensor, target, access);
    let tensor = match streams.filter(|_| tensor.device().is_cuda()) {
        Some(streams) => ordered(tensor, streams, &request)?,
        None => tensor,
    };
    finish(tensor, is_copied, &request, report, py)
}

/// Exports the tensor, and records the trip.
fn finish(
    tensor: Tensor<Owner>,
    is_copied: bool,
    request: &CheckedRequest<'_>,
    report: Option<(Instant, TensorReport)>,
    py: Python<'_>,
) -> Result<Managed> {
    let tensor = if request.is_transposed() { tensor.transposed() } else { tensor };
    let mut managed = to_versioned(tensor)?;
    if is_copied {
        // SAFETY: `as_mut` requires a struct that nothing else uses: `to_versioned` has just made it.
        unsafe { managed.as_mut() }.flags |= FLAG_IS_COPIED;
    }
    if let Some((started, report)) = report {
        trace::record(py, report, started.elapsed())?;
    }
    Ok(managed)
}

/// The same source with its axes in reverse order.
fn transposed(source: Source<'_>) -> Source<'_> {
    let memory = match source.memory {
        SourceMemory::InPlace(tensor) => SourceMemory::InPlace(tensor.transposed()),
        SourceMemory::Pending { pending, device, dtype, layout } => {
            SourceMemory::Pending { pending, device, dtype, layout: layout.transposed() }
        }
    };
    Source { memory, ..source }
}

/// The same source, with the work done that its framework has deferred.
fn materialised<'py>(source: Source<'py>, request: &CheckedRequest<'_>) -> Result<Source<'py>> {
    let SourceMemory::Pending { pending, dtype, .. } = source.memory else { return Ok(source) };
    let tensor = materialise(&source.object, pending, dtype)?;
    let tensor = if request.is_transposed() { tensor.transposed() } else { tensor };
    let mutability = SourceMutability::Temporary;
    Ok(Source { memory: SourceMemory::InPlace(tensor), mutability, ..source })
}

/// Whether the memory is new and meets the request.
fn is_ready(source: &Source<'_>, request: &CheckedRequest<'_>) -> bool {
    let description = source.describe();
    source.mutability == SourceMutability::Temporary
        && description.access == Access::ReadWrite
        && plan::decide(&description, request.capabilities(), &request.options())
            .is_ok_and(|plan| plan.shares())
}

/// The same GPU memory, ordered between the work of its framework and that of the extension.
fn ordered(tensor: Tensor<Owner>, streams: Streams, request: &CheckedRequest<'_>) -> Result<Tensor<Owner>> {
    // SAFETY: `stream` requires a stream that is alive as long as the result: the contract of the request's field.
    match unsafe { request.stream() }? {
        Some(stream) => Ok(order_sharing(tensor, streams, Streams::on(stream))?.0),
        None => Ok(tensor),
    }
}

/// Copies GPU memory into a dense block of ours, and orders the work of the extension after the copy.
fn order_copy(
    py: Python<'_>,
    tensor: Tensor<Owner>,
    streams: Option<Streams>,
    request: &CheckedRequest<'_>,
) -> Result<Tensor<Owner>> {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    let layout = Layout::dense(dtype.size(), tensor.layout().shape())?;
    let gpu = Gpu::get(device.index)?;
    let block = StreamMemory::new(gpu, 1)?.allocate(layout.bytes())?;
    let (data, stream): (*mut u8, Stream) = (block.data(), block.stream());
    // SAFETY: `DeviceDestination::new` requires GPU memory of this layout that lives until the copy is done, and that nothing else
    // uses: the block is new, has these bytes, and is held below.
    let destination =
        unsafe { DeviceDestination::new(data, dtype, layout.clone(), device, Streams::on(stream), None) };
    let work = copy_to_device(tensor, streams, destination, settings::ring_options());
    py.detach(|| work(&TransferControl::default()))?;
    let owner = Owner::Device(Box::new(block));
    // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives: the block has these bytes.
    let copy =
        unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, Access::ReadWrite, owner) }?;
    // SAFETY: as in `ordered`.
    match unsafe { request.stream() }? {
        Some(_) => ordered(copy, Streams::on(stream), request),
        None => {
            // Nothing else would tell the extension when the copy is done.
            py.detach(|| gpu.wait(SyncPoint::Stream(stream)))?;
            Ok(copy)
        }
    }
}
