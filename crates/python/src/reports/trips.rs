//! Traces as text and as a card, for the list that `trace` fills.

use super::card::Card;
use super::fold::{Group, fold, try_append};
use super::html::write_group_body;
use super::trip::Trip;
use crate::errors::Result;
use crate::interpreter::objects;
use crate::text::{format_bytes, format_duration};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::plan::count_noun;

/// The number of conversions, how many are shared or copied, and their duration.
fn summary(trips: &[&Trip]) -> String {
    let copied = trips.iter().filter(|trip| !trip.report().shares()).count();
    let unchanged = trips.iter().filter(|trip| trip.report().action == "itself").count();
    let moved = format_bytes(trips.iter().map(|trip| trip.report().bytes_moved).sum());
    let seconds = trips.iter().fold(0.0, |sum, trip| sum + trip.seconds());
    let (count, shared) = (count_noun(trips.len(), "conversion"), trips.len() - copied - unchanged);
    let returned = if unchanged == 0 { String::new() } else { format!(", {unchanged} returned unchanged") };
    format!("{count}: {shared} shared, {copied} copied ({moved}){returned}, {}", format_duration(seconds))
}

/// The number and the duration of the conversions of a row.
fn count_and_duration(group: &Group<'_>, trips: &[&Trip]) -> String {
    let seconds: f64 = group.positions.iter().map(|&at| trips[at].seconds()).sum();
    format!("{}, {}", count_noun(group.len(), "conversion"), format_duration(seconds))
}

/// The text of a trace. Equal conversions share a row.
#[pyfunction]
pub(crate) fn _trips_text<'py>(
    py: Python<'py>,
    trips: Vec<PyRef<'py, Trip>>,
) -> Result<Bound<'py, PyString>> {
    let trips: Vec<&Trip> = trips.iter().map(|trip| &**trip).collect();
    let mut text = summary(&trips).into_bytes();
    for group in fold(trips.iter().map(|trip| trip.report()).enumerate())? {
        try_append(&mut text, "\n")?;
        try_append(&mut text, &group.text(&count_and_duration(&group, &trips)))?;
    }
    Ok(objects::string(py, &text)?)
}

/// The card of a trace. Equal conversions share a row.
#[pyfunction]
pub(crate) fn _trips_html<'py>(
    py: Python<'py>,
    trips: Vec<PyRef<'py, Trip>>,
) -> Result<Bound<'py, PyString>> {
    let trips: Vec<&Trip> = trips.iter().map(|trip| &**trip).collect();
    let mut card = Card::new();
    card.title(&summary(&trips));
    for group in fold(trips.iter().map(|trip| trip.report()).enumerate())? {
        let first = group.first();
        let title = format!("{} \u{2192} {}", first.from(), first.to());
        card.row(&title, &group.outcome(), first.shares(), |card| {
            card.line(&count_and_duration(&group, &trips));
            write_group_body(card, &group);
            if group.len() > 1 {
                let items = group.positions.iter().map(|&at| {
                    let trip = trips[at];
                    let shape = Group::shape_and_size(trip.report());
                    ("", format!("{shape}, {}", format_duration(trip.seconds())))
                });
                card.folded_list("each conversion", items);
            }
        });
    }
    Ok(objects::string(py, card.finish()?.as_bytes())?)
}
