//! Which tensors of a tree are the same memory, so that it is copied once and they alias each other in the copy too.
//!
//! Tied weights are several tensors over one storage. Only the same view of it counts: a copy is dense, and a view of
//! other elements would in general lie nowhere in it.

use super::place::Kept;
use crate::conversion::source::{Memory, Source};
use crate::interpreter::owner::Owner;
use std::collections::HashMap;
use std::sync::Arc;
use tensorferry_core::plan::{Plan, SourceMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout};
use tensorferry_cuda::SyncPoint;
use tensorferry_share::PublishedTensor;

/// A view of memory, and what becomes of it.
#[derive(PartialEq)]
pub(super) struct View {
    address: usize,
    dtype: DType,
    layout: Layout,
    order: ByteOrder,
    device: Device,
    /// What must be done before the memory holds what is meant, on a GPU: the copy has waited for that and nothing else.
    gives: Option<SyncPoint>,
    /// Of the copy.
    result: (DType, Device, Access),
}

impl View {
    /// The view that a source is; `None` where its memory is its own, and may be gone after the copy.
    pub(super) fn of(source: &Source<'_>, plan: &Plan) -> Option<Self> {
        let Memory::Here(tensor) = &source.memory else { return None };
        if source.mutability == SourceMutability::Temporary || tensor.layout().is_empty() {
            return None;
        }
        let gives = source.streams.as_ref().map(|streams| streams.gives);
        if tensor.device().is_cuda() && gives.is_none() {
            return None;
        }
        Some(Self {
            address: tensor.data() as usize,
            dtype: tensor.dtype(),
            layout: tensor.layout().normalised(),
            order: tensor.order(),
            device: tensor.device(),
            gives,
            result: (plan.dtype, plan.device, plan.access),
        })
    }
}

/// Keeps a source's memory beyond its copy: an address that is let go may become another tensor's.
pub(super) fn keep<'py>(source: Source<'py>) -> (Source<'py>, Option<Arc<Kept>>) {
    let mut kept = None;
    let memory = match source.memory {
        // SAFETY: the new owner holds a reference to what holds the first one.
        Memory::Here(tensor) => Memory::Here(unsafe {
            tensor.map_owner(|owner| {
                let shared = kept.insert(Arc::new(Kept(owner)));
                Owner::shared(shared.clone())
            })
        }),
        later @ Memory::Later { .. } => later,
    };
    (Source { memory, ..source }, kept)
}

/// What was copied for one ticket.
#[derive(Default)]
pub(super) struct Copies {
    by_address: HashMap<usize, Vec<Copied>>,
}

struct Copied {
    view: View,
    outgoing: PublishedTensor,
    _kept: Option<Arc<Kept>>,
}

impl Copies {
    /// The copy of the same view.
    pub(super) fn find(&self, view: &View) -> Option<PublishedTensor> {
        let copies = self.by_address.get(&view.address)?;
        copies.iter().find(|copied| copied.view == *view).map(|copied| copied.outgoing.clone())
    }

    pub(super) fn add(&mut self, view: View, outgoing: PublishedTensor, kept: Option<Arc<Kept>>) {
        self.by_address.entry(view.address).or_default().push(Copied { view, outgoing, _kept: kept });
    }
}
