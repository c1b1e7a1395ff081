//! Formats plans of sparse tensors as text.

use super::conversion::{ArrayRole, SparseConversion, Step};
use super::format::CoordinateLayout;
use crate::plan::text::{count_noun, format_shape};
use std::borrow::Cow;

impl CoordinateLayout {
    fn description(self) -> &'static str {
        match self {
            Self::Axes => "as one array with a row per axis",
            Self::Points => "as one array with a row per element",
            Self::Separate => "as one array per axis",
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
    /// The kind of the step, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drop { .. } => "drop",
            Self::Expand { .. } => "expand",
            Self::Sort { .. } | Self::Group { .. } => "sort",
            Self::Sum { .. } => "sum",
            Self::Count { .. } => "count",
            Self::Arrange { .. } => "arrange",
            Self::Gather { .. } => "gather",
            Self::Cast { .. } => "cast",
            Self::Pack => "pack",
        }
    }

    /// Why the step is needed, as one clause.
    pub fn sentence(&self) -> Cow<'static, str> {
        match self {
            Self::Drop { count } => {
                format!("{} of padding, which only JAX has", count_noun(*count, "element")).into()
            }
            Self::Expand { from } => {
                format!("{} stores pointers instead of one coordinate per element", from.name()).into()
            }
            Self::Sort { reason } => format!("the elements are not sorted; {reason}").into(),
            Self::Group { by_columns: false } => "the elements are not grouped by rows".into(),
            Self::Group { by_columns: true } => "the elements are not grouped by columns".into(),
            Self::Sum { duplicates, reason } => {
                let duplicates = count_noun(*duplicates, "duplicate");
                format!("{duplicates} summed in the source's type; {reason}").into()
            }
            Self::Count { format } => {
                let what = if format.leading_axis() == 0 { "row" } else { "column" };
                format!("{} stores the start of each {what}", format.name()).into()
            }
            Self::Arrange { from: Some(from), to, title } => format!(
                "the coordinates are stored {}, and {title} needs them {}",
                from.description(),
                to.description()
            )
            .into(),
            Self::Arrange { from: None, to, .. } => {
                format!("the coordinates are combined {}", to.description()).into()
            }
            Self::Gather { block } => {
                format!("the elements are gathered into blocks of {}", format_shape(block)).into()
            }
            Self::Cast { from, to, title } => {
                let names: Vec<_> = from.iter().map(|dtype| dtype.name()).collect();
                format!("{title} stores these indices as {to}, and they are {}", names.join(" and ")).into()
            }
            Self::Pack => "strided; functions of the target require dense memory".into(),
        }
    }
}

impl SparseConversion {
    /// A note on the order of the elements of the result.
    pub fn order_note(&self) -> &'static str {
        match (self.in_order, self.unique) {
            (true, true) => {
                "the elements are sorted and their coordinates unique, and the result is flagged so"
            }
            (true, false) => "the elements are sorted, and duplicates are kept",
            _ => "the elements keep their unsorted order, and any duplicates are kept",
        }
    }
}
