//! The arguments of `publish`: tensors in shared memory, and options.

use crate::memory::shared_memory::SharedMemory;
use std::time::Duration;
use tensorferry_core::{Access, DType, Layout};

/// A tensor in shared memory.
#[derive(Clone, Debug)]
pub struct PublishedTensor {
    /// The memory, created here or attached from another process.
    pub memory: SharedMemory,
    /// The offset in the memory of the element with index zero in every dimension.
    pub offset: usize,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

/// How a publication may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOptions {
    /// Whether the ticket is valid for one consumer only.
    pub once: bool,
    /// How long the ticket is valid; existing leases last longer.
    pub timeout: Option<Duration>,
    /// The access of consumers to the memory.
    pub access: Access,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self { once: false, timeout: None, access: Access::ReadWrite }
    }
}
