//! The functions and classes that Python calls.

pub(crate) mod files;
pub(crate) mod lifecycle;
pub(crate) mod memory_stats;
pub(crate) mod options;
pub(crate) mod shape;
pub(crate) mod to;
pub(crate) mod to_async;
