//! Reports about planned conversions of trees of tensors.

use super::fold::{Group, fold, join_names, try_append};
use super::plan_data::{PlanContent, PlanReport, TreeReport};
use super::ties::Ties;
use crate::errors::Result;
use crate::text::{format_bytes, format_duration};
use std::fmt::Write;
use tensorferry_core::fallible::try_push;
use tensorferry_core::plan::count_noun;

/// A row of the report about a tree.
pub(super) enum TreeRow<'a> {
    /// Dense tensors that are converted in the same way.
    Group(Group<'a>),
    /// A sparse tensor.
    Part(&'a PlanReport),
}

impl TreeReport {
    pub(crate) fn new(target: String, parts: Vec<PlanReport>) -> Self {
        Self { target, parts, notes: Vec::new() }
    }

    /// With a note about the NumPy scalars at these paths.
    pub(crate) fn with_scalars(mut self, paths: &[String]) -> Self {
        if !paths.is_empty() {
            let names = join_names(paths.iter().map(String::as_str));
            self.notes.push(format!("NumPy scalars stay as they are, like Python numbers: {names}"));
        }
        self
    }

    /// With the notes about objects that pass with tensors in them.
    pub(crate) fn with_passed(mut self, notes: Vec<String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// With a note about tensors over the same memory that get copies of their own.
    pub(crate) fn with_ties(mut self) -> Result<Self> {
        let mut ties = Ties::default();
        for part in &self.parts {
            ties.add(part.copied(), || part.display_name().to_owned())?;
        }
        self.notes.extend(ties.note());
        Ok(self)
    }

    pub(super) fn action(&self) -> &'static str {
        if self.parts.iter().any(|part| !part.shares()) {
            "copy"
        } else if self.parts.iter().any(|part| part.action() == "share") {
            "share"
        } else {
            "itself"
        }
    }

    /// The expected duration of all copies that the host waits for. None if the host waits for none, or if one duration is not known.
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        let times = self.parts.iter().filter(|part| part.blocks_host()).map(PlanReport::expected_seconds);
        times.reduce(|sum, next| Some(sum? + next?)).flatten()
    }

    pub(super) fn headline(&self) -> String {
        let moved = self.format_sum(PlanReport::bytes_moved);
        format!("of {}, {moved} moved", count_noun(self.parts.len(), "tensor"))
    }

    /// The bytes of all parts together; of some, the size may not be known.
    fn format_sum(&self, bytes: fn(&PlanReport) -> usize) -> String {
        let has_size = |part: &PlanReport| match &part.content {
            PlanContent::Tensor(tensor) => part.shares() || tensor.has_size(),
            _ => true,
        };
        let known = if self.parts.iter().all(has_size) { "" } else { "at least " };
        format!("{known}{}", format_bytes(self.parts.iter().map(bytes).sum()))
    }

    pub(super) fn summary(&self) -> String {
        let copied = self.parts.iter().filter(|part| !part.shares()).count();
        let mut text = format!(
            "{}: {} shared, {copied} copied ({})",
            count_noun(self.parts.len(), "tensor"),
            self.parts.len() - copied,
            self.format_sum(PlanReport::bytes_moved)
        );
        if copied > 0 {
            let _ = write!(text, ", {} of new memory", self.format_sum(PlanReport::extra_bytes));
            if let Some(seconds) = self.expected_seconds() {
                let _ = write!(text, ", about {}", format_duration(seconds));
            }
        }
        text
    }

    pub(super) fn text(&self) -> Result<Vec<u8>> {
        let mut text = self.summary().into_bytes();
        for row in self.rows()? {
            try_append(&mut text, "\n")?;
            let line = match row {
                TreeRow::Group(group) => group.text(&self.names_of(&group)),
                TreeRow::Part(part) => match &part.content {
                    PlanContent::Sparse(sparse) => format!("{}: {}", part.display_name(), sparse.text()),
                    _ => String::new(),
                },
            };
            try_append(&mut text, &line)?;
        }
        for note in &self.notes {
            try_append(&mut text, &format!("\nnote: {note}"))?;
        }
        Ok(text)
    }

    /// The tensors in rows: equal conversions share one. The rows are in the order of their first tensors.
    pub(super) fn rows(&self) -> Result<Vec<TreeRow<'_>>> {
        let dense = self.parts.iter().enumerate().filter_map(|(at, part)| match &part.content {
            PlanContent::Tensor(tensor) => Some((at, tensor)),
            _ => None,
        });
        let mut rows: Vec<(usize, TreeRow<'_>)> = Vec::new();
        for group in fold(dense)? {
            try_push(&mut rows, (group.positions[0], TreeRow::Group(group)))?;
        }
        for (at, part) in self.parts.iter().enumerate() {
            if !matches!(part.content, PlanContent::Tensor(_)) {
                try_push(&mut rows, (at, TreeRow::Part(part)))?;
            }
        }
        rows.sort_unstable_by_key(|row| row.0);
        Ok(rows.into_iter().map(|row| row.1).collect())
    }

    /// The names of the tensors of a row.
    pub(super) fn names_of(&self, group: &Group<'_>) -> String {
        join_names(group.positions.iter().map(|&at| self.parts[at].display_name()))
    }
}
