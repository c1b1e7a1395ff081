//! Read-only memory for a target: the read-only flag, and read-only loans to frameworks without that flag.

use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use tensorferry_core::plan::{TargetCapabilities, TargetMutability};
use tensorferry_core::read_only_loans::ReadOnlyLoan;
use tensorferry_core::{Access, Device, Tensor, read_only_loans};

/// Assigns a host tensor to the CPU device of the plan, and sets its read-only flag.
pub(crate) fn prepare(
    tensor: &mut Tensor<Owner>,
    target: &TargetCapabilities,
    device: Device,
    access: Access,
) {
    tensor.set_cpu(device);
    flag_read_only(tensor, target, access);
}

/// Sets the read-only flag if the target has one.
#[inline(always)]
pub(crate) fn flag_read_only(tensor: &mut Tensor<Owner>, target: &TargetCapabilities, access: Access) {
    if target.mutability == TargetMutability::Flagged && access == Access::ReadOnly {
        tensor.set_read_only();
    }
}

/// Whether the target has no flag for this read-only memory.
#[inline(always)]
pub(crate) fn forgets_read_only(tensor: &Tensor<Owner>, target: &TargetCapabilities) -> bool {
    tensor.access() == Access::ReadOnly && target.mutability == TargetMutability::Immutable
}

/// The same tensor. Records a read-only loan if the target has no flag.
pub(crate) fn lend_read_only(tensor: Tensor<Owner>, target: &TargetCapabilities) -> Tensor<Owner> {
    if forgets_read_only(&tensor, target) { record_loan(tensor) } else { tensor }
}

/// Records a read-only loan that lasts as long as the owner.
#[cold]
pub(crate) fn record_loan(tensor: Tensor<Owner>) -> Tensor<Owner> {
    with_loan(tensor, read_only_loans::lend)
}

/// As [`record_loan`], for a framework of writable tensors whose user has promised not to write.
pub(crate) fn record_promised_loan(tensor: Tensor<Owner>) -> Tensor<Owner> {
    with_loan(tensor, read_only_loans::lend_promised)
}

fn with_loan(tensor: Tensor<Owner>, lend: fn(usize, usize) -> ReadOnlyLoan) -> Tensor<Owner> {
    if tensor.layout().is_empty() {
        return tensor;
    }
    let (low, high) = tensor.layout().extent();
    let start = (tensor.data() as usize).wrapping_add_signed(low as isize);
    let loan = lend(start, start + (high - low) as usize);
    owned_tensor::read_only(tensor, loan)
}

/// Sets the read-only flag of memory that the user of a framework of writable tensors has promised not to write.
#[inline(always)]
pub(crate) fn restore_promised_flag(tensor: &mut Tensor<Owner>) {
    if read_only_loans::is_promised(tensor.data() as usize) {
        tensor.set_read_only();
    }
}
