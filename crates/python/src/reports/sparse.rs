//! Reports about planned conversions of sparse tensors and of their arrays.

use super::plan_data::{ArrayReport, PlanContent, PlanReport, SparseReport};
use super::tensor::{Steps, TensorReport};
use crate::text::format_bytes;
use std::fmt::Write;
use tensorferry_core::plan::{count_noun, format_shape};

/// What sparse conversions of one row have in common: all but shapes and sizes.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct SparseFoldKey<'a> {
    ends: [String; 2],
    devices: (&'a str, &'a str),
    dtypes: (&'a str, &'a str),
    action: &'static str,
    arrays: Vec<(&'a str, &'static str, &'a Steps)>,
    notes: &'a [String],
}

impl SparseReport {
    pub(super) fn fold_key(&self) -> SparseFoldKey<'_> {
        let arrays = self.parts.iter().filter_map(|part| match part.content() {
            PlanContent::Array(array) => Some((part.display_name(), array.action(), &array.steps)),
            _ => None,
        });
        SparseFoldKey {
            ends: [self.from(), self.to()],
            devices: (&self.source_device, &self.device),
            dtypes: (&self.source_dtype, &self.dtype),
            action: self.action(),
            arrays: arrays.collect(),
            notes: &self.notes,
        }
    }

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
        let moved = format_bytes(self.parts.iter().map(PlanReport::bytes_moved).sum());
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
            if let PlanContent::Array(array) = part.content() {
                let _ = write!(text, "\n  {}", array.text(part.display_name()).replace('\n', "\n  "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n  note: {note}");
        }
        text
    }
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
        format!("{name} ({}): {}", self.type_and_shape(), self.outcome())
    }

    pub(super) fn outcome(&self) -> String {
        match self.is_shared {
            true => "shared, no byte moves".to_owned(),
            false => format!("copied, {}", format_bytes(self.bytes_moved)),
        }
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
