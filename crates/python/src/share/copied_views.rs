//! Detection of tensors in a tree that are the same view of the same memory, so that they are copied once and alias each other.
//!
//! Tied weights are several tensors over one storage. Only identical views share a copy: a copy is contiguous, and in general does
//! not contain the elements of another view.

use crate::conversion::source::{Source, SourceMemory};
use crate::interpreter::owned_tensor::{self, HeldOwner};
use std::collections::HashMap;
use std::sync::Arc;
use tensorferry_core::plan::{Plan, SourceMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout};
use tensorferry_cuda::SyncPoint;
use tensorferry_share::PublishedTensor;

/// A view of memory, and the properties of its copy.
#[derive(PartialEq)]
pub(super) struct MemoryView {
    address: usize,
    dtype: DType,
    layout: Layout,
    order: ByteOrder,
    device: Device,
    /// The GPU work that must be done before the memory is valid. The copy waited for this work only.
    ready_after: Option<SyncPoint>,
    /// Dtype, device and access of the copy.
    result: (DType, Device, Access),
}

impl MemoryView {
    /// The view of a source; `None` for temporary memory, whose address may be reused after the copy.
    pub(super) fn of(source: &Source<'_>, plan: &Plan) -> Option<Self> {
        let SourceMemory::InPlace(tensor) = &source.memory else { return None };
        if source.mutability == SourceMutability::Temporary || tensor.layout().is_empty() {
            return None;
        }
        let ready_after = source.streams.as_ref().map(|streams| streams.ready_after);
        if tensor.device().is_cuda() && ready_after.is_none() {
            return None;
        }
        Some(Self {
            address: tensor.data() as usize,
            dtype: tensor.dtype(),
            layout: tensor.layout().normalised(),
            order: tensor.order(),
            device: tensor.device(),
            ready_after,
            result: (plan.dtype, plan.device, plan.access),
        })
    }
}

/// Keeps a source's memory alive after its copy, so that its address is not reused for another tensor.
pub(super) fn hold<'py>(source: Source<'py>) -> (Source<'py>, Option<Arc<HeldOwner>>) {
    let (memory, held) = match source.memory {
        SourceMemory::InPlace(tensor) => {
            let (tensor, held) = owned_tensor::held(tensor);
            (SourceMemory::InPlace(tensor), held)
        }
        later @ SourceMemory::Pending { .. } => (later, None),
    };
    (Source { memory, ..source }, held)
}

/// The copies made for one ticket.
#[derive(Default)]
pub(super) struct Copies {
    by_address: HashMap<usize, Vec<Copied>>,
}

struct Copied {
    view: MemoryView,
    published: PublishedTensor,
    _held: Option<Arc<HeldOwner>>,
}

impl Copies {
    /// The copy of an identical view.
    pub(super) fn find(&self, view: &MemoryView) -> Option<PublishedTensor> {
        let copies = self.by_address.get(&view.address)?;
        copies.iter().find(|copied| copied.view == *view).map(|copied| copied.published.clone())
    }

    pub(super) fn add(&mut self, view: MemoryView, published: PublishedTensor, held: Option<Arc<HeldOwner>>) {
        self.by_address.entry(view.address).or_default().push(Copied { view, published, _held: held });
    }
}
