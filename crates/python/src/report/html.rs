//! Plans and trips in HTML, for notebooks.
//!
//! Styles are inline and take their colours from the page, so that a notebook's light and dark themes both suit.

use super::{PlanReport, duration_in_words, in_words};
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
pub(super) fn plan(plan: &PlanReport) -> String {
    let mut page = format!("<div style=\"{CARD}\">{}", headline(plan));
    let _ = write!(page, "<div style=\"{FADED}\">{}</div>", escape(&plan.what()));
    if !plan.steps.is_empty() {
        page.push_str("<ol style=\"margin:.4em 0;padding-left:1.6em\">");
        for (kind, reason) in &plan.steps {
            let _ = write!(page, "<li><b>{}</b>: {}</li>", escape(kind), escape(reason));
        }
        page.push_str("</ol>");
    }
    let lines = plan.lines();
    if !lines.is_empty() {
        page.push_str(
            "<dl style=\"margin:.4em 0 0;display:grid;grid-template-columns:max-content 1fr;gap:.15em .8em\">",
        );
        for (name, text) in lines {
            let _ = write!(
                page,
                "<dt style=\"{FADED}\">{}</dt><dd style=\"margin:0\">{}</dd>",
                escape(name),
                escape(&text)
            );
        }
        page.push_str("</dl>");
    }
    page + "</div>"
}

fn headline(plan: &PlanReport) -> String {
    let colour = if plan.shares() { SHARED } else { COPIED };
    format!(
        "<div><b>{} &rarr; {}</b> <span style=\"color:#fff;background:{colour};border-radius:4px;padding:.05em .5em\">{}</span></div>",
        escape(&plan.from()),
        escape(&plan.to()),
        escape(&plan.outcome())
    )
}

/// The plans of a tree, one row each.
pub(super) fn tree(plans: &[(String, PlanReport)], summary: &str) -> Result<String> {
    let mut page = format!("<div style=\"{CARD}\"><b>{}</b>", escape(summary));
    page.push_str("<div style=\"overflow-x:auto\"><table style=\"border-collapse:collapse;margin-top:.4em\"><thead><tr>");
    for head in ["tensor", "type and shape", "what happens", "bytes", "why", "besides"] {
        let _ =
            write!(page, "<th scope=\"col\" style=\"text-align:left;padding:.1em .8em .1em 0\">{head}</th>");
    }
    page.push_str("</tr></thead><tbody>");
    for (place, plan) in plans {
        let why: Vec<String> = plan.steps.iter().map(|(kind, reason)| format!("{kind}: {reason}")).collect();
        let besides: Vec<String> =
            plan.lines().iter().map(|(name, line)| format!("{name}: {line}")).collect();
        let cells = [
            place.clone(),
            plan.what(),
            plan.verb().to_owned(),
            in_words(plan.bytes_moved),
            why.join("; "),
            besides.join("; "),
        ];
        let mut row = "<tr>".to_owned();
        for cell in cells {
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
    Ok(page + "</tbody></table></div></div>")
}

/// A plan that was carried out.
pub(super) fn trip(trip: &PlanReport, seconds: f64) -> String {
    let took = format!("<div>it took {}</div>", escape(&duration_in_words(seconds)));
    plan(trip).replacen("</div>", &format!("</div>{took}"), 1)
}
