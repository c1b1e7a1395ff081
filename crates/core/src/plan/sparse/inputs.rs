//! The inputs of the sparse planner: the source, its validated structure, and the capabilities of the target.

use super::format::{CoordinateLayout, SparseFormat};
use crate::dtype::{DType, DTypes};
use crate::error::Error;

/// What a framework accepts in one format.
#[derive(Clone, Copy, Debug)]
pub struct FormatCapabilities {
    /// The format.
    pub format: SparseFormat,
    /// The types that indices may have, the preferred one first.
    pub index_dtypes: &'static [DType],
    /// The memory layout of coordinates.
    pub layout: CoordinateLayout,
    /// Whether the elements must be sorted.
    pub in_order: bool,
    /// Whether duplicate coordinates are forbidden.
    pub unique: bool,
    /// Whether arrays may have strides.
    pub strided: bool,
    /// The minimum and maximum number of sparse axes.
    pub axes: (usize, usize),
    /// Whether elements may have dense axes.
    pub dense_axes: bool,
    /// Whether tensors may have batch axes.
    pub batch_axes: bool,
    /// The types of values; `None` for all types of the framework.
    pub dtypes: Option<DTypes>,
    /// Why it needs sorted and unique coordinates; a clause.
    pub reason: &'static str,
    /// Why its indices are narrow, if a setting of the framework causes it; a clause.
    pub index_reason: &'static str,
}

/// The maximum number of axes of any format.
pub const MAX_AXES: usize = 64;

impl FormatCapabilities {
    /// The format without additional constraints.
    pub const fn any(format: SparseFormat, index_dtypes: &'static [DType]) -> Self {
        Self {
            format,
            index_dtypes,
            layout: CoordinateLayout::Separate,
            in_order: false,
            unique: false,
            strided: false,
            axes: if matches!(format, SparseFormat::Coo) { (1, MAX_AXES) } else { (2, 2) },
            dense_axes: false,
            batch_axes: false,
            dtypes: None,
            reason: "",
            index_reason: "",
        }
    }

    /// The same for an intermediate step towards a dense tensor, where order and duplicates do not matter.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self {
            layout: self.layout,
            dense_axes: true,
            index_reason: self.index_reason,
            ..Self::any(self.format, self.index_dtypes)
        }
    }
}

/// A framework that has sparse tensors.
#[derive(Clone, Copy, Debug)]
pub struct SparseTarget {
    /// The framework, by the name that users write.
    pub framework: &'static str,
    /// The proper name of the framework, for sentences.
    pub title: &'static str,
    /// Its formats.
    pub formats: &'static [FormatCapabilities],
    /// Whether it has two classes for each format: arrays and matrices.
    pub has_matrices: bool,
}

/// The properties of a sparse source tensor that the planner needs.
#[derive(Clone, Copy, Debug)]
pub struct SparseSource<'a> {
    /// The framework of the tensor, by the name that users write.
    pub framework: &'a str,
    /// Its format.
    pub format: SparseFormat,
    /// Whether its class is a matrix class.
    pub is_matrix: bool,
    /// The memory layout of its coordinates, if the format is coo.
    pub layout: CoordinateLayout,
    /// The lengths of all axes: batch, sparse, dense.
    pub shape: &'a [i64],
    /// The number of batch axes.
    pub batch_axes: usize,
    /// The number of dense axes.
    pub dense_axes: usize,
    /// The size of blocks, if the format is bsr.
    pub block: Option<[i64; 2]>,
    /// The distinct types of its index arrays.
    pub index_dtypes: &'a [DType],
}

impl<'a> SparseSource<'a> {
    /// The lengths of the sparse axes.
    pub fn sparse_shape(&self) -> &'a [i64] {
        &self.shape[self.batch_axes..self.shape.len() - self.dense_axes]
    }
}

/// The order of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementOrder {
    /// Whether they are sorted by all axes.
    pub in_order: bool,
    /// Whether they are sorted and all coordinates are unique.
    pub unique: bool,
    /// Whether they are sorted by the first axis.
    pub grouped: bool,
}

/// The result of validating a source. The order is that of the format: by columns for csc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseStructure {
    /// The number of elements, or of blocks.
    pub count: usize,
    /// The number of stored elements that do not belong to the tensor: padding, or unused capacity.
    pub spare: usize,
    /// The order of the elements that belong to the tensor.
    pub order: ElementOrder,
}

/// Queries about the elements, for decisions that depend on their order. A query may take as long as a sort.
pub trait Inspect {
    /// The error of a failed inspection or of the planner.
    type Error: From<Error>;

    /// The order of single elements, with the last axis first if it is `by_columns`.
    ///
    /// # Errors
    /// When the inspection fails.
    fn order(&mut self, by_columns: bool) -> Result<ElementOrder, Self::Error>;

    /// The number of distinct coordinates.
    ///
    /// # Errors
    /// When the inspection fails.
    fn distinct(&mut self, by_columns: bool) -> Result<usize, Self::Error>;

    /// The order within a matrix after its elements have been grouped by rows, or by columns, with indices of this type.
    ///
    /// # Errors
    /// When the inspection fails.
    fn order_after_grouping(
        &mut self,
        by_columns: bool,
        index_dtype: DType,
    ) -> Result<ElementOrder, Self::Error>;
}
