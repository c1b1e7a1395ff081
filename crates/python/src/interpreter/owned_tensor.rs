//! Tensors whose owner becomes part of a larger owner.
//!
//! `Tensor::map_owner` is unsafe, because an owner that is dropped frees the memory. Here every new owner holds the first one,
//! unchanged, until its own drop, so these functions are safe.

use crate::interpreter::owner::{InterprocessMemory, Owner};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};
use tensorferry_core::Tensor;
use tensorferry_core::aligned::AlignedRange;
use tensorferry_core::dlpack::ManagedOwner;
use tensorferry_core::read_only_loans::ReadOnlyLoan;
use tensorferry_cuda::{Gpu, SyncPoint};

/// The same tensor with an owner of this crate, which holds the managed tensor.
#[inline]
pub(crate) fn managed(tensor: Tensor<ManagedOwner>) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::managed` holds the managed tensor, and calls
    // its deleter no sooner than in its own drop.
    unsafe { tensor.map_owner(Owner::managed) }
}

/// The same tensor with an owner of this crate, which holds the managed tensor and its producer. A managed tensor should keep its memory
/// alive by itself; that of an ONNX Runtime value over a NumPy array does not.
pub(crate) fn produced(tensor: Tensor<ManagedOwner>, producer: &Bound<'_, PyAny>) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::produced` holds the managed tensor, and calls
    // its deleter no sooner than in its own drop.
    unsafe { tensor.map_owner(|managed| Owner::produced(managed, producer.clone().unbind())) }
}

/// The same tensor of Paddle with an owner of this crate, which holds the managed tensor.
pub(crate) fn paddle(tensor: Tensor<ManagedOwner>) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::paddle` holds the managed tensor, and calls
    // its deleter no sooner than in its own drop.
    unsafe { tensor.map_owner(Owner::paddle) }
}

/// The same tensor, with a read-only loan that lasts as long as its owner.
pub(crate) fn read_only(tensor: Tensor<Owner>, loan: ReadOnlyLoan) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::read_only` holds the first owner until its
    // own drop.
    unsafe { tensor.map_owner(|owner| owner.read_only(loan)) }
}

/// The same tensor, with its memory recorded as aligned by construction for as long as its owner lives.
#[inline]
pub(crate) fn aligned(tensor: Tensor<Owner>, record: AlignedRange) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::aligned` holds the first owner until its
    // own drop.
    unsafe { tensor.map_owner(|owner| owner.aligned(record)) }
}

/// The same tensor, for a framework that holds a lock while it releases memory.
pub(crate) fn deferred(tensor: Tensor<Owner>) -> Tensor<Owner> {
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::deferred` returns the first owner, or one that
    // keeps it beyond its own drop.
    unsafe { tensor.map_owner(Owner::deferred) }
}

/// The same tensor in GPU memory. The drop of its owner makes `next_use` wait for the work at `reusable_after`.
pub(crate) fn stream_ordered(
    tensor: Tensor<Owner>,
    gpu: &'static Gpu,
    reusable_after: SyncPoint,
    next_use: SyncPoint,
    stream_owners: [Option<Owner>; 2],
) -> Tensor<Owner> {
    let wrap = |owner: Owner| owner.stream_ordered(gpu, reusable_after, next_use, stream_owners);
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: `Owner::stream_ordered` holds the first owner until
    // its own drop.
    unsafe { tensor.map_owner(wrap) }
}

/// The same tensor with an owner that is shared, and a reference which keeps its memory alive too.
pub(crate) fn held(tensor: Tensor<Owner>) -> (Tensor<Owner>, Option<Arc<HeldOwner>>) {
    let mut held = None;
    // SAFETY: `map_owner` requires that the new owner keeps the memory valid: it holds a reference to the `Arc` that holds the first
    // owner.
    let tensor = unsafe {
        tensor.map_owner(|owner| Owner::shared(held.insert(Arc::new(HeldOwner::new(owner))).clone()))
    };
    (tensor, held)
}

/// Keeps a framework's memory alive for other processes.
///
/// Nothing locks the mutex: it makes the type `Sync`, which an owner is not.
pub(crate) struct HeldOwner(#[expect(dead_code, reason = "held for its drop")] Mutex<Owner>);

impl HeldOwner {
    pub(crate) fn new(owner: Owner) -> Self {
        Self(Mutex::new(owner))
    }
}

impl InterprocessMemory for Arc<HeldOwner> {
    /// The inner owner waits in its own drop.
    fn drop_may_block(&self) -> bool {
        false
    }
}
