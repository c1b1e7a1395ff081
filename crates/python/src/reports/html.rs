//! The cards of plans and of single trips.

use super::card::Card;
use super::fold::Group;
use super::plan_data::{ArrayReport, PlanContent, PlanReport, SparseReport, TreeReport};
use super::tensor::TensorReport;
use super::tree::TreeRow;
use crate::errors::Result;
use crate::text::format_duration;
use tensorferry_core::plan::count_noun;

/// The card of a plan.
pub(super) fn plan_html(plan: &PlanReport) -> Result<String> {
    card_of(plan, None)
}

/// The card of a finished conversion.
pub(super) fn trip_html(plan: &PlanReport, seconds: f64) -> Result<String> {
    card_of(plan, Some(seconds))
}

/// The card of a plan; with its duration if it was executed.
fn card_of(plan: &PlanReport, seconds: Option<f64>) -> Result<String> {
    let mut card = Card::new();
    match plan.content() {
        PlanContent::Tensor(tensor) => write_tensor(&mut card, tensor, seconds),
        PlanContent::Tree(tree) => write_tree(&mut card, tree)?,
        PlanContent::Sparse(sparse) => write_sparse(&mut card, sparse, seconds),
        PlanContent::Array(array) => write_array(&mut card, plan.display_name(), array),
    }
    Ok(card.finish()?)
}

fn write_duration(card: &mut Card, seconds: Option<f64>) {
    if let Some(seconds) = seconds {
        card.line(&format!("it took {}", format_duration(seconds)));
    }
}

fn write_tensor(card: &mut Card, plan: &TensorReport, seconds: Option<f64>) {
    card.headline(&plan.from(), &plan.to(), &plan.outcome(), plan.shares());
    write_duration(card, seconds);
    card.faded_line(&plan.type_and_shape());
    card.steps(&plan.steps);
    card.details(&plan.detail_lines());
}

pub(super) fn write_group_body(card: &mut Card, group: &Group<'_>) {
    card.faded_line(&group.type_and_shape());
    card.steps(&group.first().steps);
    card.details(&group.detail_lines());
}

/// A tree. Equal conversions share a row.
fn write_tree(card: &mut Card, tree: &TreeReport) -> Result<()> {
    card.title(&tree.summary());
    for row in tree.rows()? {
        match row {
            TreeRow::Group(group) => {
                let first = group.first();
                card.row(&tree.names_of(&group), &group.outcome(), first.shares(), |card| {
                    write_group_body(card, &group);
                    if group.len() > 1 {
                        let items = group.positions.iter().map(|&at| {
                            let part = &tree.parts[at];
                            (part.display_name(), part.shape_and_size())
                        });
                        card.folded_list(&count_noun(group.len(), "tensor"), items);
                    }
                });
            }
            TreeRow::Part(part) => {
                let PlanContent::Sparse(sparse) = part.content() else { continue };
                card.row(part.display_name(), &sparse.outcome(), part.shares(), |card| {
                    card.line(&format!("{} \u{2192} {}", sparse.from(), sparse.to()));
                    write_sparse_body(card, sparse);
                });
            }
        }
    }
    write_notes(card, &tree.notes);
    Ok(())
}

/// A sparse tensor, with a row for each of its arrays.
fn write_sparse(card: &mut Card, plan: &SparseReport, seconds: Option<f64>) {
    card.headline(&plan.from(), &plan.to(), &plan.outcome(), plan.action() != "copy");
    write_duration(card, seconds);
    write_sparse_body(card, plan);
}

pub(super) fn write_sparse_body(card: &mut Card, plan: &SparseReport) {
    for line in [Some(plan.type_and_shape()), plan.device_line()].into_iter().flatten() {
        card.faded_line(&line);
    }
    for part in plan.reported_arrays() {
        if let PlanContent::Array(array) = part.content() {
            write_array(card, part.display_name(), array);
        }
    }
    write_notes(card, &plan.notes);
}

pub(super) fn write_notes(card: &mut Card, notes: &[String]) {
    let notes: Vec<_> = notes.iter().map(|note| ("note", note.clone())).collect();
    card.details(&notes);
}

/// An array of a sparse tensor.
fn write_array(card: &mut Card, name: &str, array: &ArrayReport) {
    card.row(name, &array.outcome(), array.is_shared(), |card| {
        card.faded_line(&array.type_and_shape());
        card.steps(&array.steps);
    });
}
