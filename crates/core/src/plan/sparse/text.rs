//! Plans of sparse tensors in sentences.

use super::{ArrayRole, CoordinateLayout, SparseConversion, Step};
use crate::plan::text::{count_noun, format_shape};
use std::borrow::Cow;

impl CoordinateLayout {
    fn words(self) -> &'static str {
        match self {
            Self::Axes => "axis by axis",
            Self::Points => "point by point",
            Self::Separate => "an array for each axis",
        }
    }
}

impl ArrayRole {
    /// The name of the array.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Values => "values".into(),
            Self::Pointers => "indptr".into(),
            Self::Indices => "indices".into(),
            Self::Coordinates => "coordinates".into(),
            Self::Axis(0, 2) => "row coordinates".into(),
            Self::Axis(1, 2) => "column coordinates".into(),
            Self::Axis(axis, _) => format!("coordinates of axis {axis}").into(),
        }
    }
}

impl Step {
    /// The step, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drop { .. } => "drop",
            Self::Expand { .. } => "expand",
            Self::Sort { .. } | Self::Group { .. } => "sort",
            Self::Sum { .. } => "sum",
            Self::Count { .. } => "count",
            Self::Lay { .. } => "lay",
            Self::Gather { .. } => "gather",
            Self::Cast { .. } => "cast",
            Self::Pack => "pack",
        }
    }

    /// Why the step is taken, as one clause.
    pub fn sentence(&self) -> Cow<'static, str> {
        match self {
            Self::Drop { count } => {
                format!("{} of padding, which only JAX has", count_noun(*count, "element")).into()
            }
            Self::Expand { from } => {
                format!("{} keeps pointers, and no place for each element", from.name()).into()
            }
            Self::Sort { reason } => format!("the elements are not in order; {reason}").into(),
            Self::Group { by_columns: false } => "the elements are not grouped by rows".into(),
            Self::Group { by_columns: true } => "the elements are not grouped by columns".into(),
            Self::Sum { duplicates, reason } => {
                let duplicates = count_noun(*duplicates, "duplicate");
                format!("{duplicates} summed in the source's type; {reason}").into()
            }
            Self::Count { format } => {
                let what = if format.leading_axis() == 0 { "row" } else { "column" };
                format!("{} keeps where each {what} begins", format.name()).into()
            }
            Self::Lay { from: Some(from), to, title } => {
                format!("the coordinates lie {}, and {title} wants {}", from.words(), to.words()).into()
            }
            Self::Lay { from: None, to, .. } => {
                format!("the coordinates are to lie together, {}", to.words()).into()
            }
            Self::Gather { block } => {
                format!("the elements go into blocks of {}", format_shape(block)).into()
            }
            Self::Cast { from, to, title } => {
                let names: Vec<_> = from.iter().map(|dtype| dtype.name()).collect();
                format!("{title} keeps these indices as {to}, and they are {}", names.join(" and ")).into()
            }
            Self::Pack => "strided; functions of the target count on dense memory".into(),
        }
    }
}

impl SparseConversion {
    /// What to know about the order of the elements of the result.
    pub fn order_note(&self) -> &'static str {
        match (self.in_order, self.unique) {
            (true, true) => "the elements are in order and each place is there once; the result says so",
            (true, false) => "the elements are in order, with duplicates, which are kept",
            _ => "the elements keep an order that is not sorted; duplicates are kept if there are any",
        }
    }
}
