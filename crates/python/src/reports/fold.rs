//! Folding: conversions that differ only in the name, shape and size of the tensor are one row of a report.
//!
//! A model has hundreds of tensors and few kinds of conversion. Rows that repeat the same reasons hide the one that differs.

use super::tensor::{Steps, TensorReport};
use crate::errors::Result;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use tensorferry_core::Error;
use tensorferry_core::fallible::{try_push, try_reserve};

/// The names of a row that are written out; of more names, the first two are.
const MAX_LISTED_NAMES: usize = 3;

/// What conversions of one row have in common.
#[derive(PartialEq, Eq, Hash)]
struct FoldKey<'a> {
    frameworks: (&'a str, &'a str),
    devices: (&'a str, &'a str),
    dtypes: (&'a str, &'a str),
    action: &'a str,
    has_shape: bool,
    writable: bool,
    steps: &'a Steps,
    transfer_path: Option<&'a str>,
    notes: &'a [String],
    advice: Option<&'a str>,
}

/// Conversions of one row, in their order.
pub(super) struct Group<'a> {
    /// The positions of the conversions in the list that was folded.
    pub(super) positions: Vec<usize>,
    reports: Vec<&'a TensorReport>,
}

/// Folds a list of conversions. The rows are in the order of their first conversions.
pub(super) fn fold<'a>(reports: impl Iterator<Item = (usize, &'a TensorReport)>) -> Result<Vec<Group<'a>>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut by_key: HashMap<FoldKey<'a>, usize> = HashMap::new();
    for (position, report) in reports {
        let key_bytes = size_of::<(FoldKey<'a>, usize)>();
        by_key.try_reserve(1).map_err(|_| Error::out_of_memory((by_key.len() + 1) * key_bytes))?;
        let at = *by_key.entry(report.fold_key()).or_insert(groups.len());
        if at == groups.len() {
            try_push(&mut groups, Group { positions: Vec::new(), reports: Vec::new() })?;
        }
        try_push(&mut groups[at].positions, position)?;
        try_push(&mut groups[at].reports, report)?;
    }
    Ok(groups)
}

impl TensorReport {
    fn fold_key(&self) -> FoldKey<'_> {
        FoldKey {
            frameworks: (&self.source, &self.target),
            devices: (&self.source_device, &self.device),
            dtypes: (self.source_dtype, self.dtype),
            action: self.action,
            has_shape: self.shape.is_some(),
            writable: self.writable,
            steps: &self.steps,
            transfer_path: self.transfer_path.as_deref(),
            notes: &self.notes,
            advice: self.advice.as_deref(),
        }
    }
}

impl<'a> Group<'a> {
    /// The first conversion, which has everything that all of them have in common.
    pub(super) fn first(&self) -> &'a TensorReport {
        self.reports[0]
    }

    pub(super) fn len(&self) -> usize {
        self.reports.len()
    }

    fn bytes_moved(&self) -> usize {
        self.reports.iter().map(|report| report.bytes_moved).sum()
    }

    pub(super) fn outcome(&self) -> String {
        self.first().outcome_of(self.bytes_moved())
    }

    /// The details of all conversions together, each with its name.
    pub(super) fn detail_lines(&self) -> Vec<(&'static str, String)> {
        let extra_bytes = self.reports.iter().map(|report| report.extra_bytes).sum();
        let seconds = self.reports.iter().map(|report| report.expected_seconds());
        let seconds = seconds.reduce(|sum, next| Some(sum? + next?)).flatten();
        self.first().detail_lines_of(extra_bytes, seconds)
    }

    /// Type and shape, or the number of shapes.
    pub(super) fn type_and_shape(&self) -> String {
        let shapes: HashSet<&[i64]> =
            self.reports.iter().filter_map(|report| report.shape.as_deref()).collect();
        match shapes.len() {
            0 | 1 => self.first().type_and_shape(),
            count => self.first().type_and(&format!("{count} shapes")),
        }
    }

    /// The text below the headline.
    pub(super) fn body(&self) -> String {
        let mut text = format!("\n  {}", self.type_and_shape());
        for (number, (kind, reason)) in self.first().steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        for (name, line) in self.detail_lines() {
            let _ = write!(text, "\n  {name}: {line}");
        }
        text
    }

    /// The text of the row, under a title.
    pub(super) fn text(&self, title: &str) -> String {
        let first = self.first();
        format!("{title}: {} -> {}: {}{}", first.from(), first.to(), self.outcome(), self.body())
    }
}

/// The names of a row: all of a few, or the first two and the number of the others.
pub(crate) fn join_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    if count <= MAX_LISTED_NAMES {
        return names.collect::<Vec<_>>().join(", ");
    }
    let first: Vec<&str> = names.take(MAX_LISTED_NAMES - 1).collect();
    format!("{} and {} more", first.join(", "), count - first.len())
}

/// Appends to text whose length grows with the tree.
pub(super) fn try_append(text: &mut Vec<u8>, more: &str) -> Result<()> {
    try_reserve(text, more.len())?;
    text.extend_from_slice(more.as_bytes());
    Ok(())
}
