//! What the allocator of a source's memory guarantees about its address.
//!
//! JAX and TensorFlow share only memory that is aligned to 64 bytes, and their users rely on tensors that do not change.
//! NumPy's arrays and bytearrays are aligned to 16 bytes by `malloc`: one in four fits by accident. The planner copies
//! such memory always, so that one line of code does not share in one run and copy in the next.
//!
//! The owner of the memory tells where it comes from. A NumPy array or a memoryview is often a view of something else,
//! so the chain of bases is followed to the object that allocated. Alignment within the allocation needs no rule: the
//! offset of a view is fixed by the program and not by the allocator.

use crate::conversion::source::{Memory, Source};
use crate::frameworks::{numpy, torch};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::{self, Buffer, Owner};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};
use tensorferry_core::plan::{Alignment, SourceDescription, SourceMutability, TargetCapabilities};
use tensorferry_core::{Access, Tensor, aligned};

impl Source<'_> {
    /// What the planner wants to know for this target.
    #[inline(always)]
    pub(crate) fn facts_for(&self, target: &TargetCapabilities) -> SourceDescription<'_> {
        let mut facts = self.facts();
        if target.relies_on_alignment() {
            facts.alignment = of(self);
        }
        facts
    }
}

/// What is guaranteed about the address of this source. Asked only for targets to which it matters.
#[inline]
pub(crate) fn of(source: &Source<'_>) -> Alignment {
    let Memory::Here(tensor) = &source.memory else { return Alignment::Guaranteed };
    if source.mutability != SourceMutability::Mutable || tensor.device().is_cuda() {
        return Alignment::Guaranteed;
    }
    let guaranteed = of_memory(source.object.py(), tensor);
    // A block of ours behind another framework's tensor.
    if guaranteed == Alignment::Accidental && aligned::covers(tensor.data() as usize) {
        return Alignment::Guaranteed;
    }
    guaranteed
}

/// The same tensor; if its memory is aligned by construction, that is remembered for frameworks that cannot say where their
/// memory comes from.
#[inline]
pub(crate) fn marked(py: Python<'_>, tensor: Tensor<Owner>) -> Tensor<Owner> {
    if tensor.access() == Access::ReadOnly
        || tensor.device().is_cuda()
        || of_memory(py, &tensor) == Alignment::Accidental
        || tensor.layout().is_empty()
    {
        return tensor;
    }
    let (low, high) = tensor.layout().extent();
    let start = (tensor.data() as usize).wrapping_add_signed(low as isize);
    let mark = aligned::mark(start, start + (high - low) as usize);
    // SAFETY: the new owner holds the first one.
    unsafe { tensor.map_owner(|owner| owner.aligned(mark)) }
}

fn of_memory(py: Python<'_>, tensor: &Tensor<Owner>) -> Alignment {
    let writable = tensor.access() == Access::ReadWrite;
    match tensor.owner() {
        Owner::Object(object) => of_object(object.get().bind(py).clone(), writable),
        Owner::Buffer(buffer) => match buffer.exporter(py) {
            Some(exporter) => of_object(exporter, writable),
            None => unless(writable),
        },
        owner => of_owner(owner, writable),
    }
}

/// Memory that nobody can write needs no guarantee: a share of it cannot be told from a copy.
fn unless(writable: bool) -> Alignment {
    if writable { Alignment::Accidental } else { Alignment::Guaranteed }
}

/// Memory that is not a Python object's.
fn of_owner(owner: &Owner, writable: bool) -> Alignment {
    match owner {
        Owner::Block(_) | Owner::MappedTensor(_) | Owner::Shared(_) => Alignment::Guaranteed,
        // A producer that says "read-only" may have got the memory from an object that can be written.
        Owner::ManagedOwner(_) | Owner::Paddle(_) => Alignment::Accidental,
        _ => unless(writable),
    }
}

/// Follows views to the object that allocated the memory. A view that is read-only says nothing about the memory: what it is a
/// view of may be written.
fn of_object(mut object: Bound<'_, PyAny>, writable: bool) -> Alignment {
    let py = object.py();
    loop {
        let base = if let Some(view) = numpy::view(&object) {
            match view.base {
                Some(base) => base,
                None => return unless(writable || view.writable),
            }
        } else if object.is_instance_of::<PyMemoryView>() {
            match object.getattr(intern!(py, "obj")) {
                Ok(base) if !base.is_none() => base,
                _ => return unless(writable),
            }
        } else {
            return of_allocation(&object, writable);
        };
        object = base;
    }
}

/// What the object that allocated the memory guarantees.
fn of_allocation(object: &Bound<'_, PyAny>, writable: bool) -> Alignment {
    if object.is_exact_instance_of::<PyBytes>() {
        return Alignment::Guaranteed;
    }
    if object.is_exact_instance_of::<PyByteArray>() {
        return Alignment::Accidental;
    }
    if let Some(guaranteed) = torch::is_aligned_by_construction(object) {
        return if guaranteed { Alignment::Guaranteed } else { Alignment::Accidental };
    }
    if let Some(owner) = owner::kept_by(object) {
        return of_owner(owner, writable);
    }
    // The pages of a map are aligned far beyond what any framework needs.
    if is_map(object) {
        return Alignment::Guaranteed;
    }
    unless(writable || !exports_read_only(object))
}

fn is_map(object: &Bound<'_, PyAny>) -> bool {
    static MAP: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
    let map = MAP.import(object.py(), "mmap", "mmap");
    map.is_ok_and(|map| object.is_instance(map).unwrap_or(false))
}

/// Whether the object exports its memory, and lets nobody write it. One that exports nothing may have got the memory from
/// elsewhere (an Arrow array over a NumPy array).
fn exports_read_only(object: &Bound<'_, PyAny>) -> bool {
    Buffer::try_export(object).is_some_and(|buffer| buffer.view().readonly != 0)
}
