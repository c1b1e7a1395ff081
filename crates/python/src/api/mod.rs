//! The functions and classes of the Python API, and their arguments.

pub(crate) mod async_transfer;
mod file_listing;
pub(crate) mod file_writer;
pub(crate) mod files;
pub(crate) mod job;
pub(crate) mod lifecycle;
pub(crate) mod memory_stats;
pub(crate) mod options;
pub(crate) mod shape;
pub(crate) mod to;
pub(crate) mod to_async;
