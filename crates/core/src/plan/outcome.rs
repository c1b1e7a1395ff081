//! Plans: whether the result is the source, a share or a copy, with reasons and notes.
//!
//! A plan is small and contains no text, so that the common case, a share, takes a few comparisons and no allocation.

use super::inputs::TimeUnit;
use super::reason::Reason;
use crate::device::Device;
use crate::dtype::DType;
use crate::tensor::Access;
use smallvec::SmallVec;

/// The decision of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether the source is returned, shared or copied.
    pub route: Route,
    /// The element type of the result.
    pub dtype: DType,
    /// The device of the result.
    pub device: Device,
    /// Whether the result may be written, as far as its framework expresses it.
    pub access: Access,
    /// What the caller should know about aliases, gradients and snapshots.
    pub notes: SmallVec<[Note; 2]>,
}

/// How the result is obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The source object is the result.
    Itself,
    /// The result uses the source's memory.
    Share,
    /// The values are copied once, for these reasons (at least one).
    Copy(SmallVec<[Reason; 2]>),
}

/// What the caller should know about the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A write to the result would change an immutable source.
    AliasesImmutable,
    /// The source must not be written while the result exists.
    SourceMustNotChange,
    /// The tensor requires a gradient, and the result is detached.
    Detached,
    /// The result is a snapshot of a variable.
    Snapshot,
    /// The memory was obtained from the object's `__array__(copy=False)`.
    ThroughArray,
    /// Source and result share writable memory.
    Aliases,
    /// The integers count a unit of time.
    Counts(TimeUnit),
    /// Another tensor of the tree has the same memory, and both results are one copy.
    Tied,
    /// The framework copies its own tensor, because the copy has to keep its class.
    KeepsClass,
}

impl Plan {
    /// Whether nothing is copied.
    pub fn shares(&self) -> bool {
        !matches!(self.route, Route::Copy(_))
    }

    /// Whether the copy that the target makes on import suffices. A copy by the core would then be a second one.
    pub fn target_copies(&self) -> bool {
        let reasons = self.reasons();
        reasons.iter().any(|reason| matches!(reason, Reason::OwnMemory | Reason::Repacked))
            && reasons.iter().all(|reason| {
                matches!(
                    reason,
                    Reason::OwnMemory
                        | Reason::Repacked
                        | Reason::Requested
                        | Reason::ReadOnly
                        | Reason::WritableRequested
                )
            })
    }

    /// The reasons for a copy; empty for a share.
    pub fn reasons(&self) -> &[Reason] {
        match &self.route {
            Route::Copy(reasons) => reasons,
            _ => &[],
        }
    }
}
