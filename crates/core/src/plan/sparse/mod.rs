//! The planner of sparse tensors: decides how each array of the result is obtained, before any byte moves.
//!
//! A sparse tensor is a format and a few dense arrays. The planner decides the format of the result, the type of its
//! indices, which arrays of the source are reused, and by which steps the others are computed. Each array is then converted
//! by the plan of dense tensors, [`decide`](super::decide()).
//!
//! [`choose`](choose()) selects the format and rejects tensors that it cannot represent. [`convert`](convert()) decides the
//! rest from the [`SparseStructure`] that validation returned. Both are pure functions. Where a decision depends on the order
//! of the elements they call an [`Inspect`], which is implemented over host memory and over GPU memory, so that one plan
//! serves both.

mod choose;
mod conversion;
mod convert;
mod format;
mod inputs;
mod text;

pub use choose::{FormatChoice, SparseRequest, choose, no_such_format};
pub use conversion::{ArrayPlan, ArrayRole, ElementWork, Origin, SparseConversion, Step};
pub use convert::{FillMethod, convert, fill_method};
pub use format::{CoordinateLayout, SparseFormat};
pub use inputs::{
    ElementOrder, FormatCapabilities, Inspect, MAX_AXES, SparseSource, SparseStructure, SparseTarget,
};

#[cfg(test)]
mod tests;
