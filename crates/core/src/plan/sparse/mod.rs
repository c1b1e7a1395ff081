//! What will happen to a sparse tensor, before any of its arrays moves.
//!
//! A sparse tensor is a format and a few dense arrays. The planner decides the format of the result, the type of its indices,
//! which arrays of the source are handed on and which are made, and by which steps. Each array that is handed on or made then
//! goes its own way by the planner of dense tensors, [`decide`](super::decide()).
//!
//! [`choose`](choose()) picks the format and refuses what it cannot hold. [`convert`](convert()) decides the rest from the
//! [`SparseStructure`] that validation found. Both are pure functions: where a decision depends on the order of the elements, they ask
//! an [`Inspect`], which the caller implements over memory of the host or of a GPU. So the same plan holds for both.

mod choose;
mod convert;
mod text;

pub use choose::{FormatChoice, SparseRequest, choose, no_such_format};
pub use convert::{FillMethod, convert, fill_method};

use crate::dtype::{DType, DTypes};
use crate::error::Error;
use smallvec::{SmallVec, smallvec};

/// How a sparse tensor stores the coordinates of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseFormat {
    /// The coordinates of each element.
    Coo,
    /// Compressed rows: a pointer for each row, a column for each element.
    Csr,
    /// Compressed columns: a pointer for each column, a row for each element.
    Csc,
    /// Compressed rows of dense blocks.
    Bsr,
}

impl SparseFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Coo, Self::Csr, Self::Csc, Self::Bsr];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coo => "coo",
            Self::Csr => "csr",
            Self::Csc => "csc",
            Self::Bsr => "bsr",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The axis by which a compressed format groups elements.
    pub fn leading_axis(self) -> usize {
        if self == Self::Csc { 1 } else { 0 }
    }
}

/// How the coordinates of the format coo lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinateLayout {
    /// One matrix with a row for each axis.
    Axes,
    /// One matrix with a row for each element.
    Points,
    /// An array for each axis.
    Separate,
}

impl CoordinateLayout {
    /// The layout of this name, as the package writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "axes" => Some(Self::Axes),
            "points" => Some(Self::Points),
            "separate" => Some(Self::Separate),
            _ => None,
        }
    }

    /// The name, as the package writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Axes => "axes",
            Self::Points => "points",
            Self::Separate => "separate",
        }
    }
}

/// What a framework accepts in one format.
#[derive(Clone, Copy, Debug)]
pub struct FormatCapabilities {
    /// The format.
    pub format: SparseFormat,
    /// The types that indices may have, the preferred one first.
    pub index_dtypes: &'static [DType],
    /// How coordinates lie.
    pub layout: CoordinateLayout,
    /// Whether the elements must be in order.
    pub in_order: bool,
    /// Whether each coordinate may be there only once.
    pub unique: bool,
    /// Whether arrays may have strides.
    pub strided: bool,
    /// The fewest and the most axes with coordinates.
    pub axes: (usize, usize),
    /// Whether elements may have dense axes.
    pub dense_axes: bool,
    /// Whether there may be batch axes.
    pub batch_axes: bool,
    /// The types of values; `None` for all that the framework holds.
    pub dtypes: Option<DTypes>,
    /// Why it asks for order and for unique coordinates; a clause.
    pub reason: &'static str,
    /// Why its indices are narrow, where a setting of the framework makes them so; a clause.
    pub index_reason: &'static str,
}

/// The most axes that any format has.
pub const MAX_AXES: usize = 64;

impl FormatCapabilities {
    /// The format without any demand beyond its own.
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

    /// The same for arrays that only pass through on their way into a dense tensor: order and duplicates do not matter.
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

/// A framework that holds sparse tensors.
#[derive(Clone, Copy, Debug)]
pub struct SparseTarget {
    /// The framework, as users name it.
    pub framework: &'static str,
    /// The same with its own capitals, for sentences.
    pub title: &'static str,
    /// Its formats.
    pub formats: &'static [FormatCapabilities],
    /// Whether it has two classes for each format, arrays and matrices.
    pub has_matrices: bool,
}

/// About the source.
#[derive(Clone, Copy, Debug)]
pub struct SparseSource<'a> {
    /// Whose tensor it is, as users name the framework.
    pub framework: &'a str,
    /// Its format.
    pub format: SparseFormat,
    /// Whether it is of a class of matrices.
    pub is_matrix: bool,
    /// How its coordinates lie, if the format is coo.
    pub layout: CoordinateLayout,
    /// The lengths of all axes: batch, sparse, dense.
    pub shape: &'a [i64],
    /// The number of batch axes.
    pub batch_axes: usize,
    /// The number of dense axes.
    pub dense_axes: usize,
    /// The size of blocks, if the format is bsr.
    pub block: Option<[i64; 2]>,
    /// The types of its index arrays, each once.
    pub index_dtypes: &'a [DType],
}

