//! The fast path of the planner: shares and snapshots with default options.
//!
//! It only combines the rules of [`decide`](super::decide()): the tests check that both agree.

use super::decide::{is_alignment_accidental, shared_access, stride_reason};
use super::inputs::{ConvertOptions, SourceDescription, Strides, TargetCapabilities, TargetMutability};
use crate::tensor::{Access, ByteOrder};

/// The outcome of the two common cases, without reasons and notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastDecision {
    /// A share, with this access.
    Share(Access),
    /// A copy of dense memory for [`Reason::AccidentalAlignment`](super::Reason) alone.
    Snapshot,
}

/// The outcome for default options; `None` means that [`decide`](super::decide()) has to decide.
#[inline(always)]
pub fn fast_decision(source: &SourceDescription<'_>, target: &TargetCapabilities) -> Option<FastDecision> {
    let is_common = source.pending.is_none()
        && source.order == ByteOrder::Native
        && target.keeps_device(source.device)
        && !source.mutability.needs_plan()
        && target.dtypes.contains(source.dtype)
        && !(source.device.is_cuda() && target.host_only.contains(source.dtype))
        && !target.repacked.contains(source.dtype)
        && target.own_memory.is_none()
        && !(source.drop_lock && target.drops_on_own_threads)
        && (target.keeps_64_bit || source.dtype.narrowed() == source.dtype)
        && source.layout.rank() <= target.max_rank
        && (source.access == Access::ReadWrite || target.mutability != TargetMutability::Writable)
        && source.framework != target.framework;
    if !is_common {
        return None;
    }
    if is_alignment_accidental(source, target) {
        return source.layout.is_dense().then_some(FastDecision::Snapshot);
    }
    let is_shared = target.strides == Strides::Bytes || is_layout_supported(source, target);
    is_shared.then(|| FastDecision::Share(shared_access(source, target, &ConvertOptions::NONE)))
}

/// Whether the target supports the strides and the alignment.
fn is_layout_supported(source: &SourceDescription<'_>, target: &TargetCapabilities) -> bool {
    let alignment = target.alignment.max(source.dtype.align());
    // Both are powers of two.
    let is_aligned = source.address & (alignment - 1) == 0 || source.layout.is_empty();
    is_aligned && (source.layout.is_dense() || stride_reason(source, target.strides).is_none())
}
