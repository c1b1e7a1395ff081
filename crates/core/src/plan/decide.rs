//! The rules of sharing and copying, as one pure function.

use super::inputs::{
    Alignment, ConvertOptions, DTypeRequest, DeviceRequest, SourceDescription, SourceMutability, Strides,
    TargetCapabilities, TargetMutability,
};
use super::outcome::{Note, Plan, Route};
use super::reason::{Pending, Reason};
use super::resolve::{
    check_budget, check_dtype_on_device, check_source, check_writable, result_device, result_dtype,
};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Hint, Result};
use crate::hints;
use crate::tensor::{Access, ByteOrder};
use smallvec::SmallVec;

type Reasons = SmallVec<[Reason; 2]>;

/// Decides whether the target shares or copies the source.
///
/// # Errors
/// When the target cannot represent the tensor, the options contradict each other or the target, or sharing was requested
/// and a copy is needed.
pub fn decide(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
) -> Result<Plan> {
    check_writable(target, options)?;
    let same = source.framework == target.framework;
    // A framework keeps its own tensor even if it would reject an import of the same type (JAX's int64 with x64 off).
    let dtype = if same && options.dtype == DTypeRequest::Same {
        source.dtype
    } else {
        result_dtype(source, target, options)?
    };
    let device = if same && options.device == DeviceRequest::Nearest {
        source.device
    } else {
        result_device(source, target, options)?
    };
    if same && is_unchanged(source, options, dtype, device) {
        let mut notes = SmallVec::new();
        if source.mutability == SourceMutability::Snapshot {
            notes.push(Note::Snapshot);
        }
        let access = shared_access(source, target, options);
        return Ok(Plan { route: Route::Itself, dtype, device: source.device, access, notes });
    }
    check_source(source, target)?;
    let (dtype, device) = if same {
        (result_dtype(source, target, options)?, result_device(source, target, options)?)
    } else {
        (dtype, device)
    };
    check_dtype_on_device(target, dtype, device)?;
    let reasons = reasons_to_copy(source, target, options, dtype, device);
    if reasons.is_empty() {
        let access = shared_access(source, target, options);
        return Ok(Plan {
            route: Route::Share,
            dtype,
            device: shared_device(source.device, device),
            access,
            notes: notes(source, target, None, access),
        });
    }
    if options.copy == Some(false) {
        return Err(copy_required(reasons[0], source, target));
    }
    check_budget(source.layout.count().saturating_mul(dtype.size()), options)?;
    let read_only = options.writable == Some(false) || target.mutability == TargetMutability::Immutable;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let notes = notes(source, target, Some(&reasons), access);
    Ok(Plan { route: Route::Copy(reasons), dtype, device, access, notes })
}

/// The device of a share: pinned and managed memory keeps its kind.
fn shared_device(source: Device, device: Device) -> Device {
    if source.base_device() == device { source } else { device }
}

/// Whether a share would be possible only because of the address that the source's allocator happened to return.
#[inline(always)]
pub(super) fn is_alignment_accidental(source: &SourceDescription<'_>, target: &TargetCapabilities) -> bool {
    source.alignment == Alignment::Accidental && target.relies_on_alignment() && !source.layout.is_empty()
}

/// Whether the source fulfils all options without a conversion.
fn is_unchanged(
    source: &SourceDescription<'_>,
    options: &ConvertOptions,
    dtype: DType,
    device: Device,
) -> bool {
    let has_access = match options.writable {
        None => true,
        Some(true) => source.allows_writing(),
        Some(false) => source.access == Access::ReadOnly || !source.mutability.allows_writing(),
    };
    let has_order = source.order == ByteOrder::Native || options.dtype == DTypeRequest::Same;
    // Shards on several devices are not on the device that the caller names.
    let is_gathered = source.pending == Some(Pending::Gather) && options.device != DeviceRequest::Nearest;
    let has_device = source.device.base_device() == device.base_device() && !is_gathered;
    dtype == source.dtype && has_order && has_device && options.copy != Some(true) && has_access
}

