//! The memory of a tensor that is published, and whether other processes can share it in place.

use crate::conversion::source::{self, Source};
use crate::errors::{Result, fail};
use crate::interpreter::owned_tensor::HeldOwner;
use crate::interpreter::owner::Owner;
use tensorferry_core::plan::{ConvertOptions, Reason, SourceDescription};
use tensorferry_core::{Access, ErrorKind, Layout, Tensor};
use tensorferry_cuda::ipc::{self, Allocation, ExportMethod};
use tensorferry_share::{ArenaBlock, PublishedTensor, SharedMemory, find_arena};

/// A GPU allocation up to this size is exported for any tensor in it. PyTorch's allocator uses segments of 2 and 20 MiB; arenas have
/// 32 MiB on a GPU and 64 MiB on the host.
const MAX_EXPORT_BYTES: usize = 64 << 20;
/// A larger allocation is exported if it has at most this many times the bytes of the tensor.
const MAX_EXPORT_RATIO: usize = 2;

/// The memory that holds a source.
pub(super) enum Location {
    /// Shared memory, and the offset of the first byte of the source.
    Shared(SharedMemory, usize),
    /// Memory of its framework that other processes can import.
    Exportable(Allocation),
    /// None: the source has no elements.
    Empty,
    /// Memory that other processes cannot import, or that is not allocated yet.
    Private,
}

impl Location {
    pub(super) fn of(source: &mut Source<'_>) -> Result<Self> {
        let source::SourceMemory::InPlace(tensor) = &mut source.memory else { return Ok(Self::Private) };
        if tensor.layout().is_empty() {
            return Ok(Self::Empty);
        }
        let (low, high) = tensor.layout().extent();
        let (first, bytes) = (tensor.data().wrapping_offset(low as isize), (high - low) as usize);
        let found = if tensor.device().is_host() {
            find_arena(first, bytes).map(|(arena, offset)| (SharedMemory::Host(arena), offset))
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
        // Memory that the driver cannot attribute to an allocation (managed memory, a foreign pool) is copied.
        let Ok(allocation) = Allocation::of(first) else { return Ok(Self::Private) };
        let is_inside = allocation.offset().checked_add(bytes).is_some_and(|end| end <= allocation.bytes());
        Ok(if allocation.export_method() != ExportMethod::None && is_inside {
            Self::Exportable(allocation)
        } else {
            Self::Private
        })
    }

    /// The reason to publish a copy instead; None if the memory can be shared.
    pub(super) fn copy_reason(
        &self,
        source: &SourceDescription<'_>,
        options: &ConvertOptions,
    ) -> Option<Reason> {
        let is_read_only = options.writable == Some(false) || !source.allows_writing();
        match self {
            Self::Empty => None,
            Self::Private => Some(Reason::Private),
            Self::Shared(memory, _) if is_read_only && !memory.can_be_read_only() => {
                Some(Reason::Unprotected)
            }
            Self::Shared(..) => None,
            Self::Exportable(allocation) if is_read_only && !allocation.can_be_read_only() => {
                Some(Reason::Unprotected)
            }
            Self::Exportable(allocation) => {
                let (low, high) = source.layout.extent();
                let max_bytes =
                    MAX_EXPORT_BYTES.max(((high - low) as usize).saturating_mul(MAX_EXPORT_RATIO));
                let bytes = allocation.bytes();
                // With `copy=False`, the caller accepts that the rest of the allocation is visible too.
                (bytes > max_bytes && options.copy != Some(false)).then_some(Reason::Exposed { bytes })
            }
        }
    }

    /// Publishes the tensor in place. An exported allocation keeps the owner of the tensor alive.
    pub(super) fn publish(self, tensor: Tensor<Owner>) -> Result<PublishedTensor> {
        let (dtype, layout) = (tensor.dtype(), tensor.layout().clone());
        let (low, _) = layout.extent();
        let (memory, first) = match self {
            Self::Shared(memory, first) => (memory, first),
            Self::Exportable(allocation) => {
                // SAFETY: `export` requires that the allocation stays for as long as the owner lives. The owner is that of the
                // tensor, which keeps the memory at its address, and `Location::of` found the allocation at that address.
                let arena = unsafe { allocation.export(Box::new(HeldOwner::new(tensor.into_owner()))) }?;
                (SharedMemory::Gpu(arena), allocation.offset())
            }
            Self::Empty => {
                let (block, layout) = (ArenaBlock::new(0)?, Layout::dense(dtype.size(), layout.shape())?);
                let memory = SharedMemory::Host(block.arena().clone());
                return Ok(PublishedTensor { memory, offset: block.offset(), dtype, layout });
            }
            Self::Private => {
                let fact = "other processes cannot import the memory of the tensor";
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
