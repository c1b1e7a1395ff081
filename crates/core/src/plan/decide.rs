//! The rules of sharing and copying, as one pure function.

use super::inputs::{
    Alignment, ConvertOptions, DTypeRequest, DeviceRequest, Pending, SourceDescription, SourceMutability,
    Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use super::{Note, Plan, Reason, Route};
use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, DTypeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Access, ByteOrder};
use smallvec::SmallVec;

type Reasons = SmallVec<[Reason; 2]>;

/// Decides what happens to the source on its way to the target.
///
/// # Errors
/// When the target cannot hold the tensor in any form, the wishes contradict each other or the target, or
/// `copy=False` meets a fact that needs a copy.
pub fn decide(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<Plan> {
    check_writable(target, options)?;
    let same = source.framework == target.framework;
    // What a framework holds already it may keep, also where it would not take it anew (JAX's int64 with x64 off).
    let dtype = if same && options.dtype == DTypeRequest::Same {
        source.dtype
    } else {
        result_type(source, target, options)?
    };
    let device = if same && options.device == DeviceRequest::Nearest {
        source.device
    } else {
        result_device(source, target, options)?
    };
    if same && is_fine_as_it_is(source, options, dtype, device) {
        let mut notes = SmallVec::new();
        if source.mutability == SourceMutability::Snapshot {
            notes.push(Note::Snapshot);
        }
        let access = shared_access(source, target, options);
        return Ok(Plan { route: Route::Itself, dtype, device: source.device, access, notes });
    }
    check_reach(source, target)?;
    let (dtype, device) = if same {
        (result_type(source, target, options)?, result_device(source, target, options)?)
    } else {
        (dtype, device)
    };
    check_place(target, dtype, device)?;
    let reasons = reasons_to_copy(source, target, options, dtype, device);
    if reasons.is_empty() {
        let access = shared_access(source, target, options);
        return Ok(Plan {
            route: Route::Share,
            dtype,
            device: shared_device(source.device, device),
            access,
            notes: notes(source, target, None, dtype, access),
        });
    }
    if options.copy == Some(false) {
        return Err(copy_required(reasons[0], source, target));
    }
    check_budget(source.layout.count().saturating_mul(dtype.size()), options)?;
    let frozen = options.writable == Some(false) || target.mutability == TargetMutability::Immutable;
    let access = if frozen { Access::ReadOnly } else { Access::ReadWrite };
    let notes = notes(source, target, Some(&reasons), dtype, access);
    Ok(Plan { route: Route::Copy(reasons), dtype, device, access, notes })
}

/// Where the result goes.
fn result_device(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<Device> {
    let device = match options.device {
        DeviceRequest::Nearest
            if source.framework == target.framework && target.supports_device(source.device) =>
        {
            return Ok(source.device);
        }
        DeviceRequest::Nearest => return Ok(target.nearest_device(source.device)),
        DeviceRequest::Home => return Ok(target.default_device),
        DeviceRequest::At(device) => device,
    };
    if device.kind == DeviceKind::Cpu && target.supports_device(device) && device.index >= target.cpu_count {
        return Err(no_such_cpu(target, device));
    }
    if target.supports_device(device) {
        return Ok(device);
    }
    let (holds, instead) = match target.devices {
        SupportedDevices::Host => {
            ("host", "carry it to torch, cupy, jax or tensorflow, which hold GPU memory")
        }
        SupportedDevices::Cuda => ("GPU", "carry it to numpy or torch, which hold host memory"),
        SupportedDevices::Both => ("host and CUDA", "name \"cpu\" or \"cuda:0\""),
    };
    Err(Error::new(
        ErrorKind::UnsupportedDevice,
        format!("{} holds {holds} memory only, and device={device} was asked for", target.title),
    )
    .with_advice(format!("leave device out, or {instead}")))
}

fn no_such_cpu(target: &TargetCapabilities, device: Device) -> Error {
    let title = target.title;
    let (has, hint) = match target.cpu_count {
        1 => ("one CPU device, cpu".to_owned(), "pass device=\"cpu\"".to_owned()),
        count => (
            format!("{count} CPU devices, cpu:0 to cpu:{}", count - 1),
            format!("pass one of them, such as device=\"cpu:{}\"", count - 1),
        ),
    };
    let fact = format!("{title} has {has}, and device={device} was asked for");
    Error::new(ErrorKind::UnsupportedDevice, fact).with_advice(format!("leave device out, or {hint}"))
}

/// Where a share is: pinned and managed memory stays what it is, and any other is on the device that the result is for.
fn shared_device(source: Device, device: Device) -> Device {
    if source.plain() == device { source } else { device }
}

/// What [`decide`] answers in the two common cases, without its reasons and notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastDecision {
    /// A share, with this access.
    Share(Access),
    /// A copy of dense memory whose alignment is accidental; nothing else changes.
    Snapshot,
}

/// The route of a tensor whose caller passed no options. `None` means that [`decide`] must be asked.
#[inline(always)]
pub fn common(source: &SourceDescription<'_>, target: &TargetCapabilities) -> Option<FastDecision> {
    let fits = source.pending.is_none()
        && source.order == ByteOrder::Native
        && target.keeps_device(source.device)
        && source.mutability != SourceMutability::Cached
        && target.dtypes.contains(source.dtype)
        && !(source.device.is_cuda() && target.host_only.contains(source.dtype))
        && !target.repacked.contains(source.dtype)
        && target.own_memory.is_none()
        && !(source.drop_lock && target.drops_on_own_threads)
        && (target.keeps_64_bit || source.dtype.narrowed() == source.dtype)
        && source.layout.rank() <= target.max_rank
        && (source.access == Access::ReadWrite || target.mutability != TargetMutability::Writable)
        && source.framework != target.framework;
    if !fits {
        return None;
    }
    if is_accidental(source, target) {
        return source.layout.is_dense().then_some(FastDecision::Snapshot);
    }
    let shared = target.strides == Strides::Bytes || is_in_place(source, target);
    shared.then(|| FastDecision::Share(shared_access(source, target, &ConvertOptions::NONE)))
}

/// Whether strides and alignment are what the target takes.
fn is_in_place(source: &SourceDescription<'_>, target: &TargetCapabilities) -> bool {
    let needs = target.alignment.max(source.dtype.align());
    // Both are powers of two.
    let aligned = source.address & (needs - 1) == 0 || source.layout.is_empty();
    aligned && (source.layout.is_dense() || stride_reason(source, target.strides).is_none())
}

/// Whether a share would depend on where the source's allocator happened to put it.
#[inline(always)]
fn is_accidental(source: &SourceDescription<'_>, target: &TargetCapabilities) -> bool {
    source.alignment == Alignment::Accidental && target.relies_on_alignment() && !source.layout.is_empty()
}

fn check_reach(source: &SourceDescription<'_>, target: &TargetCapabilities) -> Result<()> {
    if !source.device.is_host() && !source.device.is_cuda() {
        return Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!(
                "the source is on {}, and only memory of the host and of CUDA GPUs is carried",
                source.device
            ),
        )
        .with_advice("move it to the CPU with its own framework first"));
    }
    if source.layout.rank() > target.max_rank {
        return Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!(
                "the source has {} dimensions and {} holds at most {}",
                source.layout.rank(),
                target.title,
                target.max_rank
            ),
        )
        .with_advice("reshape it to fewer dimensions first"));
    }
    Ok(())
}

