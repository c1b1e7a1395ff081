//! A tensor as a reader found it.

use crate::conversion::streams::Streams;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::plan::{Alignment, Pending, SourceDescription, SourceMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor, read_only_loans};

/// What a reader learned about an object.
pub(crate) struct Source<'py> {
    /// The object itself, or what stands for it (the value of a variable).
    pub(crate) object: Bound<'py, PyAny>,
    /// Whose tensor it is, as users name the framework.
    pub(crate) framework: &'static str,
    /// Its memory, or why it cannot be read in place.
    pub(crate) memory: Memory,
    /// Whether others rely on the values.
    pub(crate) mutability: SourceMutability,
    /// Whether it requires a gradient.
    pub(crate) requires_grad: bool,
    /// Whether the memory came through `__array__(copy=False)`.
    pub(crate) through_array: bool,
    /// Where its framework queues work on it, if it is on a GPU. Boxed, so that host memory does not carry its size.
    pub(crate) streams: Option<Box<Streams>>,
}

/// Memory that can be read in place, or work to do first.
pub(crate) enum Memory {
    /// Read it in place.
    Here(Tensor<Owner>),
    /// The framework must do something first.
    Later {
        /// What it must do.
        pending: Pending,
        /// Where the values will be.
        device: Device,
        /// Element type.
        dtype: DType,
        /// The shape, as if dense.
        layout: Layout,
    },
}

impl<'py> Source<'py> {
    /// A mutable tensor that is read in place.
    #[inline(always)]
    pub(crate) fn here(object: Bound<'py, PyAny>, framework: &'static str, tensor: Tensor<Owner>) -> Self {
        Self {
            object,
            framework,
            memory: Memory::Here(tensor),
            mutability: SourceMutability::Mutable,
            requires_grad: false,
            through_array: false,
            streams: None,
        }
    }

    /// The same on a GPU, with work queued there.
    pub(crate) fn with_streams(mut self, streams: Streams) -> Self {
        self.streams = Some(Box::new(streams));
        self
    }

    /// Where its framework queues work on it, if it is on a GPU; a reader that did not say is taken to mean anywhere.
    #[inline(always)]
    pub(crate) fn take_streams(&mut self) -> Option<Streams> {
        match self.streams.take() {
            Some(streams) => Some(*streams),
            None if self.facts().device.is_cuda() => Some(Streams::unnamed()),
            None => None,
        }
    }

    /// The same with another nature.
    pub(crate) fn with_mutability(mut self, mutability: SourceMutability) -> Self {
        self.mutability = mutability;
        self
    }

    /// What the planner wants to know for a target that does not ask what the source's allocator guarantees.
    #[inline(always)]
    pub(crate) fn facts(&self) -> SourceDescription<'_> {
        let (dtype, layout, device, order, address, access, pending) = match &self.memory {
            Memory::Here(tensor) => (
                tensor.dtype(),
                tensor.layout(),
                tensor.device(),
                tensor.order(),
                tensor.data() as usize,
                tensor.access(),
                None,
            ),
            Memory::Later { pending, device, dtype, layout } => {
                (*dtype, layout, *device, ByteOrder::Native, 0, Access::ReadWrite, Some(*pending))
            }
        };
        SourceDescription {
            framework: self.framework,
            dtype,
            layout,
            device,
            order,
            address,
            alignment: Alignment::Guaranteed,
            access,
            mutability: self.mutability,
            pending,
            requires_grad: self.requires_grad,
            through_array: self.through_array,
            drop_lock: matches!(&self.memory, Memory::Here(tensor) if matches!(tensor.owner(), Owner::Paddle(_))),
        }
    }
}

/// Memory that we lent to a framework as read-only may come back through a wrapper that does not know.
pub(crate) fn still_frozen(mut tensor: Tensor<Owner>) -> Tensor<Owner> {
    if read_only_loans::is_on_loan(tensor.data() as usize) {
        tensor.set_read_only();
    }
    tensor
}

/// The framework of memory that no object of a framework stands for: the planner never takes the source itself for the result.
pub(crate) const OURS: &str = "tensorferry";

/// About memory that was made for the result.
pub(crate) fn fresh_memory(dtype: DType, layout: &Layout, device: Device) -> SourceDescription<'_> {
    SourceDescription {
        framework: OURS,
        dtype,
        layout,
        device,
        order: ByteOrder::Native,
        address: 0,
        alignment: Alignment::Guaranteed,
        access: Access::ReadWrite,
        mutability: SourceMutability::Temporary,
        pending: None,
        requires_grad: false,
        through_array: false,
        drop_lock: false,
    }
}
