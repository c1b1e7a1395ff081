//! Who works on the elements of a sparse tensor: kernels of the host, or the functions of a framework on a GPU.
//!
//! The planner of the core decides; an engine answers its questions and does what it decided.

use crate::conversion::source::Source;
use crate::errors::{Failure, Result};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensorferry_core::plan::sparse::{ArrayRole, ElementOrder, Inspect, SparseConversion};
use tensorferry_core::sparse::validate::{CompressedSummary, IndexFault};

/// An array of the result on its way to the target.
pub(super) enum Arriving<'py> {
    /// Read, or made, by us.
    Source(Source<'py>),
    /// An array of a framework on a GPU.
    Object(Bound<'py, PyAny>),
}

/// The least and the greatest coordinate along each axis, and the order of the elements.
pub(super) struct CoordinateRange {
    /// Empty if there are no elements.
    pub(super) ends: SmallVec<[(i64, i64); 4]>,
    pub(super) order: ElementOrder,
}

/// Works on the arrays of one sparse tensor, where they are.
pub(super) trait Engine<'py>: Inspect<Error = Failure> {
    /// Validates the pointers and indices of one matrix of a batch. The outer result is a failure of the engine.
    fn validate_matrix(
        &mut self,
        matrix: usize,
        rows: usize,
        columns: i64,
    ) -> Result<std::result::Result<CompressedSummary, IndexFault>>;

    /// The range of the coordinates, and their order.
    fn coordinate_range(&mut self) -> Result<CoordinateRange>;

    /// Leaves out elements whose coordinates are beyond the shape; gives the number of those that stay, and their order.
    fn drop_padding(&mut self) -> Result<(usize, ElementOrder)>;

    /// The number of stored elements, or of blocks, of one matrix.
    fn count(&self) -> usize;

    /// Leaves out the elements behind the first `count`.
    fn truncate(&mut self, count: usize) -> Result<()>;

    /// Whether the array of the source for this role is dense.
    fn is_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool>;

    /// The array of the source for this role, or a view of it.
    fn give(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>>;

    /// The same, for a plan: the source can still be handed on.
    fn peek(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>>;

    /// The array of the source for this role, packed.
    fn pack(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>>;

    /// Makes the array for this role, as the conversion says.
    fn make(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>>;

    /// The number of blocks of this size that the elements lie in.
    fn block_count(&mut self, block: [i64; 2]) -> Result<usize>;
}
