//! HTML representations of plans and trips, for notebooks.
//!
//! Styles are inline and inherit the text colour of the page, so that they work with light and dark themes.

use super::plan_data::{PlanContent, PlanReport, SparseReport};
use super::tensor::{Steps, TensorReport};
use crate::text::{format_bytes, format_duration};
use std::fmt::Write;
use tensorferry_core::{Error, Result};

const CARD_STYLE: &str = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.7em 1em;margin:.3em 0;max-width:60em;\
                    line-height:1.45;font-family:system-ui,sans-serif";
const FADED_STYLE: &str = "opacity:.75";
/// The colours repeat what the text says, for readers who cannot tell them apart.
const SHARED_COLOUR: &str = "#0072b2";
const COPIED_COLOUR: &str = "#b35900";

pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The HTML of a plan.
pub(super) fn plan_html(plan: &PlanReport) -> Result<String> {
    match plan.content() {
        PlanContent::Tensor(tensor) => Ok(tensor_card(tensor)),
        PlanContent::Tree(tree) => {
            let head = format!("<b>{}</b>", escape(&tree.summary()));
            table(&head, "tensor", &tree.parts, "")
        }
        PlanContent::Sparse(sparse) => sparse_card(sparse),
        PlanContent::Array(_) => table("", "array", std::slice::from_ref(plan), ""),
    }
}

/// The plan of one dense tensor.
fn tensor_card(plan: &TensorReport) -> String {
    let mut html = format!("<div style=\"{CARD_STYLE}\">");
    html += &headline_html(&plan.from(), &plan.to(), &plan.outcome(), plan.shares());
    let _ = write!(html, "<div style=\"{FADED_STYLE}\">{}</div>", escape(&plan.type_and_shape()));
    if !plan.steps.is_empty() {
        html.push_str("<ol style=\"margin:.4em 0;padding-left:1.6em\">");
        for (kind, reason) in &plan.steps {
            let _ = write!(html, "<li><b>{}</b>: {}</li>", escape(kind), escape(reason));
        }
        html.push_str("</ol>");
    }
    html + &detail_list(&plan.detail_lines()) + "</div>"
}

/// The plan of a sparse tensor: its arrays, one row each.
fn sparse_card(plan: &SparseReport) -> Result<String> {
    let mut head = headline_html(&plan.from(), &plan.to(), &plan.outcome(), plan.action() != "copy");
    for line in [Some(plan.type_and_shape()), plan.device_line()].into_iter().flatten() {
        let _ = write!(head, "<div style=\"{FADED_STYLE}\">{}</div>", escape(&line));
    }
    let notes: Vec<_> = plan.notes.iter().map(|note| ("note", note.clone())).collect();
    table(&head, "array", plan.reported_arrays(), &detail_list(&notes))
}

/// A list of named lines.
fn detail_list(lines: &[(&'static str, String)]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut html =
        "<dl style=\"margin:.4em 0 0;display:grid;grid-template-columns:max-content 1fr;gap:.15em .8em\">"
            .to_owned();
    for (name, text) in lines {
        let _ = write!(
            html,
            "<dt style=\"{FADED_STYLE}\">{}</dt><dd style=\"margin:0\">{}</dd>",
            escape(name),
            escape(text)
        );
    }
    html + "</dl>"
}

fn headline_html(from: &str, to: &str, outcome: &str, shares: bool) -> String {
    let colour = if shares { SHARED_COLOUR } else { COPIED_COLOUR };
    format!(
        "<div><b>{} &rarr; {}</b> <span style=\"color:#fff;background:{colour};border-radius:4px;padding:.05em .5em\">{}</span></div>",
        escape(from),
        escape(to),
        escape(outcome)
    )
}

/// A card with a table of the parts of a plan.
fn table(head: &str, first: &str, parts: &[PlanReport], foot: &str) -> Result<String> {
    let mut html = format!("<div style=\"{CARD_STYLE}\">{head}");
    if !parts.is_empty() {
        html.push_str("<div style=\"overflow-x:auto\"><table style=\"border-collapse:collapse;margin-top:.4em\"><thead><tr>");
        for head in [first, "type and shape", "action", "bytes", "steps", "details"] {
            let _ = write!(
                html,
                "<th scope=\"col\" style=\"text-align:left;padding:.1em .8em .1em 0\">{head}</th>"
            );
        }
        html.push_str("</tr></thead><tbody>");
        for part in parts {
            let mut row = "<tr>".to_owned();
            for cell in row_cells(part) {
                let _ = write!(
                    row,
                    "<td style=\"text-align:left;padding:.1em .8em .1em 0;vertical-align:top\">{}</td>",
                    escape(&cell)
                );
            }
            row.push_str("</tr>");
            html.try_reserve(row.len()).map_err(|_| Error::out_of_memory(html.len() + row.len()))?;
            html.push_str(&row);
        }
        html.push_str("</tbody></table></div>");
    }
    Ok(html + foot + "</div>")
}

/// The table cells of a part.
fn row_cells(part: &PlanReport) -> [String; 6] {
    let reasons = |steps: &Steps| {
        let steps: Vec<String> = steps.iter().map(|(kind, reason)| format!("{kind}: {reason}")).collect();
        steps.join("; ")
    };
    let (type_and_shape, steps, details) = match part.content() {
        PlanContent::Tensor(tensor) => {
            let lines: Vec<String> =
                tensor.detail_lines().iter().map(|(name, line)| format!("{name}: {line}")).collect();
            (tensor.type_and_shape(), reasons(&tensor.steps), lines.join("; "))
        }
        PlanContent::Array(array) => (array.type_and_shape(), reasons(&array.steps), String::new()),
        PlanContent::Sparse(sparse) => {
            let arrays = sparse.reported_arrays().iter().map(|part| match part.content() {
                PlanContent::Array(array) => array.text(part.display_name()).replace('\n', "; "),
                _ => String::new(),
            });
            (sparse.type_and_shape(), arrays.collect::<Vec<_>>().join("; "), sparse.notes.join("; "))
        }
        PlanContent::Tree(tree) => (tree.summary(), String::new(), String::new()),
    };
    let verb = match part.action() {
        "itself" => "nothing",
        "share" => "shared",
        _ => "copied",
    };
    [
        part.display_name().to_owned(),
        type_and_shape,
        verb.to_owned(),
        format_bytes(part.bytes_moved()),
        steps,
        details,
    ]
}

/// The HTML of a finished conversion.
pub(super) fn trip_html(plan: &TensorReport, seconds: f64) -> String {
    let duration = format!("<div>it took {}</div>", escape(&format_duration(seconds)));
    tensor_card(plan).replacen("</div>", &format!("</div>{duration}"), 1)
}
