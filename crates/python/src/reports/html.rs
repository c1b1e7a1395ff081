//! Plans and trips in HTML, for notebooks.
//!
//! Styles are inline and take their colours from the page, so that a notebook's light and dark themes both suit.

use super::content::{Content, PlanReport, SparseReport};
use super::tensor::{Steps, TensorReport};
use crate::text::{format_bytes, format_duration};
use std::fmt::Write;
use tensorferry_core::{Error, Result};

const CARD: &str = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.7em 1em;margin:.3em 0;max-width:60em;\
                    line-height:1.45;font-family:system-ui,sans-serif";
const FADED: &str = "opacity:.75";
/// Said in words as well: nobody has to tell them apart by colour.
const SHARED: &str = "#0072b2";
const COPIED: &str = "#b35900";

pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// A whole plan.
pub(super) fn plan(plan: &PlanReport) -> Result<String> {
    match plan.content() {
        Content::Tensor(tensor) => Ok(card(tensor)),
        Content::Tree(tree) => {
            let head = format!("<b>{}</b>", escape(&tree.summary()));
            table(&head, "tensor", &tree.parts, "")
        }
        Content::Sparse(sparse) => sparse_card(sparse),
        Content::Array(_) => table("", "array", std::slice::from_ref(plan), ""),
    }
}

/// The plan of one dense tensor.
fn card(plan: &TensorReport) -> String {
    let mut page = format!("<div style=\"{CARD}\">");
    page += &headline(&plan.from(), &plan.to(), &plan.outcome(), plan.shares());
    let _ = write!(page, "<div style=\"{FADED}\">{}</div>", escape(&plan.what()));
    if !plan.steps.is_empty() {
        page.push_str("<ol style=\"margin:.4em 0;padding-left:1.6em\">");
        for (kind, reason) in &plan.steps {
            let _ = write!(page, "<li><b>{}</b>: {}</li>", escape(kind), escape(reason));
        }
        page.push_str("</ol>");
    }
    page + &list(&plan.lines()) + "</div>"
}

/// The plan of a sparse tensor: its arrays, one row each.
fn sparse_card(plan: &SparseReport) -> Result<String> {
    let mut head = headline(&plan.from(), &plan.to(), &plan.outcome(), plan.action() != "copy");
    for line in [Some(plan.what()), plan.way()].into_iter().flatten() {
        let _ = write!(head, "<div style=\"{FADED}\">{}</div>", escape(&line));
    }
    let notes: Vec<_> = plan.notes.iter().map(|note| ("note", note.clone())).collect();
    table(&head, "array", plan.told_parts(), &list(&notes))
}

/// Lines with names.
fn list(lines: &[(&'static str, String)]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut page =
        "<dl style=\"margin:.4em 0 0;display:grid;grid-template-columns:max-content 1fr;gap:.15em .8em\">"
            .to_owned();
    for (name, text) in lines {
        let _ = write!(
            page,
            "<dt style=\"{FADED}\">{}</dt><dd style=\"margin:0\">{}</dd>",
            escape(name),
            escape(text)
        );
    }
    page + "</dl>"
}

fn headline(from: &str, to: &str, outcome: &str, shares: bool) -> String {
    let colour = if shares { SHARED } else { COPIED };
    format!(
        "<div><b>{} &rarr; {}</b> <span style=\"color:#fff;background:{colour};border-radius:4px;padding:.05em .5em\">{}</span></div>",
        escape(from),
        escape(to),
        escape(outcome)
    )
}

/// A card with the parts of a plan, one row each.
fn table(head: &str, first: &str, parts: &[PlanReport], foot: &str) -> Result<String> {
    let mut page = format!("<div style=\"{CARD}\">{head}");
    if !parts.is_empty() {
        page.push_str("<div style=\"overflow-x:auto\"><table style=\"border-collapse:collapse;margin-top:.4em\"><thead><tr>");
        for head in [first, "type and shape", "what happens", "bytes", "why", "besides"] {
            let _ = write!(
                page,
                "<th scope=\"col\" style=\"text-align:left;padding:.1em .8em .1em 0\">{head}</th>"
            );
        }
        page.push_str("</tr></thead><tbody>");
        for part in parts {
            let mut row = "<tr>".to_owned();
            for cell in cells(part) {
                let _ = write!(
                    row,
                    "<td style=\"text-align:left;padding:.1em .8em .1em 0;vertical-align:top\">{}</td>",
                    escape(&cell)
                );
            }
            row.push_str("</tr>");
            page.try_reserve(row.len()).map_err(|_| Error::out_of_memory(page.len() + row.len()))?;
            page.push_str(&row);
        }
        page.push_str("</tbody></table></div>");
    }
    Ok(page + foot + "</div>")
}

/// The row of a part.
fn cells(part: &PlanReport) -> [String; 6] {
    let reasons = |steps: &Steps| {
        let steps: Vec<String> = steps.iter().map(|(kind, reason)| format!("{kind}: {reason}")).collect();
        steps.join("; ")
    };
    let (what, why, besides) = match part.content() {
        Content::Tensor(tensor) => {
            let lines: Vec<String> =
                tensor.lines().iter().map(|(name, line)| format!("{name}: {line}")).collect();
            (tensor.what(), reasons(&tensor.steps), lines.join("; "))
        }
        Content::Array(array) => (array.what(), reasons(&array.steps), String::new()),
        Content::Sparse(sparse) => {
            let arrays = sparse.told_parts().iter().map(|part| match part.content() {
                Content::Array(array) => array.text(part.part_name()).replace('\n', "; "),
                _ => String::new(),
            });
            (sparse.what(), arrays.collect::<Vec<_>>().join("; "), sparse.notes.join("; "))
        }
        Content::Tree(tree) => (tree.summary(), String::new(), String::new()),
    };
    let verb = match part.action() {
        "itself" => "nothing",
        "share" => "shared",
        _ => "copied",
    };
    [part.part_name().to_owned(), what, verb.to_owned(), format_bytes(part.bytes_moved()), why, besides]
}

/// A plan that was carried out.
pub(super) fn trip(trip: &TensorReport, seconds: f64) -> String {
    let took = format!("<div>it took {}</div>", escape(&format_duration(seconds)));
    card(trip).replacen("</div>", &format!("</div>{took}"), 1)
}
