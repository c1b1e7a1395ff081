//! Read-only memory for a target: the read-only flag, and read-only loans to frameworks without that flag.

use crate::interpreter::owned_tensor;
use crate::interpreter::owner::Owner;
use tensorferry_core::plan::{SourceMutability, TargetCapabilities, TargetMutability};
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

/// A function of [`read_only_loans`] that records a range of addresses.
pub(crate) type Lend = fn(usize, usize) -> ReadOnlyLoan;

/// How a share is recorded, if the target cannot tell by its own tensor that the memory must not be written.
#[inline(always)]
pub(crate) fn needed_loan(
    tensor: &Tensor<Owner>,
    mutability: SourceMutability,
    target: &TargetCapabilities,
) -> Option<Lend> {
    match target.mutability {
        TargetMutability::Immutable if tensor.access() == Access::ReadOnly => Some(read_only_loans::lend),
        TargetMutability::Writable if !mutability.allows_writing() => Some(read_only_loans::lend_immutable),
        _ => None,
    }
}

/// Records a loan that lasts as long as the owner.
#[cold]
pub(crate) fn record_loan(tensor: Tensor<Owner>, lend: Lend) -> Tensor<Owner> {
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
