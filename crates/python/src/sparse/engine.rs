//! The trait `Engine`: operations on the elements of a sparse tensor, by host kernels or by a framework's functions on a GPU.
//!
//! The planner of the core decides which operations are needed; an engine inspects the elements for it and executes the plan.

use crate::conversion::source::Source;
use crate::errors::{Failure, Result};
use pyo3::prelude::*;
use smallvec::SmallVec;
use tensorferry_core::plan::sparse::{ArrayRole, ElementOrder, Inspect, SparseConversion};
use tensorferry_core::sparse::validate::{CompressedSummary, IndexError};

/// An array that still has to be converted for the target framework.
pub(super) enum ResultArray<'py> {
    /// Memory that tensorferry read or allocated.
    Source(Source<'py>),
    /// An array of a framework on a GPU.
    Object(Bound<'py, PyAny>),
}

/// The smallest and the largest coordinate along each axis, and the order of the elements.
pub(super) struct CoordinateRange {
    /// Empty if there are no elements.
    pub(super) bounds: SmallVec<[(i64, i64); 4]>,
    pub(super) order: ElementOrder,
}

/// Processes the arrays of one sparse tensor on the device where they are.
pub(super) trait Engine<'py>: Inspect<Error = Failure> {
    /// Validates the pointers and indices of one matrix of a batch. The outer result is a failure of the engine.
    fn validate_matrix(
        &mut self,
        matrix: usize,
        rows: usize,
        columns: i64,
    ) -> Result<std::result::Result<CompressedSummary, IndexError>>;

    /// The bounds and the order of the coordinates.
    fn coordinate_range(&mut self) -> Result<CoordinateRange>;

    /// Drops elements with coordinates outside the shape; returns the number of the remaining ones, and their order.
    fn drop_padding(&mut self) -> Result<(usize, ElementOrder)>;

    /// The number of stored elements, or of blocks, of one matrix.
    fn count(&self) -> usize;

    /// Drops the elements after the first `count`.
    fn truncate(&mut self, count: usize) -> Result<()>;

    /// Whether the source array for this role is contiguous.
    fn is_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool>;

    /// The source array for this role, or a view of it. The engine gives up the array.
    fn take_source_array(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<ResultArray<'py>>;

    /// The same for a report: the engine keeps the array.
    fn peek_source_array(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>>;

    /// A contiguous copy of the source array for this role.
    fn pack_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>>;

    /// A new array for this role, made by the steps of the conversion.
    fn make_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>>;

    /// The number of blocks of this size that contain elements.
    fn block_count(&mut self, block: [i64; 2]) -> Result<usize>;
}
