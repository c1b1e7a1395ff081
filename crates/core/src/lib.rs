//! The ground floor of tensorferry: what a tensor is, and what may happen to one.
//!
//! This crate knows nothing of Python and nothing of CUDA. It is read from the bottom up:
//!
//! - [`dtype`], [`device`], [`layout`]: the facts about memory;
//! - [`tensor`], [`host`]: memory plus those facts plus an owner that keeps it alive;
//! - [`pool`]: large host blocks, kept for the next tensor;
//! - [`frozen`]: which memory is on loan as read-only;
//! - [`emergency`], [`growth`]: what keeps a process alive when memory runs out;
//! - [`error`]: what goes wrong, as one fact and one hint;
//! - [`dlpack`]: the ABI that frameworks speak, checked on the way in, owned on the way out;
//! - [`plan`]: pure functions from facts and wishes to steps with reasons;
//! - [`pack`]: the host copy engine, the only place here that moves bytes, on the threads of [`workers`];
//! - [`pieces`]: a tensor cut for a transfer;
//! - [`sparse`]: index arrays of sparse tensors, looked through and brought into order;
//! - [`speeds`]: how quick all that is on this machine;
//! - [`drop_queue`]: owners that one thread gives up and another thread drops.

pub mod aligned;
pub mod chunks;
pub mod device;
pub mod dlpack;
pub mod drop_queue;
pub mod dtype;
pub mod emergency_pool;
pub mod error;
pub mod fallible;
mod hint_key;
pub mod hints;
pub mod host;
pub mod layout;
pub mod pack;
pub mod plan;
pub mod pool;
pub mod read_only_loans;
pub mod sparse;
pub mod tensor;
pub mod throughput;
pub mod workers;

pub use device::Device;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use layout::Layout;
pub use tensor::{Access, ByteOrder, Tensor};
