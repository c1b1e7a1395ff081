//! `take`: a tensor of any framework as a managed tensor of DLPack.
//!
//! The fast path shares a framework's own tensor, or a buffer, in host memory. Everything else goes through the planner, with the
//! extension as the target.

use super::borrow::{BorrowDuringCopy, BorrowedMemory, array_of, begin_of};
use super::entry::{Step, enter};
use super::request::CheckedRequest;
use crate::arrow::read::{self, Purpose};
use crate::conversion::gpu_transfer::{DeviceDestination, copy_to_device, order_sharing};
use crate::conversion::gradient_warning;
use crate::conversion::host_copy::copy_packed;
use crate::conversion::object_kinds::{Builtin, Recognised};
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
use tensorferry_core::dlpack::{ManagedOwner, to_versioned, to_versioned_by};
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
                    NotShared::Read(source, request) => by_plan(object, source, request, None),
                    NotShared::NotRead(request) => {
                        let started = trace::is_tracing().then(Instant::now);
                        by_plan(object, read_any(object)?, request, started)
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
    let (mut read, array) = match recognise(object) {
        Ok(recognised) => match (recognised.tensor(), recognised.kind()) {
            (Some(tensor), _) => {
                let array = (tensor.framework() == Builtin::Numpy).then_some(object);
                (tensor.framework().framework().read(tensor), array)
            }
            (None, Recognised::Bytes | Recognised::Buffer) => (buffer::read(object), None),
            _ => return Step::Slow(NotShared::NotRead(request)),
        },
        Err(failure) => (Err(failure), None),
    };
    let target = request.capabilities();
    // The source stays where it is: to move it costs more than the decision.
    let shared = match &read {
        Ok(source) => {
            let description = source.describe();
            let is_accepted = request.accepts(&description) && description.device.is_host();
            plan::fast_decision(&description, target).filter(|_| is_accepted)
        }
        Err(_) => None,
    };
    if let Some(FastDecision::Share(access)) = shared
        && let Ok(Source { memory: SourceMemory::InPlace(tensor), .. }) = &mut read
    {
        flag_read_only(tensor, target, access);
        return match exported(object.py(), tensor, array, &request) {
            Ok(managed) => Step::Done(managed),
            Err(failure) => Step::Slow(NotShared::Failed(failure)),
        };
    }
    Step::Slow(match read {
        Ok(source) => NotShared::Read(source, request),
        Err(failure) => NotShared::Failed(failure),
    })
}

/// Exports a tensor, and borrows its memory if the request says so. `array` is the tensor of NumPy that it was read from, if it was
/// one. The tensor loses its owner.
#[inline(always)]
fn exported(
    py: Python<'_>,
    tensor: &mut Tensor<Owner>,
    array: Option<&Bound<'_, PyAny>>,
    request: &CheckedRequest<'_>,
) -> Result<Managed> {
    let borrow = match request.is_borrowed() {
        true => Some(begin_of(py, tensor, array, request.is_writable())?),
        false => None,
    };
    // SAFETY: `owner_mut` requires that the owner keeps the memory until the tensor is no longer used. The callers drop the tensor
    // after this call, and the owner lives until then: in the struct, or, after an error, in the arguments of `to_versioned_by`.
    let owner = unsafe { tensor.owner_mut() }.take();
    // SAFETY: `to_versioned_by` requires an owner that keeps the memory: it is that of the tensor.
    Ok(unsafe {
        match borrow {
            Some(borrow) => to_versioned_by(tensor, BorrowedMemory::owner(borrow, owner)),
            None => to_versioned_by(tensor, owner),
        }
    }?)
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

/// Shares or copies a source, which was read from `object`, by a plan.
fn by_plan(
    object: &Bound<'_, PyAny>,
    source: Source<'_>,
    request: CheckedRequest<'_>,
    started: Option<Instant>,
) -> Result<Managed> {
    let py = object.py();
    request.check(&source)?;
    let target = request.capabilities();
    let source = if request.is_transposed() { transposed(source) } else { source };
    let description = source.describe();
    let plan =
        plan::decide(&description, target, &request.options()).map_err(|error| request.explain(error))?;
    gradient_warning::check_plan(py, &description, target, &plan)?;
    let report = started.map(|started| (started, TensorReport::new(&description, target, &plan)));
    let (is_copied, access) = (!plan.shares(), plan.access);
    let _reading = if is_copied { BorrowDuringCopy::of(object, &source)? } else { None };
    let mut source = if is_copied { materialised(source, &request)? } else { source };
    let streams = source.take_streams();
    let mut tensor = if is_copied && !is_ready(&source, &request) {
        match require_in_place(source)? {
            tensor if tensor.device().is_host() => copy_packed(py, &tensor, plan.dtype)?,
            tensor => {
                return finish(object, order_copy(py, tensor, streams, &request)?, true, &request, report);
            }
        }
    } else {
        require_in_place(source)?
    };
    flag_read_only(&mut tensor, target, access);
    let tensor = match streams.filter(|_| tensor.device().is_cuda()) {
        Some(streams) => ordered(tensor, streams, &request)?,
        None => tensor,
    };
    finish(object, tensor, is_copied, &request, report)
}

/// Records the trip, and exports the tensor.
fn finish(
    object: &Bound<'_, PyAny>,
    tensor: Tensor<Owner>,
    is_copied: bool,
    request: &CheckedRequest<'_>,
    report: Option<(Instant, TensorReport)>,
) -> Result<Managed> {
    let mut tensor = if request.is_transposed() { tensor.transposed() } else { tensor };
    let managed = if is_copied {
        let mut managed = to_versioned(tensor)?;
        // SAFETY: `as_mut` requires a struct that nothing else uses: `to_versioned` has just made it.
        unsafe { managed.as_mut() }.flags |= FLAG_IS_COPIED;
        managed
    } else {
        exported(object.py(), &mut tensor, array_of(Some(object))?, request)?
    };
    if let Some((started, report)) = report
        && let Err(error) = trace::record(object.py(), report, started.elapsed())
    {
        // SAFETY: `ManagedOwner::versioned` requires a valid struct that nothing else releases: it was made above.
        drop(unsafe { ManagedOwner::versioned(managed) });
        return Err(error);
    }
    Ok(managed)
}

/// The same source with its axes in reverse order.
fn transposed(source: Source<'_>) -> Source<'_> {
    let memory = match source.memory {
        SourceMemory::InPlace(tensor) => SourceMemory::InPlace(tensor.transposed()),
        SourceMemory::Pending { pending, device, dtype, layout, reads } => {
            SourceMemory::Pending { pending, device, dtype, layout: layout.transposed(), reads }
        }
    };
    Source { memory, ..source }
}

/// The same source, with the work done that its framework has deferred.
fn materialised<'py>(source: Source<'py>, request: &CheckedRequest<'_>) -> Result<Source<'py>> {
    let SourceMemory::Pending { dtype, .. } = source.memory else { return Ok(source) };
    let restored = |source| if request.is_transposed() { transposed(source) } else { source };
    let source = restored(source);
    let tensor = materialise(&source.object, &source.memory, dtype)?;
    let mutability = SourceMutability::Temporary;
    Ok(restored(Source { memory: SourceMemory::InPlace(tensor), mutability, ..source }))
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
