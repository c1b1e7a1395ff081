//! What the allocator of a source's memory guarantees about its address.
//!
//! JAX and TensorFlow share only memory that is aligned to 64 bytes, and their users rely on tensors that do not change.
//! NumPy's arrays and bytearrays are aligned to 16 bytes by `malloc`: one in four fits by accident. The planner copies
//! such memory always, so that one line of code does not share in one run and copy in the next.
//!
//! The owner of the memory tells where it comes from. A NumPy array or a memoryview is often a view of something else,
//! so the chain of bases is followed to the object that allocated. Alignment within the allocation needs no rule: the
//! offset of a view is fixed by the program and not by the allocator.

use crate::frameworks::{numpy, torch};
use crate::owner::{self, Owner};
use crate::source::{Memory, Source};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};
use tensorferry_core::plan::{Alignment, Nature};
use tensorferry_core::{Access, Tensor, aligned};

/// What is guaranteed about the address of this source. Asked only for targets to which it matters.
#[inline]
pub(crate) fn of(source: &Source<'_>) -> Alignment {
    let Memory::Here(tensor) = &source.memory else { return Alignment::Guaranteed };
    if source.nature != Nature::Mutable || tensor.device().is_cuda() {
        return Alignment::Guaranteed;
    }
    let guaranteed = of_memory(source.object.py(), tensor);
    // A block of ours behind another framework's tensor.
    if guaranteed == Alignment::Accidental && aligned::covers(tensor.data() as usize) {
        return Alignment::Guaranteed;
    }
    guaranteed
}

/// The same tensor; if its memory is ours, it is remembered as aligned by construction for frameworks that cannot say
/// where their memory comes from.
pub(crate) fn marked(tensor: Tensor<Owner>) -> Tensor<Owner> {
    let is_ours = matches!(tensor.owner(), Owner::Block(_) | Owner::Mapped(_) | Owner::Shared(_));
    if !is_ours || tensor.layout().is_empty() || tensor.device().is_cuda() {
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
        Owner::Block(_) | Owner::Mapped(_) | Owner::Shared(_) => Alignment::Guaranteed,
        _ => unless(writable),
    }
}

/// Follows views to the object that allocated the memory. `writable` says whether the source, or a view below it that
/// others hold too, can be written.
fn of_object(mut object: Bound<'_, PyAny>, mut writable: bool) -> Alignment {
    let py = object.py();
    let mut is_held_by_others = false;
    loop {
        let base = if let Some(view) = numpy::view(&object) {
            writable |= view.writable && is_held_by_others;
            match view.base {
                Some(base) => base,
                None => return unless(writable),
            }
        } else if object.is_instance_of::<PyMemoryView>() {
            writable |= is_held_by_others && is_writable_view(&object);
            match object.getattr(intern!(py, "obj")) {
                Ok(base) if !base.is_none() => base,
                _ => return unless(writable),
            }
        } else {
            return of_allocation(&object, writable, is_held_by_others);
        };
        // One reference is the view's, one is ours.
        is_held_by_others = reference_count(&base) > 2;
        object = base;
    }
}

fn is_writable_view(view: &Bound<'_, PyAny>) -> bool {
    let read_only = view.getattr(intern!(view.py(), "readonly"));
    !read_only.is_ok_and(|flag| flag.is_truthy().unwrap_or(false))
}

fn reference_count(object: &Bound<'_, PyAny>) -> ffi::Py_ssize_t {
    // SAFETY: the object is alive, and the interpreter is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

/// What the object that allocated the memory guarantees.
fn of_allocation(object: &Bound<'_, PyAny>, writable: bool, is_held_by_others: bool) -> Alignment {
    if object.is_exact_instance_of::<PyBytes>() {
        return Alignment::Guaranteed;
    }
    if object.is_exact_instance_of::<PyByteArray>() {
        return unless(writable || is_held_by_others);
    }
    if let Some(guaranteed) = torch::is_aligned_by_construction(object) {
        return if guaranteed { Alignment::Guaranteed } else { unless(writable) };
    }
    if let Some(owner) = owner::kept_by(object) {
        return of_owner(owner, writable);
    }
    // The pages of a map are aligned far beyond what any framework needs.
    if is_map(object) {
        return Alignment::Guaranteed;
    }
    unless(writable || is_held_by_others && exports_writable(object))
}

fn is_map(object: &Bound<'_, PyAny>) -> bool {
    static MAP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let map = MAP.import(object.py(), "mmap", "mmap");
    map.is_ok_and(|map| object.is_instance(map).unwrap_or(false))
}

/// Whether the object lets others write its memory, although the view that the source is does not.
fn exports_writable(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive; the struct is zeroed, filled by the call and released once if that succeeded.
    unsafe {
        let mut view = ffi::Py_buffer::new();
        let granted = ffi::PyObject_CheckBuffer(object.as_ptr()) == 1
            && ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view, ffi::PyBUF_WRITABLE) == 0;
        if granted {
            ffi::PyBuffer_Release(&raw mut view);
        } else {
            ffi::PyErr_Clear();
        }
        granted
    }
}
