//! The reasons for which a conversion copies, each with the hint that avoids it.

use crate::device::Device;
use crate::dtype::DType;
use crate::error::Hint;
use crate::hints;

/// Why a copy is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caller requested a copy.
    Requested,
    /// The element type changes.
    Cast {
        /// The type of the source.
        from: DType,
        /// The type of the result.
        to: DType,
    },
    /// The result is on another device.
    Moved {
        /// The device of the source.
        from: Device,
        /// The device of the result.
        to: Device,
        /// Whether the caller requested it. Otherwise the target does not support the source's device.
        requested: bool,
    },
    /// The source is not in native byte order.
    Swapped,
    /// The target supports only dense row-major memory.
    NotDense,
    /// The target supports only memory without gaps, in any order of the dimensions.
    Gaps,
    /// A stride is negative.
    NegativeStride,
    /// A stride is not a multiple of the element size.
    FractionalStride,
    /// The data pointer does not have the target's alignment.
    Unaligned {
        /// The alignment that the target needs, in bytes.
        needs: usize,
    },
    /// The source's allocator does not guarantee the target's alignment, and the source is mutable: whether a share is
    /// possible would depend on the address.
    AccidentalAlignment {
        /// The alignment that the target needs, in bytes.
        needs: usize,
    },
    /// The memory is read-only, and the target has only writable tensors.
    ReadOnly,
    /// The caller requested a writable result, and the source must not be written.
    WritableRequested,
    /// TensorFlow caches and reuses scalars.
    CachedScalar,
    /// The source's framework has deferred an operation on the values.
    Pending(Pending),
    /// The target stores this type in its own packed format, such as several elements per byte.
    Repacked,
    /// The target supports only memory that it allocated.
    OwnMemory,
    /// The source's framework releases memory under a lock, and the target releases it on its own threads: a share could
    /// deadlock.
    DropLock,
    /// The source's memory cannot be shared with other processes.
    Private,
    /// Sharing the source's memory would expose a much larger allocation to other processes.
    Exposed {
        /// The size of the allocation.
        bytes: usize,
    },
    /// The source's memory cannot be shared read-only with other processes.
    Unprotected,
    /// The caller passed a destination tensor.
    Into,
}

/// An operation on the values that the source's framework has deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A conjugation.
    Conjugate,
    /// A negation.
    Negate,
    /// Unpacking several elements per byte.
    Unpack,
    /// Gathering shards from several devices.
    Gather,
    /// The conversion by the object's own library, such as through `__array__`.
    Convert,
    /// The same of values whose type or shape is known only then. The source has the narrowest type in their place.
    ConvertUnknown,
    /// A copy to the host by its framework, the only one that reads the memory of the device.
    Download,
    /// Gathering the chunks of an Arrow column.
    Chunks,
    /// Unpacking the bits of an Arrow column.
    Bits,
    /// Unpacking the validity of an Arrow column to a mask, whose type is bool whatever the type of the values is.
    Validity,
    /// Filling the nulls of an Arrow column.
    Nulls,
    /// Looking up the values of an Arrow dictionary.
    Dictionary,
    /// Writing the columns of an Arrow table to one matrix.
    Stack,
    /// Writing the offsets of the lists of an Arrow column. They are int64, or int32 where the target has no 64-bit types.
    Offsets,
    /// Padding the lists of an Arrow column to one length.
    Pad,
    /// Reading an Arrow stream, which can be read once, or running a query: a plan does neither.
    Stream,
}

impl Reason {
    /// The hint that names what would avoid the copy; `None` where nothing would.
    pub fn hint(self) -> Option<Hint> {
        let key = match self {
            Reason::Requested => hints::OMIT_COPY,
            // Without a dtype, a target that lacks 64-bit types would refuse the source.
            Reason::Cast { from, to } if from.size() >= 8 && from.size() == 2 * to.size() => {
                hints::CREATE_WITH_DTYPE
            }
            Reason::Cast { .. } => hints::OMIT_DTYPE,
            Reason::Moved { requested: true, .. } => hints::OMIT_DEVICE,
            Reason::Moved { from, requested: false, .. } if from.is_host() => hints::CHOOSE_HOST_FRAMEWORK,
            Reason::Moved { requested: false, .. } => hints::CHOOSE_GPU_FRAMEWORK,
            Reason::Swapped => hints::USE_NATIVE_BYTE_ORDER,
            Reason::NotDense | Reason::Gaps | Reason::NegativeStride | Reason::FractionalStride => {
                hints::MAKE_CONTIGUOUS
            }
            Reason::Unaligned { needs } => {
                return Some(Hint::Key(hints::ALIGN_SOURCE, Some(needs.to_string())));
            }
            Reason::AccidentalAlignment { .. } => hints::REQUEST_SHARE_OR_ALIGN,
            Reason::ReadOnly => hints::USE_WRITABLE_SOURCE,
            Reason::WritableRequested => hints::OMIT_WRITABLE,
            Reason::Private | Reason::Unprotected => hints::USE_SHARED_MEMORY,
            Reason::Exposed { .. } => hints::EXPOSE_ALLOCATION,
            Reason::CachedScalar
            | Reason::Pending(_)
            | Reason::Repacked
            | Reason::OwnMemory
            | Reason::DropLock
            | Reason::Into => return None,
        };
        Some(Hint::Key(key, None))
    }
}
