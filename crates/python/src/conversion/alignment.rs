//! Alignment guarantees: whether the allocator of a source's memory always aligns it.
//!
//! JAX and TensorFlow share only memory that is aligned to 64 bytes, and their users rely on tensors that do not change.
//! `malloc` aligns NumPy arrays and bytearrays to 16 bytes, so one in four meets the requirement by accident. The planner
//! always copies such memory. Otherwise the same line of code would share in one run and copy in the next.
//!
//! The owner of the memory tells its origin. A NumPy array or a memoryview is often a view, so the chain of bases is
//! followed to the object that allocated. The offset of a view within an allocation needs no rule, because the program
//! fixes it, not the allocator.

use crate::conversion::source::{Source, SourceMemory};
use crate::frameworks::{numpy, torch};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use crate::interpreter::owned_tensor;
use crate::interpreter::owner::{self, Buffer, Owner};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};
use tensorferry_core::plan::{Alignment, SourceDescription, TargetCapabilities};
use tensorferry_core::{Access, Tensor, aligned};

impl Source<'_> {
    /// The description for the planner, with the alignment guarantee if the target depends on it.
    #[inline(always)]
    pub(crate) fn describe_for(&self, target: &TargetCapabilities) -> SourceDescription<'_> {
        let mut facts = self.describe();
        if target.relies_on_alignment() {
            facts.alignment = of(self);
        }
        facts
    }
}

/// The alignment guarantee of a source. Called only for targets that depend on it.
#[inline]
pub(crate) fn of(source: &Source<'_>) -> Alignment {
    let SourceMemory::InPlace(tensor) = &source.memory else { return Alignment::Guaranteed };
    // Temporary memory does not change, but the array of a NumPy scalar has another address at each call.
    if !source.mutability.allows_writing() || tensor.device().is_cuda() {
        return Alignment::Guaranteed;
    }
    let guaranteed = memory_guarantee(source.object.py(), tensor);
    // The memory may be a block of ours behind another framework's tensor.
    if guaranteed == Alignment::Accidental && aligned::covers(tensor.data() as usize) {
        return Alignment::Guaranteed;
    }
    guaranteed
}

/// The same tensor. Records memory that is aligned by construction, for frameworks that cannot tell the origin of their
/// memory.
#[inline]
pub(crate) fn record_alignment(py: Python<'_>, tensor: Tensor<Owner>) -> Tensor<Owner> {
    if tensor.access() == Access::ReadOnly
        || tensor.device().is_cuda()
        || memory_guarantee(py, &tensor) == Alignment::Accidental
        || tensor.layout().is_empty()
    {
        return tensor;
    }
    let (low, high) = tensor.layout().extent();
    let start = (tensor.data() as usize).wrapping_add_signed(low as isize);
    let record = aligned::register(start, start + (high - low) as usize);
    owned_tensor::aligned(tensor, record)
}

/// The guarantee of the memory of a tensor.
fn memory_guarantee(py: Python<'_>, tensor: &Tensor<Owner>) -> Alignment {
    let writable = tensor.access() == Access::ReadWrite;
    match tensor.owner() {
        Owner::Object(object) => object_guarantee(object.get().bind(py).clone(), writable),
        Owner::Buffer(buffer) => match buffer.exporter(py) {
            Some(exporter) => object_guarantee(exporter, writable),
            None => unless_writable(writable),
        },
        owner => owner_guarantee(owner, writable),
    }
}

/// Memory that nothing can write counts as guaranteed, because a share of it behaves like a copy.
fn unless_writable(writable: bool) -> Alignment {
    if writable { Alignment::Accidental } else { Alignment::Guaranteed }
}

/// The guarantee of memory that does not belong to a Python object.
fn owner_guarantee(owner: &Owner, writable: bool) -> Alignment {
    match owner {
        Owner::Block(_) | Owner::Mapped(_) | Owner::Shared(_) => Alignment::Guaranteed,
        // The producer of a read-only tensor may have the memory from an object that can be written.
        Owner::Managed(..) | Owner::Wrapped(_) | Owner::Paddle(_) | Owner::Arrow(_) => Alignment::Accidental,
        _ => unless_writable(writable),
    }
}

/// Follows views to the object that allocated the memory. A read-only view does not prove that the memory is never
/// written: its base may be writable.
fn object_guarantee(mut object: Bound<'_, PyAny>, writable: bool) -> Alignment {
    let py = object.py();
    loop {
        let base = if let Some(view) = numpy::memory_of(&object) {
            match view.base {
                Some(base) => base,
                None => return unless_writable(writable || view.writable),
            }
        } else if object.is_instance_of::<PyMemoryView>() {
            match object.getattr(interned!(py, "obj")) {
                Ok(base) if !base.is_none() => base,
                _ => return unless_writable(writable),
            }
        } else {
            return allocation_guarantee(&object, writable);
        };
        object = base;
    }
}

/// The guarantee of the object that allocated the memory.
fn allocation_guarantee(object: &Bound<'_, PyAny>, writable: bool) -> Alignment {
    if object.is_exact_instance_of::<PyBytes>() {
        return Alignment::Guaranteed;
    }
    if object.is_exact_instance_of::<PyByteArray>() {
        return Alignment::Accidental;
    }
    if let Some(guaranteed) = torch::is_aligned_by_construction(object) {
        return if guaranteed { Alignment::Guaranteed } else { Alignment::Accidental };
    }
    if let Some(owner) = owner::owner_in_capsule(object) {
        return owner_guarantee(owner, writable);
    }
    // Maps are aligned to pages.
    if is_map(object) {
        return Alignment::Guaranteed;
    }
    unless_writable(writable || !exports_read_only(object))
}

fn is_map(object: &Bound<'_, PyAny>) -> bool {
    static MAP: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
    let map = MAP.import(object.py(), "mmap", "mmap");
    map.is_ok_and(|map| object.is_instance(map).unwrap_or(false))
}

/// Whether the object exports its memory as read-only. An object without the buffer protocol may have the memory from
/// another one (an Arrow array over a NumPy array).
fn exports_read_only(object: &Bound<'_, PyAny>) -> bool {
    Buffer::try_export(object).is_some_and(|buffer| buffer.view().readonly != 0)
}
