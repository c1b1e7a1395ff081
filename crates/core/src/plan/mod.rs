//! What will happen to a tensor, and why, before anything moves.
//!
//! [`facts`] are what the planner is told: about the source, about the target, and what the caller
//! wishes. [`decide`](decide()) is a pure function from those to a [`Plan`] or an error; it touches no
//! memory, so every rule of sharing and copying is tested here without any framework. [`words`] turns
//! plans into sentences. [`sparse`] has the same for sparse tensors. A plan is small and holds no text: the common case, a share, costs a few
//! comparisons and no allocation.

mod decide;
pub mod inputs;
pub mod sparse;
mod text;

pub use decide::{FastDecision, check_budget, common, decide};
pub use inputs::{
    Alignment, ConvertOptions, DTypeRequest, DeviceRequest, Pending, SourceDescription, SourceMutability,
    Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
pub use text::{count_noun, format_shape};

use crate::device::Device;
use crate::dtype::DType;
use crate::tensor::Access;
use smallvec::SmallVec;

/// What will happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The way the tensor goes.
    pub route: Route,
    /// The element type of the result.
    pub dtype: DType,
    /// Where the result is.
    pub device: Device,
    /// Whether the result may be written, as far as its framework can say so.
    pub access: Access,
    /// What the caller should know about aliases, gradients and snapshots.
    pub notes: SmallVec<[Note; 2]>,
}

/// The way a tensor goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The source object is the result.
    Itself,
    /// The result uses the source's memory.
    Share,
    /// Bytes move, once, for these reasons (one at least).
    Copy(SmallVec<[Reason; 2]>),
}

/// Why a copy is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caller passed `copy=True`.
    Asked,
    /// The element type changes.
    Cast {
        /// What the source holds.
        from: DType,
        /// What the result holds.
        to: DType,
    },
    /// The result is to be on another device.
    Moved {
        /// Where the source is.
        from: Device,
        /// Where the result is to be.
        to: Device,
        /// Whether the caller asked for it; the target holds nothing where the source is otherwise.
        asked: bool,
    },
    /// The bytes of each element are the other way round.
    Swapped,
    /// The target takes only dense row-major memory.
    NotDense,
    /// The target takes only memory without gaps, in any order of the dimensions.
    Gaps,
    /// A stride runs backwards.
    NegativeStride,
    /// A stride is no whole number of elements.
    BrokenStride,
    /// The data pointer is not aligned as the target needs it.
    Unaligned {
        /// The alignment that the target needs, in bytes.
        needs: usize,
    },
    /// The address may fit the target, but only by accident, and the source can be written.
    AccidentalAlignment {
        /// The alignment that the target needs, in bytes.
        needs: usize,
    },
    /// The memory is read-only and the target would let it be written.
    Frozen,
    /// The caller asked for a writable result and the source must not be written.
    WritableAsked,
    /// TensorFlow keeps and reuses scalars.
    CachedScalar,
    /// Values exist only after work that the source's framework has put off.
    Pending(Pending),
    /// The target stores this type in a form of its own, such as several elements to a byte.
    Repacked,
    /// The target keeps tensors only in memory that it allocated.
    OwnMemory,
    /// The source's framework releases memory under a lock, and the target releases it on threads of its own.
    DropLock,
    /// No other process can be given the source's memory.
    Private,
    /// Another process would be given far more with the source's memory.
    Exposed {
        /// So many bytes.
        bytes: usize,
    },
    /// Another process could not be kept from writing the source's memory.
    Unprotected,
    /// The caller gave a destination to fill.
    Into,
}

/// What the caller should know about the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Writing in place would change an immutable source.
    AliasesImmutable,
    /// The source must not be written while the result lives.
    SourceMustRest,
    /// The tensor required a gradient and is carried without its history.
    Detached,
    /// The result holds the variable's value at the call.
    Snapshot,
    /// The memory came through the object's own `__array__(copy=False)`.
    ThroughArray,
    /// The imaginary part is dropped by the cast.
    DropsImaginary,
    /// Writing the result writes the source, and the other way round.
    Aliases,
    /// The result is the copy that was made of another tensor of the tree, which is the same memory.
    Tied,
}

impl Plan {
    /// Whether no byte moves.
    pub fn shares(&self) -> bool {
        !matches!(self.route, Route::Copy(_))
    }

    /// Whether the target's own copy does all that is needed, so that ours would be a second one.
    pub fn target_copies(&self) -> bool {
        let reasons = self.reasons();
        reasons.iter().any(|reason| matches!(reason, Reason::OwnMemory | Reason::Repacked))
            && reasons.iter().all(|reason| {
                matches!(
                    reason,
                    Reason::OwnMemory
                        | Reason::Repacked
                        | Reason::Asked
                        | Reason::Frozen
                        | Reason::WritableAsked
                )
            })
    }

    /// Why bytes move; empty for a share.
    pub fn reasons(&self) -> &[Reason] {
        match &self.route {
            Route::Copy(reasons) => reasons,
            _ => &[],
        }
    }
}
