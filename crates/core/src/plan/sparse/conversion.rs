//! Plans of sparse conversions: the operation on the elements, and the origin of each array of the result.

use super::format::{CoordinateLayout, SparseFormat};
use super::inputs::{FormatCapabilities, SparseSource};
use crate::dtype::DType;
use smallvec::{SmallVec, smallvec};

/// The plan of a sparse conversion: how each array of the result is obtained.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseConversion {
    /// The format of the result.
    pub format: SparseFormat,
    /// The memory layout of its coordinates, if the format is coo.
    pub layout: CoordinateLayout,
    /// The type of its indices.
    pub index_dtype: DType,
    /// The operation on the elements.
    pub work: ElementWork,
    /// Whether the elements of the result are sorted.
    pub in_order: bool,
    /// Whether they are sorted and all coordinates are unique.
    pub unique: bool,
    /// The number of elements of the result; `None` for blocks, which are counted when they are built.
    pub count: Option<usize>,
    /// Its arrays: the values, then those that hold indices.
    pub arrays: SmallVec<[ArrayPlan; 3]>,
}

impl SparseConversion {
    /// Adds a packing step for strided arrays of the source if the format needs dense memory. Values of blocks are packed too,
    /// because a view of them as single elements needs dense memory.
    ///
    /// # Errors
    /// When `is_dense` fails.
    pub fn pack_strided<E>(
        &mut self,
        source: &SparseSource<'_>,
        capabilities: &FormatCapabilities,
        is_dense: impl Fn(&Self, ArrayRole) -> Result<bool, E>,
    ) -> Result<(), E> {
        for number in 0..self.arrays.len() {
            let role = self.arrays[number].role;
            let is_flattened = role == ArrayRole::Values
                && source.format == SparseFormat::Bsr
                && self.format != SparseFormat::Bsr;
            if (!capabilities.strided || is_flattened)
                && self.arrays[number].origin == Origin::Given
                && !is_dense(self, role)?
            {
                self.arrays[number].origin = Origin::Made(smallvec![Step::Pack]);
            }
        }
        Ok(())
    }

    /// Whether elements are sorted or grouped by columns.
    pub fn by_columns(&self) -> bool {
        self.format == SparseFormat::Csc
    }
}

/// The operation on the elements of a sparse tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementWork {
    /// The arrays are used unchanged.
    Keep,
    /// The elements are grouped by rows or columns in one pass, which keeps the order within each group.
    Group,
    /// Compressed formats are expanded to one coordinate per element.
    Elements {
        /// Whether they are sorted by all axes; for compressed columns the last axis comes first. The sort is stable.
        sort: bool,
        /// Whether values with the same coordinates are summed.
        sum: bool,
    },
    /// The elements are gathered into blocks of this size.
    Blocks([i64; 2]),
}

/// The content of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayRole {
    /// The values.
    Values,
    /// The start of each row or column.
    Pointers,
    /// The column or row of each element.
    Indices,
    /// All coordinates in one matrix.
    Coordinates,
    /// The coordinates along one axis: its number, and the number of axes.
    Axis(usize, usize),
}

/// The plan for one array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayPlan {
    /// Its content.
    pub role: ArrayRole,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of an array of the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It is an array of the source, or a view of one.
    Given,
    /// It is computed by these steps.
    Made(SmallVec<[Step; 2]>),
}

/// A step in the computation of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Elements of padding are dropped.
    Drop {
        /// The number of them.
        count: usize,
    },
    /// Pointers become a row or column for each element.
    Expand {
        /// The format that has the pointers.
        from: SparseFormat,
    },
    /// Elements are sorted by all axes.
    Sort {
        /// Why the target needs it.
        reason: &'static str,
    },
    /// Elements are grouped by rows, or by columns.
    Group {
        /// Whether by columns.
        by_columns: bool,
    },
    /// Values with the same coordinates are summed.
    Sum {
        /// The number of elements that disappear.
        duplicates: usize,
        /// Why the target needs it.
        reason: &'static str,
    },
    /// The elements of each row or column are counted.
    Count {
        /// The format that has the pointers.
        format: SparseFormat,
    },
    /// Coordinates are rearranged into another layout.
    Arrange {
        /// The layout of the source, if it has coordinates in another layout.
        from: Option<CoordinateLayout>,
        /// The layout of the result.
        to: CoordinateLayout,
        /// The framework that needs it.
        title: &'static str,
    },
    /// Elements are gathered into blocks.
    Gather {
        /// The size of blocks.
        block: [i64; 2],
    },
    /// Indices change their type.
    Cast {
        /// The types of the source.
        from: SmallVec<[DType; 2]>,
        /// The type of the result.
        to: DType,
        /// The framework that needs it.
        title: &'static str,
    },
    /// A strided array is packed.
    Pack,
}
