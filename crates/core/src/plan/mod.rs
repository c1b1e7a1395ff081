//! The planner: decides whether a tensor is shared or copied, and why, before any byte moves.
//!
//! [`inputs`] describes the source, the capabilities of the target and the options of the caller. [`decide`](decide()) is
//! a pure function from those to a [`Plan`] or an error. It reads no memory, so the tests here cover every rule of sharing
//! and copying without any framework. `fast_path` answers the common cases without building a plan. `text` formats
//! plans as sentences. [`sparse`] plans conversions of sparse tensors.

mod decide;
mod fast_path;
pub mod inputs;
mod outcome;
mod reason;
mod resolve;
pub mod sparse;
mod text;

pub use decide::decide;
pub use fast_path::{FastDecision, fast_decision};
pub use inputs::{
    Alignment, ConvertOptions, DTypeRequest, DeviceRequest, SourceDescription, SourceMutability, Strides,
    SupportedDevices, TargetCapabilities, TargetMutability, TimeUnit,
};
pub use outcome::{Note, Plan, Route};
pub use reason::{Pending, Reason};
pub use resolve::check_budget;
pub use text::{count_noun, format_shape};

#[cfg(test)]
mod tests;
