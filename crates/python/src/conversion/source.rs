//! A tensor as its reader describes it, before it is planned.

use crate::conversion::streams::Streams;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::borrow_table::ElementRange;
use tensorferry_core::plan::{Alignment, Pending, SourceDescription, SourceMutability, TimeUnit};
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor, read_only_loans};

/// An object that has been read.
pub(crate) struct Source<'py> {
    /// The object, or the value of a variable.
    pub(crate) object: Bound<'py, PyAny>,
    /// The name of its framework.
    pub(crate) framework: &'static str,
    /// Its memory, or the work that must be done before it can be read.
    pub(crate) memory: SourceMemory,
    /// Whether its values may change, and whether other objects rely on them.
    pub(crate) mutability: SourceMutability,
    /// Whether the memory came through `__array__(copy=False)`.
    pub(crate) through_array: bool,
    /// The unit of time that the integers count, if they are dates or times.
    pub(crate) counts: Option<TimeUnit>,
    /// The streams of its framework, if it is on a GPU. Boxed, because a source in host memory should stay small.
    pub(crate) streams: Option<Box<Streams>>,
}

/// The memory of a source.
pub(crate) enum SourceMemory {
    /// The values can be read in place.
    InPlace(Tensor<Owner>),
    /// The framework must do something first.
    Pending {
        /// The pending work.
        pending: Pending,
        /// The device on which the values will be.
        device: Device,
        /// The element type.
        dtype: DType,
        /// The shape, as a dense layout.
        layout: Layout,
        /// The memory that the work reads, if it is that of one tensor. Boxed, because a source should stay small.
        reads: Option<Box<ElementRange>>,
    },
}

impl<'py> Source<'py> {
    /// A source that is mutable and can be read in place.
    #[inline(always)]
    pub(crate) fn in_place(
        object: Bound<'py, PyAny>,
        framework: &'static str,
        tensor: Tensor<Owner>,
    ) -> Self {
        Self {
            object,
            framework,
            memory: SourceMemory::InPlace(tensor),
            mutability: SourceMutability::Mutable,
            through_array: false,
            counts: None,
            streams: None,
        }
    }

    /// A source whose values are not in readable memory yet.
    pub(crate) fn pending(object: Bound<'py, PyAny>, framework: &'static str, memory: SourceMemory) -> Self {
        let mutability = SourceMutability::Mutable;
        Self { object, framework, memory, mutability, through_array: false, counts: None, streams: None }
    }

    /// The same source, with the streams of its framework.
    pub(crate) fn with_streams(mut self, streams: Streams) -> Self {
        self.streams = Some(Box::new(streams));
        self
    }

    /// The streams of its framework, if it is on a GPU. Without any from the reader, work may be queued on every stream.
    #[inline(always)]
    pub(crate) fn take_streams(&mut self) -> Option<Streams> {
        match self.streams.take() {
            Some(streams) => Some(*streams),
            None if self.describe().device.is_cuda() => Some(Streams::unnamed()),
            None => None,
        }
    }

    /// The same source with another mutability.
    pub(crate) fn with_mutability(mut self, mutability: SourceMutability) -> Self {
        self.mutability = mutability;
        self
    }

    /// The description for a planner whose target does not depend on alignment guarantees.
    #[inline(always)]
    pub(crate) fn describe(&self) -> SourceDescription<'_> {
        let (dtype, layout, device, order, address, access, pending) = match &self.memory {
            SourceMemory::InPlace(tensor) => (
                tensor.dtype(),
                tensor.layout(),
                tensor.device(),
                tensor.order(),
                tensor.data() as usize,
                tensor.access(),
                None,
            ),
            SourceMemory::Pending { pending, device, dtype, layout, .. } => {
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
            through_array: self.through_array,
            counts: self.counts,
            drop_lock: matches!(&self.memory, SourceMemory::InPlace(tensor) if matches!(tensor.owner(), Owner::Paddle(_))),
        }
    }
}

/// Sets the read-only flag of memory on a read-only loan, which may come back through a wrapper without that flag.
pub(crate) fn restore_read_only_flag(mut tensor: Tensor<Owner>) -> Tensor<Owner> {
    if read_only_loans::is_on_loan(tensor.data() as usize) {
        tensor.set_read_only();
    }
    tensor
}

/// The framework of memory that does not belong to a framework's object. The planner never returns such a source itself.
pub(crate) const OWN_FRAMEWORK: &str = "tensorferry";

/// The description of new memory for a result.
pub(crate) fn fresh_memory(dtype: DType, layout: &Layout, device: Device) -> SourceDescription<'_> {
    SourceDescription {
        framework: OWN_FRAMEWORK,
        dtype,
        layout,
        device,
        order: ByteOrder::Native,
        address: 0,
        alignment: Alignment::Guaranteed,
        access: Access::ReadWrite,
        mutability: SourceMutability::Temporary,
        pending: None,
        through_array: false,
        counts: None,
        drop_lock: false,
    }
}