impl<'a> SparseSource<'a> {
    /// The lengths of the axes that have coordinates.
    pub fn sparse_shape(&self) -> &'a [i64] {
        &self.shape[self.batch_axes..self.shape.len() - self.dense_axes]
    }
}

/// The order of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementOrder {
    /// Whether they are sorted by all axes.
    pub in_order: bool,
    /// Whether they are sorted and each coordinate is there once.
    pub unique: bool,
    /// Whether they are sorted by the first axis.
    pub grouped: bool,
}

/// What validation found in the source. The order is that of the format: by columns for csc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseStructure {
    /// The number of elements, or of blocks.
    pub count: usize,
    /// The number of stored elements that do not belong to the tensor: padding, or spare room.
    pub spare: usize,
    /// The order of the elements that belong to the tensor.
    pub order: ElementOrder,
}

/// What the planner asks about the elements, if a decision depends on it. Answers may take as long as a sort.
pub trait Inspect {
    /// What a failed inspection, or a refusal of the planner, becomes.
    type Error: From<Error>;

    /// The order of single elements, with the last axis first if it is `by_columns`.
    ///
    /// # Errors
    /// When the inspection fails.
    fn order(&mut self, by_columns: bool) -> Result<ElementOrder, Self::Error>;

    /// The number of different coordinates.
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

/// How the arrays of the result are made.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseConversion {
    /// The format of the result.
    pub format: SparseFormat,
    /// How its coordinates lie, if the format is coo.
    pub layout: CoordinateLayout,
    /// The type of its indices.
    pub index_dtype: DType,
    /// The work on the elements.
    pub work: ElementWork,
    /// Whether the elements of the result are in order.
    pub in_order: bool,
    /// Whether they are in order and each coordinate is there once.
    pub unique: bool,
    /// The number of elements of the result; for blocks known only when they are made.
    pub count: Option<usize>,
    /// Its arrays: the values, then those that hold indices.
    pub arrays: SmallVec<[ArrayPlan; 3]>,
}

impl SparseConversion {
    /// Packs arrays of the source that are strided, for a format whose functions count on dense memory, and for the values of
    /// blocks, which can be seen as single elements only where they are dense.
    ///
    /// # Errors
    /// When nobody can say whether an array is dense.
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

    /// Whether elements are sorted or grouped with the last axis first.
    pub fn by_columns(&self) -> bool {
        self.format == SparseFormat::Csc
    }
}

/// The work on the elements of a sparse tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementWork {
    /// The arrays stay what they are.
    Keep,
    /// The elements are grouped by rows or columns in one pass, which keeps the order within each group.
    Group,
    /// Each element gets its coordinates, if it has none.
    Elements {
        /// Whether they are sorted by all axes; for compressed columns the last axis comes first. The sort is stable.
        sort: bool,
        /// Whether values with the same coordinates are summed.
        sum: bool,
    },
    /// The elements go into blocks of this size.
    Blocks([i64; 2]),
}

/// What one array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayRole {
    /// The values.
    Values,
    /// Where each row or column begins.
    Pointers,
    /// The column or row of each element.
    Indices,
    /// All coordinates in one matrix.
    Coordinates,
    /// The coordinates along one axis: its number, and the number of axes.
    Axis(usize, usize),
}

/// What happens to one array before it goes to the target.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayPlan {
    /// What it holds.
    pub role: ArrayRole,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where an array of the result comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It is an array of the source, or a view of one.
    Given,
    /// It is made, by these steps.
    Made(SmallVec<[Step; 2]>),
}

/// A step in the making of an array.
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
        /// Why the target asks for it.
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
        /// Why the target asks for it.
        reason: &'static str,
    },
    /// The elements of each row or column are counted.
    Count {
        /// The format that keeps pointers.
        format: SparseFormat,
    },
    /// Coordinates are brought into another layout.
    Lay {
        /// How they lie, if the source has coordinates in another layout.
        from: Option<CoordinateLayout>,
        /// How they are to lie.
        to: CoordinateLayout,
        /// The framework that wants them so.
        title: &'static str,
    },
    /// Elements go into blocks.
    Gather {
        /// The size of blocks.
        block: [i64; 2],
    },
    /// Indices change their type.
    Cast {
        /// The types that they have.
        from: SmallVec<[DType; 2]>,
        /// The type of the result.
        to: DType,
        /// The framework that wants it so.
        title: &'static str,
    },
    /// A strided array is packed.
    Pack,
}

#[cfg(test)]
mod tests;
