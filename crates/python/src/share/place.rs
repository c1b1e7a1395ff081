//! Where a tensor lies that is to be published, and whether others can be given it there.

use crate::conversion::source::{self, Source};
use crate::errors::{Result, fail};
use crate::interpreter::owner::{Lend, Owner};
use std::sync::Arc;
use tensorferry_core::plan::{ConvertOptions, Reason, SourceDescription};
use tensorferry_core::{Access, ErrorKind, Layout, Tensor};
use tensorferry_cuda::ipc::{self, Allocation, ExportMethod};
use tensorferry_share::{ArenaBlock, PublishedTensor, SharedMemory, find};

/// An allocation of a GPU up to this size is handed over with any tensor in it. (PyTorch lays small ones into 2 MiB, others
/// into 20; ours lie in 32, and in 64 on the host.)
const FREELY: usize = 64 << 20;
/// A larger one is, if the tensor takes at least this part of it.
const PART: usize = 2;

/// Where a source lies.
pub(super) enum Place {
    /// In shared memory, its first byte so far from the beginning.
    Shared(SharedMemory, usize),
    /// In memory of its framework that can be handed over.
    Exportable(Allocation),
    /// It has no elements, and lies nowhere.
    Nowhere,
    /// In memory that cannot be handed over, or is not there yet.
    Private,
}

impl Place {
    pub(super) fn of(source: &mut Source<'_>) -> Result<Self> {
        let source::Memory::Here(tensor) = &mut source.memory else { return Ok(Self::Private) };
        if tensor.layout().is_empty() {
            return Ok(Self::Nowhere);
        }
        let (low, high) = tensor.layout().extent();
        let (first, bytes) = (tensor.data().wrapping_offset(low as isize), (high - low) as usize);
        let found = if tensor.device().is_host() {
            find(first, bytes).map(|(arena, offset)| (SharedMemory::Host(arena), offset))
        } else {
            ipc::find(first, bytes).map(|(arena, offset)| (SharedMemory::Gpu(arena), offset))
        };
        if let Some((memory, offset)) = found {
            if memory.access() == Access::ReadOnly {
                tensor.set_read_only();
            }
            return Ok(Self::Shared(memory, offset));
        }
        if !tensor.device().is_cuda() {
            return Ok(Self::Private);
        }
        // What the driver cannot place (managed memory, a foreign pool) is copied.
        let Ok(allocation) = Allocation::of(first) else { return Ok(Self::Private) };
        let is_whole = allocation.offset().checked_add(bytes).is_some_and(|end| end <= allocation.bytes());
        Ok(if allocation.way() != ExportMethod::None && is_whole {
            Self::Exportable(allocation)
        } else {
            Self::Private
        })
    }

    /// Why a copy is handed over instead.
    pub(super) fn reason(&self, facts: &SourceDescription<'_>, options: &ConvertOptions) -> Option<Reason> {
        let is_read_only = options.writable == Some(false)
            || facts.access == Access::ReadOnly
            || !facts.mutability.allows_writing();
        match self {
            Self::Nowhere => None,
            Self::Private => Some(Reason::Private),
            Self::Shared(memory, _) if is_read_only && !memory.can_be_read_only() => {
                Some(Reason::Unprotected)
            }
            Self::Shared(..) => None,
            Self::Exportable(allocation) if is_read_only && !allocation.can_be_read_only() => {
                Some(Reason::Unprotected)
            }
            Self::Exportable(allocation) => {
                let (low, high) = facts.layout.extent();
                let most = FREELY.max(((high - low) as usize).saturating_mul(PART));
                let bytes = allocation.bytes();
                // Who wants no copy takes that upon them.
                (bytes > most && options.copy != Some(false)).then_some(Reason::Exposed { bytes })
            }
        }
    }

    /// The tensor there, for others. The memory keeps it.
    pub(super) fn outgoing(self, tensor: Tensor<Owner>) -> Result<PublishedTensor> {
        let (dtype, layout) = (tensor.dtype(), tensor.layout().clone());
        let (low, _) = layout.extent();
        let (memory, first) = match self {
            Self::Shared(memory, first) => (memory, first),
            Self::Exportable(allocation) => {
                // SAFETY: memory that the tensor's owner keeps where it is.
                let arena = unsafe { allocation.export(Box::new(Kept(tensor.into_owner()))) }?;
                (SharedMemory::Gpu(arena), allocation.offset())
            }
            Self::Nowhere => {
                let (piece, layout) = (ArenaBlock::new(0)?, Layout::dense(dtype.size(), layout.shape())?);
                let memory = SharedMemory::Host(piece.arena().clone());
                return Ok(PublishedTensor { memory, offset: piece.offset(), dtype, layout });
            }
            Self::Private => {
                let fact = "the tensor cannot be published where it is";
                return Err(fail(ErrorKind::CopyRequired, fact, "leave out copy=False"));
            }
        };
        Ok(PublishedTensor {
            memory,
            offset: first.wrapping_add_signed(low.wrapping_neg() as isize),
            dtype,
            layout,
        })
    }
}

/// Keeps a framework's memory for others.
pub(super) struct Kept(#[expect(dead_code, reason = "held for its drop")] pub(super) Owner);

// SAFETY: nothing can be done to it but to drop it.
unsafe impl Sync for Kept {}

impl Lend for Arc<Kept> {
    /// The owner inside sees to that.
    fn waits(&self) -> bool {
        false
    }
}
