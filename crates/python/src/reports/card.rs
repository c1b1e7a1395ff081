//! The template of the HTML cards that notebooks show: plans, trips, files and memory statistics.
//!
//! Styles are inline, because some viewers of notebooks remove style sheets. Cards inherit the text colour of the page and draw
//! lines in transparent grey, so that they work with light and dark themes. Rows wrap instead of scrolling, down to 400 pixels.

use super::tensor::Steps;
use std::fmt;
use tensorferry_core::{Error, Result};

const CARD_STYLE: &str = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.7em 1em;margin:.3em 0;max-width:60em;\
                          line-height:1.45;font-family:system-ui,sans-serif;overflow-wrap:anywhere";
const ROW_STYLE: &str = "border-top:1px solid rgba(128,128,128,.25);margin-top:.5em;padding-top:.5em";
const FADED_STYLE: &str = "opacity:.75";
const CODE_STYLE: &str =
    "font-family:ui-monospace,monospace;font-size:.93em;background:none;padding:0;color:inherit";
/// Lists of equal tensors open in a box that scrolls: a model may have thousands.
const FOLD_STYLE: &str = "max-height:20em;overflow-y:auto;margin:.2em 0 0 1em";
/// The colours repeat what the text says, for readers who cannot tell them apart.
const SHARED_COLOUR: &str = "#0072b2";
const COPIED_COLOUR: &str = "#b35900";

/// A card that is being written. An allocation that fails is reported by [`Card::finish`].
pub(crate) struct Card {
    html: String,
    /// The size of the first allocation that failed.
    missing_bytes: Option<usize>,
}

impl Card {
    pub(crate) fn new() -> Self {
        let mut card = Self { html: String::new(), missing_bytes: None };
        card.markup(format_args!("<div style=\"{CARD_STYLE}\">"));
        card
    }

    /// The HTML of the card.
    pub(crate) fn finish(mut self) -> Result<String> {
        self.push("</div>");
        match self.missing_bytes {
            Some(bytes) => Err(Error::out_of_memory(bytes)),
            None => Ok(self.html),
        }
    }

    fn push(&mut self, text: &str) {
        if self.missing_bytes.is_some() {
            return;
        }
        match self.html.try_reserve(text.len()) {
            Ok(()) => self.html.push_str(text),
            Err(_) => self.missing_bytes = Some(self.html.len() + text.len()),
        }
    }

    /// Appends markup. Text in it must be escaped.
    fn markup(&mut self, markup: fmt::Arguments<'_>) {
        self.push(&markup.to_string());
    }

    pub(crate) fn title(&mut self, text: &str) {
        self.markup(format_args!("<div><b>{}</b></div>", escape(text)));
    }

    /// Where a tensor comes from and goes to, and whether it is shared.
    pub(super) fn headline(&mut self, from: &str, to: &str, outcome: &str, shares: bool) {
        let (from, to, badge) = (escape(from), escape(to), badge(outcome, shares));
        self.markup(format_args!("<div><b>{from} &rarr; {to}</b> {badge}</div>"));
    }

    pub(crate) fn faded_line(&mut self, text: &str) {
        self.markup(format_args!("<div style=\"{FADED_STYLE}\">{}</div>", escape(text)));
    }

    pub(super) fn line(&mut self, text: &str) {
        self.markup(format_args!("<div>{}</div>", escape(text)));
    }

    pub(super) fn steps(&mut self, steps: &Steps) {
        if steps.is_empty() {
            return;
        }
        self.push("<ol style=\"margin:.4em 0;padding-left:1.6em\">");
        for (kind, reason) in steps {
            self.markup(format_args!("<li><b>{}</b>: {}</li>", escape(kind), escape(reason)));
        }
        self.push("</ol>");
    }

    /// A list of named lines.
    pub(crate) fn details(&mut self, lines: &[(&str, String)]) {
        if lines.is_empty() {
            return;
        }
        self.push(
            "<dl style=\"margin:.4em 0 0;display:grid;grid-template-columns:minmax(4em,max-content) 1fr;gap:.15em .8em\">",
        );
        for (name, text) in lines {
            let (name, text) = (escape(name), escape(text));
            self.markup(format_args!(
                "<dt style=\"{FADED_STYLE}\">{name}</dt><dd style=\"margin:0\">{text}</dd>"
            ));
        }
        self.push("</dl>");
    }

