//! What will happen to a sparse tensor and to each of its arrays, as the package found out.

use super::{PlanReport, Steps, in_words, shape_in_words, things};
use pyo3::prelude::*;
use std::fmt::Write;

/// What will happen to a sparse tensor. The members are those of the Python class `Plan`.
#[derive(Clone)]
pub(crate) struct SparseReport {
    pub(super) source: String,
    pub(super) target: String,
    pub(super) source_format: String,
    /// None for a dense result.
    pub(super) format: Option<String>,
    is_itself: bool,
    pub(super) source_dtype: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<i64>,
    pub(super) source_device: String,
    pub(super) device: String,
    pub(super) nnz: usize,
    pub(super) parts: Vec<PlanReport>,
    pub(super) notes: Vec<String>,
}

impl SparseReport {
    pub(super) fn action(&self) -> &'static str {
        if self.is_itself {
            "itself"
        } else if self.parts.iter().all(PlanReport::shares) {
            "share"
        } else {
            "copy"
        }
    }

    /// Framework and format of the source.
    pub(super) fn from(&self) -> String {
        format!("{} {}", self.source, self.source_format)
    }

    /// The same of the result.
    pub(super) fn to(&self) -> String {
        format!("{} {}", self.target, self.format.as_deref().unwrap_or("dense"))
    }

    pub(super) fn outcome(&self) -> String {
        let shared = self.parts.iter().filter(|part| part.shares()).count();
        let moved = in_words(self.parts.iter().map(PlanReport::bytes_moved).sum());
        match self.action() {
            "itself" => "nothing to do, the source itself comes back".to_owned(),
            "share" => "shared, no byte moves".to_owned(),
            _ if shared > 0 => format!("{shared} of {} arrays shared, {moved} copied", self.parts.len()),
            _ => format!("copied, {moved}"),
        }
    }

    pub(super) fn headline(&self) -> String {
        format!("{} -> {}: {}", self.from(), self.to(), self.outcome())
    }

    /// Type, shape and number of elements.
    pub(super) fn what(&self) -> String {
        let becomes =
            if self.dtype == self.source_dtype { String::new() } else { format!(", becomes {}", self.dtype) };
        let shape = shape_in_words(&self.shape);
        let stored = things(self.nnz, "stored element");
        format!("{} of shape {shape}, {stored}{becomes}", self.source_dtype)
    }

    /// Where it goes, if it does not stay.
    pub(super) fn way(&self) -> Option<String> {
        let moves = self.source_device != self.device;
        moves.then(|| format!("from {} to {}", self.source_device, self.device))
    }

    /// The arrays, unless nothing is done with them.
    pub(super) fn told_parts(&self) -> &[PlanReport] {
        if self.is_itself { &[] } else { &self.parts }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n  {}", self.headline(), self.what());
        if let Some(way) = self.way() {
            let _ = write!(text, "\n  {way}");
        }
        for part in self.told_parts() {
            if let super::plan::Content::Array(array) = part.content() {
                let _ = write!(text, "\n  {}", array.text(part.part_name()).replace('\n', "\n  "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n  note: {note}");
        }
        text
    }
}

/// What will happen to one of the arrays of a sparse tensor: values, coordinates, indices, indptr.
#[derive(Clone)]
pub(crate) struct ArrayReport {
    is_shared: bool,
    pub(super) dtype: String,
    pub(super) shape: Vec<i64>,
    pub(super) bytes_moved: usize,
    pub(super) extra_bytes: usize,
    pub(super) steps: Steps,
    pub(super) notes: Vec<String>,
}

impl ArrayReport {
    pub(super) fn action(&self) -> &'static str {
        if self.is_shared { "share" } else { "copy" }
    }

    pub(super) fn headline(&self, name: &str) -> String {
        let outcome = match self.is_shared {
            true => "shared, no byte moves".to_owned(),
            false => format!("copied, {}", in_words(self.bytes_moved)),
        };
        format!("{name} ({}): {outcome}", self.what())
    }

    /// Type and shape.
    pub(super) fn what(&self) -> String {
        format!("{}, {}", self.dtype, shape_in_words(&self.shape))
    }

    pub(super) fn text(&self, name: &str) -> String {
        let mut text = self.headline(name);
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        text
    }
}

/// The plan of a sparse tensor, for the package.
#[pyfunction]
#[pyo3(signature = (*, source, target, source_format, format, is_itself, source_dtype, dtype, shape, source_device,
    device, nnz, parts, notes))]
#[expect(clippy::too_many_arguments, reason = "called by name, from Python")]
pub(crate) fn _plan_of_sparse(
    source: String,
    target: String,
    source_format: String,
    format: Option<String>,
    is_itself: bool,
    source_dtype: String,
    dtype: String,
    shape: Vec<i64>,
    source_device: String,
    device: String,
    nnz: usize,
    parts: Vec<PyRef<'_, PlanReport>>,
    notes: Vec<String>,
) -> PlanReport {
    let parts = parts.iter().map(|part| PlanReport::clone(part)).collect();
    SparseReport {
        source,
        target,
        source_format,
        format,
        is_itself,
        source_dtype,
        dtype,
        shape,
        source_device,
        device,
        nnz,
        parts,
        notes,
    }
    .into()
}

/// The plan of one of its arrays.
#[pyfunction]
#[pyo3(signature = (*, name, is_shared, dtype, shape, bytes_moved, extra_bytes, steps, notes))]
#[expect(clippy::too_many_arguments, reason = "called by name, from Python")]
pub(crate) fn _plan_of_array(
    name: String,
    is_shared: bool,
    dtype: String,
    shape: Vec<i64>,
    bytes_moved: usize,
    extra_bytes: usize,
    steps: Vec<(String, String)>,
    notes: Vec<String>,
) -> PlanReport {
    let steps = steps.into_iter().map(|(kind, reason)| (kind.into(), reason)).collect();
    PlanReport::from(ArrayReport { is_shared, dtype, shape, bytes_moved, extra_bytes, steps, notes })
        .named(name)
}
