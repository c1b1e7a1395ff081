//! The owners of memory behind a tensor.

use std::any::Any;
use tensorferry_core::dlpack::ManagedOwner;
use tensorferry_core::host::HostBlock;

/// What keeps the memory of a tensor alive. All handles on one memory share it in an `Arc`, whose count says whether a
/// handle is the only one.
///
/// A value is held for its drop and never read.
#[derive(Debug)]
#[expect(dead_code, reason = "the fields are held for their drop")]
pub(crate) enum Memory {
    /// A block of the core's allocator.
    Host(HostBlock),
    /// A tensor of another library. Its drop calls the deleter.
    Dlpack(ManagedOwner),
    /// Any other owner: a `Vec`, a mapped file, memory of another process, memory of a GPU.
    Other(Box<dyn Any + Send + Sync>),
}

impl Memory {
    /// An owner that the crate does not know by its type.
    pub(crate) fn other(owner: impl Any + Send + Sync) -> Self {
        Self::Other(Box::new(owner))
    }
}
