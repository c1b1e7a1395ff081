//! Traces as text and as a card, for the list that `trace` fills.

use super::card::Card;
use super::fold::{Group, fold, try_append};
use super::html::{write_group_body, write_notes, write_sparse_body};
use super::plan_data::{PlanContent, SparseReport};
use super::trip::Trip;
use crate::errors::Result;
use crate::interpreter::objects;
use crate::text::{format_bytes, format_duration};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use tensorferry_core::fallible::try_push;
use tensorferry_core::plan::count_noun;

/// Equal conversions of a trace.
enum TripRow<'a> {
    Dense(Group<'a>),
    /// Sparse conversions: their positions in the list, and the first one.
    Sparse(Vec<usize>, &'a SparseReport),
}

impl TripRow<'_> {
    fn positions(&self) -> &[usize] {
        match self {
            Self::Dense(group) => &group.positions,
            Self::Sparse(positions, _) => positions,
        }
    }

    /// The number and the duration of the conversions.
    fn count_and_duration(&self, trips: &[&Trip]) -> String {
        let positions = self.positions();
        let seconds: f64 = positions.iter().map(|&at| trips[at].seconds()).sum();
        let text = format!("{}, {}", count_noun(positions.len(), "conversion"), format_duration(seconds));
        // The sizes in the report about sparse tensors are those of the first one.
        match self {
            Self::Sparse(..) if positions.len() > 1 => format!("{text}, the first"),
            _ => text,
        }
    }
}

/// The rows of a trace, in the order of their first conversions.
fn rows<'a>(trips: &[&'a Trip]) -> Result<Vec<TripRow<'a>>> {
    let (mut dense, mut rows, mut by_key) = (Vec::new(), Vec::new(), HashMap::new());
    for (at, trip) in trips.iter().enumerate() {
        match trip.report().content() {
            PlanContent::Tensor(tensor) => try_push(&mut dense, (at, tensor))?,
            PlanContent::Sparse(sparse) => {
                let row = *by_key.entry(sparse.fold_key()).or_insert(rows.len());
                if row == rows.len() {
                    try_push(&mut rows, TripRow::Sparse(Vec::new(), sparse))?;
                }
                if let TripRow::Sparse(positions, _) = &mut rows[row] {
                    try_push(positions, at)?;
                }
            }
            PlanContent::Tree(_) | PlanContent::Array(_) => {}
        }
    }
    for group in fold(dense.into_iter())? {
        try_push(&mut rows, TripRow::Dense(group))?;
    }
    rows.sort_unstable_by_key(|row| row.positions()[0]);
    Ok(rows)
}

/// The number of conversions, how many are shared or copied, and their duration.
fn summary(trips: &[&Trip]) -> String {
    let copied = trips.iter().filter(|trip| !trip.report().shares()).count();
    let unchanged = trips.iter().filter(|trip| trip.report().action() == "itself").count();
    let moved = format_bytes(trips.iter().map(|trip| trip.report().bytes_moved()).sum());
    let seconds = trips.iter().fold(0.0, |sum, trip| sum + trip.seconds());
    let (count, shared) = (count_noun(trips.len(), "conversion"), trips.len() - copied - unchanged);
    let returned = if unchanged == 0 { String::new() } else { format!(", {unchanged} returned unchanged") };
    format!("{count}: {shared} shared, {copied} copied ({moved}){returned}, {}", format_duration(seconds))
}

/// The text of a trace. Equal conversions share a row.
#[pyfunction]
pub(crate) fn _trips_text<'py>(
    py: Python<'py>,
    trips: Vec<PyRef<'py, Trip>>,
    notes: Vec<String>,
) -> Result<Bound<'py, PyString>> {
    let trips: Vec<&Trip> = trips.iter().map(|trip| &**trip).collect();
    let mut text = summary(&trips).into_bytes();
    for row in rows(&trips)? {
        let title = row.count_and_duration(&trips);
        try_append(&mut text, "\n")?;
        try_append(
            &mut text,
            &match &row {
                TripRow::Dense(group) => group.text(&title),
                TripRow::Sparse(_, first) => format!("{title}: {}", first.text()),
            },
        )?;
    }
    for note in notes {
        try_append(&mut text, &format!("\nnote: {note}"))?;
    }
    Ok(objects::string(py, &text)?)
}

/// The card of a trace. Equal conversions share a row.
#[pyfunction]
pub(crate) fn _trips_html<'py>(
    py: Python<'py>,
    trips: Vec<PyRef<'py, Trip>>,
    notes: Vec<String>,
) -> Result<Bound<'py, PyString>> {
    let trips: Vec<&Trip> = trips.iter().map(|trip| &**trip).collect();
    let mut card = Card::new();
    card.title(&summary(&trips));
    for row in rows(&trips)? {
        let (from, to, outcome) = match &row {
            TripRow::Dense(group) => (group.first().from(), group.first().to(), group.outcome()),
            TripRow::Sparse(_, first) => (first.from(), first.to(), first.outcome()),
        };
        let positions = row.positions();
        let shares = trips[positions[0]].report().shares();
        card.row(&format!("{from} \u{2192} {to}"), &outcome, shares, |card| {
            card.line(&row.count_and_duration(&trips));
            match &row {
                TripRow::Dense(group) => write_group_body(card, group),
                TripRow::Sparse(_, first) => write_sparse_body(card, first),
            }
            if positions.len() > 1 {
                let items = positions.iter().map(|&at| {
                    let trip = trips[at];
                    ("", format!("{}, {}", trip.report().shape_and_size(), format_duration(trip.seconds())))
                });
                card.folded_list("each conversion", items);
            }
        });
    }
    write_notes(&mut card, &notes);
    Ok(objects::string(py, card.finish()?.as_bytes())?)
}