/// Sees that the target holds the type where the result goes.
fn check_place(target: &TargetCapabilities, dtype: DType, device: Device) -> Result<()> {
    if !device.is_cuda() || !target.host_only.contains(dtype) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::UnsupportedDType, format!("{} takes no {dtype} on a GPU", target.title))
        .with_advice("pass device=\"cpu\", or view the source as uint8 first"))
}

fn check_writable(target: &TargetCapabilities, options: &ConvertOptions) -> Result<()> {
    match (options.writable, target.mutability) {
        (Some(true), TargetMutability::Immutable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("writable=True cannot be kept: {} tensors are immutable", target.title),
        )
        .with_advice("leave writable out, or carry the tensor to numpy or torch")),
        (Some(false), TargetMutability::Writable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("writable=False cannot be kept: {} has no read-only tensors", target.title),
        )
        .with_advice("leave writable out, or carry the tensor to numpy or jax")),
        _ => Ok(()),
    }
}

fn is_fine_as_it_is(
    source: &SourceDescription<'_>,
    options: &ConvertOptions,
    dtype: DType,
    device: Device,
) -> bool {
    let access = match options.writable {
        None => true,
        Some(true) => source.access == Access::ReadWrite && source.mutability.allows_writing(),
        Some(false) => source.access == Access::ReadOnly || !source.mutability.allows_writing(),
    };
    let order = source.order == ByteOrder::Native || options.dtype == DTypeRequest::Same;
    // Parts on several devices are not on the one that the caller names.
    let gathered = source.pending == Some(Pending::Gather) && options.device != DeviceRequest::Nearest;
    let place = source.device.plain() == device.plain() && !gathered;
    dtype == source.dtype && order && place && options.copy != Some(true) && access
}

