//! Reports about planned conversions of sparse tensors and of their arrays.

use super::{PlanReport, Steps, TensorReport, count_noun, format_shape, in_words};
use std::fmt::Write;

/// The planned conversion of a sparse tensor. The fields are attributes of the Python class `Plan`.
#[derive(Clone)]
pub(crate) struct SparseReport {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) source_format: String,
    /// None for a dense result.
    pub(crate) format: Option<String>,
    pub(crate) is_itself: bool,
    pub(crate) source_dtype: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) source_device: String,
    pub(crate) device: String,
    pub(crate) nnz: usize,
    pub(crate) parts: Vec<PlanReport>,
    pub(crate) notes: Vec<String>,
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

    /// Framework and format of the result.
    pub(super) fn to(&self) -> String {
        format!("{} {}", self.target, self.format.as_deref().unwrap_or("dense"))
    }

    pub(super) fn outcome(&self) -> String {
        let shared = self.parts.iter().filter(|part| part.shares()).count();
        let moved = in_words(self.parts.iter().map(PlanReport::bytes_moved).sum());
        match self.action() {
            "itself" => "nothing to do, the source itself is returned".to_owned(),
            "share" => "shared, no byte moves".to_owned(),
            _ if shared > 0 => format!("{shared} of {} arrays shared, {moved} copied", self.parts.len()),
            _ => format!("copied, {moved}"),
        }
    }

    pub(super) fn headline(&self) -> String {
        format!("{} -> {}: {}", self.from(), self.to(), self.outcome())
    }

    /// Type, shape and number of elements.
    pub(super) fn type_and_shape(&self) -> String {
        let dtype_change =
            if self.dtype == self.source_dtype { String::new() } else { format!(", becomes {}", self.dtype) };
        let shape = format_shape(&self.shape);
        let stored = count_noun(self.nnz, "stored element");
        format!("{} of shape {shape}, {stored}{dtype_change}", self.source_dtype)
    }

    /// The devices of source and result, if they differ.
    pub(super) fn device_line(&self) -> Option<String> {
        let moves = self.source_device != self.device;
        moves.then(|| format!("from {} to {}", self.source_device, self.device))
    }

    /// The reports about the arrays; empty if the source itself is the result.
    pub(super) fn reported_arrays(&self) -> &[PlanReport] {
        if self.is_itself { &[] } else { &self.parts }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n  {}", self.headline(), self.type_and_shape());
        if let Some(line) = self.device_line() {
            let _ = write!(text, "\n  {line}");
        }
        for part in self.reported_arrays() {
            if let super::plan::PlanContent::Array(array) = part.content() {
                let _ = write!(text, "\n  {}", array.text(part.display_name()).replace('\n', "\n  "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n  note: {note}");
        }
        text
    }
}

/// The planned conversion of one array of a sparse tensor: values, coordinates, indices or indptr.
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
    /// The report about a source array. `cast_reason` replaces the reason of a cast of indices.
    pub(crate) fn for_source_array(
        report: TensorReport,
        shape: Vec<i64>,
        cast_reason: Option<String>,
    ) -> Self {
        let mut steps = report.steps;
        if let Some(reason) = cast_reason {
            for (_, own) in steps.iter_mut().filter(|(kind, _)| kind == "cast") {
                own.clone_from(&reason);
            }
        }
        Self {
            is_shared: report.action != "copy",
            dtype: report.dtype.to_owned(),
            shape,
            bytes_moved: report.bytes_moved,
            extra_bytes: report.extra_bytes,
            steps,
            notes: report.notes,
        }
    }

    /// The report about a new array of this many bytes, which these steps make and which is then converted for the target.
    pub(crate) fn for_new_array(
        report: TensorReport,
        shape: Vec<i64>,
        bytes: usize,
        mut steps: Steps,
    ) -> Self {
        let extra_bytes = if report.bytes_moved > 0 { report.bytes_moved } else { bytes };
        steps.extend(report.steps);
        Self {
            is_shared: false,
            dtype: report.dtype.to_owned(),
            shape,
            bytes_moved: bytes + report.bytes_moved,
            extra_bytes,
            steps,
            notes: Vec::new(),
        }
    }

    /// The first reason for a copy.
    pub(crate) fn first_reason(&self) -> &str {
        self.steps.first().map_or("the array is new memory", |(_, reason)| reason)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn action(&self) -> &'static str {
        if self.is_shared { "share" } else { "copy" }
    }

    pub(super) fn headline(&self, name: &str) -> String {
        let outcome = match self.is_shared {
            true => "shared, no byte moves".to_owned(),
            false => format!("copied, {}", in_words(self.bytes_moved)),
        };
        format!("{name} ({}): {outcome}", self.type_and_shape())
    }

    /// Type and shape.
    pub(super) fn type_and_shape(&self) -> String {
        format!("{}, {}", self.dtype, format_shape(&self.shape))
    }

    pub(super) fn text(&self, name: &str) -> String {
        let mut text = self.headline(name);
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        text
    }
}