fn reasons_to_copy(
    source: &SourceDescription<'_>,
    target: &TargetCapabilities,
    options: &ConvertOptions,
    dtype: DType,
    device: Device,
) -> Reasons {
    let mut reasons = Reasons::new();
    let from = source.values_device();
    let moved = !from.is_same_memory_as(device);
    if moved {
        let requested = target.supports_device(from);
        reasons.push(Reason::Moved { from, to: device, requested });
    }
    if let Some(pending) = source.pending {
        // The values are moved on after a download.
        let position = if pending == Pending::Download { 0 } else { reasons.len() };
        reasons.insert(position, Reason::Pending(pending));
    }
    if dtype != source.dtype {
        reasons.push(Reason::Cast { from: source.dtype, to: dtype });
    }
    if source.order == ByteOrder::Swapped
        && !(target.accepts_swapped_bytes && options.dtype == DTypeRequest::Same)
    {
        reasons.push(Reason::Swapped);
    }
    // Strides and alignment matter only if the memory could be shared otherwise.
    if !moved && source.pending.is_none() && source.mutability != SourceMutability::Cached {
        if let Some(reason) = stride_reason(source, target.strides) {
            reasons.push(reason);
        }
        let needs = needed_alignment(target, dtype);
        // Accidental alignment is not reported beside other reasons, so that equal sources always get equal plans.
        let decides = !is_alignment_accidental(source, target) || options.copy == Some(false);
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
    let is_read_only = source.access == Access::ReadOnly;
    if source.mutability == SourceMutability::Cached {
        reasons.push(Reason::CachedScalar);
    } else if is_read_only && target.mutability == TargetMutability::Writable {
        reasons.push(Reason::ReadOnly);
    } else if options.writable == Some(true) && !source.allows_writing() {
        reasons.push(Reason::WritableRequested);
    }
    if options.copy == Some(true) {
        reasons.push(Reason::Requested);
    }
    if reasons.is_empty() && options.copy.is_none() && is_alignment_accidental(source, target) {
        reasons.push(Reason::AccidentalAlignment { needs: needed_alignment(target, dtype) });
    }
    reasons
}

/// The alignment that the target needs for elements of this type, in bytes.
fn needed_alignment(target: &TargetCapabilities, dtype: DType) -> usize {
    if target.strides == Strides::Bytes { 1 } else { target.alignment.max(dtype.align()) }
}

/// Why the target does not support the strides; `None` if it does.
pub(super) fn stride_reason(source: &SourceDescription<'_>, strides: Strides) -> Option<Reason> {
    let layout = source.layout;
    match strides {
        Strides::Bytes => None,
        Strides::Dense => (!layout.is_dense()).then_some(Reason::NotDense),
        Strides::Forward | Strides::Permuted if layout.has_negative_stride() => Some(Reason::NegativeStride),
        Strides::Permuted => (!layout.is_dense_permuted()).then_some(Reason::Gaps),
        Strides::Elements | Strides::Forward if !layout.strides_are_whole() => Some(Reason::FractionalStride),
        Strides::Elements | Strides::Forward => None,
    }
}

/// Whether a share may be written.
pub(super) fn shared_access(
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
    access: Access,
) -> SmallVec<[Note; 2]> {
    let mut notes = SmallVec::new();
    if reasons.is_none() {
        if target.mutability == TargetMutability::Immutable && source.mutability.may_change() {
            notes.push(Note::SourceMustNotChange);
        } else if source.mutability == SourceMutability::Immutable && access == Access::ReadWrite {
            notes.push(Note::AliasesImmutable);
        } else if access == Access::ReadWrite && source.mutability != SourceMutability::Temporary {
            notes.push(Note::Aliases);
        }
    }
    if source.mutability == SourceMutability::Snapshot {
        notes.push(Note::Snapshot);
    }
    notes.extend(source.counts.map(Note::Counts));
    if source.through_array {
        notes.push(Note::ThroughArray);
    }
    if source.mutability == SourceMutability::Differentiable {
        notes.push(Note::Detached);
    }
    notes
}

fn copy_required(reason: Reason, source: &SourceDescription<'_>, target: &TargetCapabilities) -> Error {
    let fact = format!(
        "{} to {} needs a copy: {}",
        source.framework,
        target.framework,
        reason.sentence(source, target)
    );
    let error = Error::new(ErrorKind::CopyRequired, fact);
    match reason.hint() {
        Some(Hint::Key(key, Some(value))) => error.with_hint_value(key, value),
        Some(Hint::Key(key, None)) => error.with_hint(key),
        Some(Hint::Text(_)) | None => error.with_hint(hints::ALLOW_COPY),
    }
}