fn result_type(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<DType> {
    let dtype = match options.dtype {
        DTypeRequest::Type(dtype) => dtype,
        DTypeRequest::Same => source.dtype,
        DTypeRequest::Default if !target.keeps_64_bit => source.dtype.narrowed(),
        DTypeRequest::Default
            if target.narrow_by_default
                && matches!(source.dtype.kind(), DTypeKind::Float | DTypeKind::Complex) =>
        {
            source.dtype.narrowed()
        }
        DTypeRequest::Default => source.dtype,
    };
    if !target.keeps_64_bit && dtype.narrowed() != dtype {
        let narrow = dtype.narrowed();
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("{} holds no {dtype} while 64-bit types are off", target.title),
        )
        .with_advice(format!("pass dtype=\"default\" to get {narrow}, or turn on jax_enable_x64")));
    }
    if !target.dtypes.contains(dtype) {
        return Err(Error::new(ErrorKind::UnsupportedDType, format!("{} has no type {dtype}", target.title))
            .with_advice(match dtype.kind() {
                DTypeKind::Float => {
                    "pass dtype=\"float32\" (or another type that it has) to convert the values"
                }
                DTypeKind::Complex => "pass dtype=\"complex64\" to convert the values",
                _ => "pass dtype=\"int32\" (or another type that it has) to convert the values",
            }));
    }
    Ok(dtype)
}

fn reasons_to_copy(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
    dtype: DType,
    device: Device,
) -> Reasons {
    let mut reasons = Reasons::new();
    let moved = !source.device.is_same_memory_as(device);
    if moved {
        let asked = target.supports_device(source.device);
        reasons.push(Reason::Moved { from: source.device, to: device, asked });
    }
    if let Some(pending) = source.pending {
        reasons.push(Reason::Pending(pending));
    }
    if dtype != source.dtype {
        reasons.push(Reason::Cast { from: source.dtype, to: dtype });
    }
    if source.order == ByteOrder::Swapped
        && !(target.accepts_swapped_bytes && options.dtype == DTypeRequest::Same)
    {
        reasons.push(Reason::Swapped);
    }
    // Where the memory cannot be used at all, its strides and alignment are nobody's concern.
    if !moved && source.pending.is_none() && source.mutability != SourceMutability::Cached {
        if let Some(reason) = stride_reason(source, target.strides) {
            reasons.push(reason);
        }
        let needs = needed_alignment(target, dtype);
        // What an accident decides is not a reason beside others: the plan of one kind of source is always the same.
        let decides = !is_accidental(source, target) || options.copy == Some(false);
        if decides && !source.layout.is_empty() && !source.address.is_multiple_of(needs) {
            reasons.push(Reason::Unaligned { needs });
        }
    }
    if target.repacked.contains(dtype) {
        reasons.push(Reason::Repacked);
    }
    reasons.extend(target.own_memory);
    if source.drop_lock && target.drops_on_own_threads {
        reasons.push(Reason::DropLock);
    }
    let lent = source.access == Access::ReadOnly;
    if source.mutability == SourceMutability::Cached {
        reasons.push(Reason::CachedScalar);
    } else if lent && target.mutability == TargetMutability::Writable {
        reasons.push(Reason::Frozen);
    } else if options.writable == Some(true) && (lent || !source.mutability.allows_writing()) {
        reasons.push(Reason::WritableAsked);
    }
    if options.copy == Some(true) {
        reasons.push(Reason::Asked);
    }
    if reasons.is_empty() && options.copy.is_none() && is_accidental(source, target) {
        reasons.push(Reason::AccidentalAlignment { needs: needed_alignment(target, dtype) });
    }
    reasons
}

