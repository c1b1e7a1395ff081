//! The core of tensorferry: tensors, conversion plans and host copies, independent of Python and CUDA.
//!
//! From the bottom up:
//!
//! - [`error`], [`hints`]: errors with a kind, a fact and a hint key;
//! - [`dtype`], [`device`], [`layout`]: the description of memory;
//! - [`tensor`], [`host`]: memory with its description and an owner;
//! - [`pool`]: reuse of large host blocks;
//! - [`tree_block`]: one host block for the small tensors of a tree;
//! - [`emergency_pool`], [`fallible`]: errors instead of aborts when memory runs out;
//! - [`read_only_loans`], [`aligned`]: properties of memory that frameworks do not record;
//! - [`dlpack`]: import and export of tensors;
//! - [`c_api`]: the C table for extension modules;
//! - [`borrow_table`]: the memory that extension modules read and write;
//! - [`plan`]: pure functions from descriptions and options to plans with reasons;
//! - [`workers`]: helper threads for parallel work;
//! - [`pack`]: copies and casts on the host;
//! - [`chunks`]: the division of a tensor for a transfer;
//! - [`sparse`]: validation and conversion of the arrays of sparse tensors;
//! - [`throughput`]: measured speeds, for the estimates in plans;
//! - [`drop_queue`]: deferred drops on another thread;
//! - [`file_size_limit`]: an error instead of a signal where a file becomes too large.
//!
//! The interface of this crate changes with any version. Programs use the crate `tensorferry`, whose interface is stable.

pub mod aligned;
pub mod borrow_table;
pub mod c_api;
pub mod chunks;
pub mod device;
pub mod dlpack;
pub mod drop_queue;
pub mod dtype;
pub mod emergency_pool;
pub mod error;
pub mod fallible;
pub mod file_size_limit;
mod hint_key;
pub mod hints;
pub mod host;
pub mod layout;
pub mod pack;
pub mod plan;
pub mod pool;
pub mod read_only_loans;
pub mod sparse;
mod sync;
pub mod tensor;
pub mod throughput;
pub mod tree_block;
pub mod workers;

pub use device::Device;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use layout::Layout;
pub use tensor::{Access, ByteOrder, Tensor};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