    /// A part of the card with a name and an outcome. `content` writes what is below.
    pub(super) fn row(&mut self, name: &str, outcome: &str, shares: bool, content: impl FnOnce(&mut Self)) {
        let (name, badge) = (code(name), badge(outcome, shares));
        self.markup(format_args!("<div style=\"{ROW_STYLE}\"><div>{name} {badge}</div>"));
        content(self);
        self.push("</div>");
    }

    /// A list that opens on request.
    pub(super) fn folded_list<'a>(&mut self, summary: &str, items: impl Iterator<Item = (&'a str, String)>) {
        self.push("<div style=\"margin-top:.3em\">");
        self.folded(&escape(summary), items);
        self.push("</div>");
    }

    /// A summary, which is markup, and the items behind it.
    fn folded<'a>(&mut self, summary: &str, items: impl Iterator<Item = (&'a str, String)>) {
        self.markup(format_args!(
            "<details><summary style=\"cursor:pointer\">{summary}</summary><div style=\"{FOLD_STYLE}\">"
        ));
        for (name, text) in items {
            self.markup(format_args!("<div>{} {}</div>", code(name), faded(&text)));
        }
        self.push("</div></details>");
    }

    /// A bar that is filled up to a fraction.
    pub(crate) fn bar(&mut self, fraction: f64) {
        let percent = (fraction * 100.0).clamp(0.0, 100.0);
        self.markup(format_args!(
            "<div style=\"background:rgba(128,128,128,.25);border-radius:4px;height:.6em;max-width:30em;margin:.4em 0\">\
             <div style=\"background:{SHARED_COLOUR};border-radius:4px;height:.6em;width:{percent:.1}%\"></div></div>"
        ));
    }

    /// A table of tensors, whose first column is a name. `content` writes its rows.
    pub(crate) fn table(&mut self, columns: &[&str], content: impl FnOnce(&mut Self)) {
        self.push("<div style=\"max-height:32em;overflow:auto\"><table style=\"border-collapse:collapse;margin-top:.4em\"><thead><tr>");
        for column in columns {
            self.markup(format_args!(
                "<th scope=\"col\" style=\"text-align:left;padding:.1em .8em .1em 0;white-space:nowrap\">{}</th>",
                escape(column)
            ));
        }
        self.push("</tr></thead><tbody>");
        content(self);
        self.push("</tbody></table></div>");
    }

    /// A row of a table. Several names are behind a summary, and open on request.
    pub(crate) fn table_row(&mut self, name: &str, folded_names: &[&str], cells: &[String]) {
        self.push("<tr><td style=\"text-align:left;padding:.1em .8em .1em 0;vertical-align:top\">");
        if folded_names.is_empty() {
            self.push(&code(name));
        } else {
            self.folded(&code(name), folded_names.iter().map(|name| (*name, String::new())));
        }
        self.push("</td>");
        for cell in cells {
            self.markup(format_args!(
                "<td style=\"text-align:left;padding:.1em .8em .1em 0;vertical-align:top;font-variant-numeric:tabular-nums\">{}</td>",
                escape(cell)
            ));
        }
        self.push("</tr>");
    }
}

/// A name as markup; nothing for an empty one.
fn code(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!("<code style=\"{CODE_STYLE}\">{}</code>", escape(name))
}

/// Secondary text as markup; nothing for an empty one.
fn faded(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("<span style=\"{FADED_STYLE}\">{}</span>", escape(text))
}

fn badge(outcome: &str, shares: bool) -> String {
    let colour = if shares { SHARED_COLOUR } else { COPIED_COLOUR };
    format!(
        "<span style=\"display:inline-block;color:#fff;background:{colour};border-radius:4px;padding:0 .5em\">{}</span>",
        escape(outcome)
    )
}

fn escape(text: &str) -> String {
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
