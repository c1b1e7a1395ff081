//! What will happen to a sparse tensor and to each of its arrays.

use super::content::{ArrayReport, Content, PlanReport, SparseReport};
use super::tensor::{Steps, TensorReport};
use crate::text::format_bytes;
use std::fmt::Write;
use tensorferry_core::plan::{count_noun, format_shape};

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
        let moved = format_bytes(self.parts.iter().map(PlanReport::bytes_moved).sum());
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
        let shape = format_shape(&self.shape);
        let stored = count_noun(self.nnz, "stored element");
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
            if let Content::Array(array) = part.content() {
                let _ = write!(text, "\n  {}", array.text(part.part_name()).replace('\n', "\n  "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n  note: {note}");
        }
        text
    }
}

impl ArrayReport {
    /// What happens to an array of the source on its way to the target. A cast of indices has a reason of its own.
    pub(crate) fn given(told: TensorReport, shape: Vec<i64>, cast_reason: Option<String>) -> Self {
        let mut steps = told.steps;
        if let Some(reason) = cast_reason {
            for (_, own) in steps.iter_mut().filter(|(kind, _)| kind == "cast") {
                own.clone_from(&reason);
            }
        }
        Self {
            is_shared: told.action != "copy",
            dtype: told.dtype.to_owned(),
            shape,
            bytes_moved: told.bytes_moved,
            extra_bytes: told.extra_bytes,
            steps,
            notes: told.notes,
        }
    }

    /// What happens to an array that is made by these steps in memory of this many bytes and then goes to the target.
    pub(crate) fn made(told: TensorReport, shape: Vec<i64>, bytes: usize, mut steps: Steps) -> Self {
        let extra_bytes = if told.bytes_moved > 0 { told.bytes_moved } else { bytes };
        steps.extend(told.steps);
        Self {
            is_shared: false,
            dtype: told.dtype.to_owned(),
            shape,
            bytes_moved: bytes + told.bytes_moved,
            extra_bytes,
            steps,
            notes: Vec::new(),
        }
    }

    /// The first reason for a copy.
    pub(crate) fn first_reason(&self) -> &str {
        self.steps.first().map_or("it is new memory", |(_, reason)| reason)
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
            false => format!("copied, {}", format_bytes(self.bytes_moved)),
        };
        format!("{name} ({}): {outcome}", self.what())
    }

    /// Type and shape.
    pub(super) fn what(&self) -> String {
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