/// The alignment that the target needs for elements of this type, in bytes.
fn needed_alignment(target: &TargetCapabilities, dtype: DType) -> usize {
    if target.strides == Strides::Bytes { 1 } else { target.alignment.max(dtype.align()) }
}

fn stride_reason(source: &SourceDescription<'_>, strides: Strides) -> Option<Reason> {
    let layout = source.layout;
    match strides {
        Strides::Bytes => None,
        Strides::Dense => (!layout.is_dense()).then_some(Reason::NotDense),
        Strides::Permuted => (!layout.is_dense_permuted()).then_some(Reason::Gaps),
        Strides::Elements | Strides::Forward if !layout.strides_are_whole() => Some(Reason::BrokenStride),
        Strides::Forward if layout.has_negative_stride() => Some(Reason::NegativeStride),
        Strides::Elements | Strides::Forward => None,
    }
}

fn shared_access(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Access {
    let read_only = match target.mutability {
        TargetMutability::Immutable => true,
        TargetMutability::Writable => false,
        TargetMutability::Flagged => {
            source.access == Access::ReadOnly
                || !source.mutability.allows_writing()
                || options.writable == Some(false)
        }
    };
    if read_only { Access::ReadOnly } else { Access::ReadWrite }
}

fn notes(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    reasons: Option<&Reasons>,
    dtype: DType,
    access: Access,
) -> SmallVec<[Note; 2]> {
    let mut notes = SmallVec::new();
    if reasons.is_none() {
        if target.mutability == TargetMutability::Immutable && source.mutability == SourceMutability::Mutable
        {
            notes.push(Note::SourceMustRest);
        } else if source.mutability == SourceMutability::Immutable && access == Access::ReadWrite {
            notes.push(Note::AliasesImmutable);
        } else if access == Access::ReadWrite && source.mutability != SourceMutability::Temporary {
            notes.push(Note::Aliases);
        }
    }
    if source.mutability == SourceMutability::Snapshot {
        notes.push(Note::Snapshot);
    }
    if source.through_array {
        notes.push(Note::ThroughArray);
    }
    if source.requires_grad {
        notes.push(Note::Detached);
    }
    if source.dtype.kind() == DTypeKind::Complex
        && !matches!(dtype.kind(), DTypeKind::Complex | DTypeKind::Bool)
    {
        notes.push(Note::DropsImaginary);
    }
    notes
}

/// Sees that a copy of so many bytes is within what there can be and what the caller allows.
///
/// # Errors
/// When it is not.
pub fn check_budget(needs: usize, options: &ConvertOptions) -> Result<()> {
    if needs > isize::MAX as usize {
        return Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory holds the {needs} bytes of the copy"),
        )
        .with_advice("convert a slice at a time"));
    }
    match options.budget {
        Some(budget) if needs > budget => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("the copy needs {needs} bytes and the budget is {budget}"),
        )
        .with_advice("raise the budget, or convert a slice at a time")),
        _ => Ok(()),
    }
}

fn copy_required(reason: Reason, source: &SourceDescription<'_>, target: &TargetCapabilities) -> Error {
    let fact = format!(
        "{} to {} needs a copy: {}",
        source.framework,
        target.framework,
        reason.sentence(source, target)
    );
    let hint = match reason.advice() {
        Some(advice) => format!("leave out copy=False to allow the copy, or {advice}"),
        None => "leave out copy=False to allow the copy".to_owned(),
    };
    Error::new(ErrorKind::CopyRequired, fact).with_advice(hint)
}

#[cfg(test)]
mod tests;
