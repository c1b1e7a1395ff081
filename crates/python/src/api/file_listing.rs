//! The tensors of a file as text and as a card.
//!
//! In a long listing, tensors of one type and shape whose names differ only in numbers are one row: the layers of a model repeat
//! the same tensors.

use crate::errors::Result;
use crate::reports::card::Card;
use crate::text::format_bytes;
use std::collections::HashMap;
use std::fmt::Write;
use tensorferry_core::plan::{count_noun, format_shape};
use tensorferry_files::{FileEntry, TensorFile};

/// Characters of a metadata value that are shown. Some files store whole configurations in one value.
const MAX_METADATA_CHARS: usize = 200;

/// A listing of no more tensors than these has a row for each.
const MAX_SINGLE_ROWS: usize = 20;

/// The metadata key under which `save` records the tree around the tensors.
pub(super) const TREE_KEY: &str = "tensorferry.tree";

/// Tensors of one row, in the order of the file.
struct ListingRow<'a> {
    entries: Vec<&'a FileEntry>,
}

impl<'a> ListingRow<'a> {
    fn first(&self) -> &'a FileEntry {
        self.entries[0]
    }

    /// The name, or what several names have in common.
    fn title(&self) -> String {
        match self.entries[..] {
            [only] if only.name().is_empty() => "(without a name)".to_owned(),
            [only] => only.name().to_owned(),
            _ => format!("{} ({})", name_pattern(self.first().name()), self.entries.len()),
        }
    }

    fn shape(&self) -> String {
        format_shape(self.first().shape())
    }

    /// The size of all tensors of the row.
    fn size(&self) -> String {
        format_bytes(self.entries.iter().map(|entry| entry.bytes() as usize).sum())
    }
}

/// A name with a star for each number in it.
fn name_pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_ascii_digit() {
            true if pattern.ends_with('*') => {}
            true => pattern.push('*'),
            false => pattern.push(character),
        }
    }
    pattern
}

/// The rows of a listing, in the order of their first tensors.
fn rows(file: &TensorFile) -> Vec<ListingRow<'_>> {
    if file.entries().len() <= MAX_SINGLE_ROWS {
        return file.entries().iter().map(|entry| ListingRow { entries: vec![entry] }).collect();
    }
    let mut rows: Vec<ListingRow<'_>> = Vec::new();
    let mut positions: HashMap<(String, &str, &[i64]), usize> = HashMap::new();
    for entry in file.entries() {
        let key = (name_pattern(entry.name()), entry.dtype().name(), entry.shape());
        let at = *positions.entry(key).or_insert(rows.len());
        match rows.get_mut(at) {
            Some(row) => row.entries.push(entry),
            None => rows.push(ListingRow { entries: vec![entry] }),
        }
    }
    rows
}

/// The format of the file, and the number and size of its tensors.
fn summary(file: &TensorFile) -> String {
    let total = file.entries().iter().map(|entry| entry.bytes() as usize).sum();
    format!("{}, {}, {}", file.format(), count_noun(file.entries().len(), "tensor"), format_bytes(total))
}

/// What is not a tensor: metadata, and entries that cannot be loaded.
fn notes(file: &TensorFile) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for (key, value) in file.metadata() {
        if key == TREE_KEY {
            lines.push((
                "tree",
                "recorded: load(..., nested=True) returns it, with its numbers and text".to_owned(),
            ));
            continue;
        }
        let mut value: String = value.chars().flat_map(char::escape_debug).collect();
        if let Some((end, _)) = value.char_indices().nth(MAX_METADATA_CHARS) {
            value.truncate(end);
            value.push_str("...");
        }
        lines.push(("metadata", format!("{} = {value}", key.escape_debug())));
    }
    for (name, reason) in file.skipped() {
        lines.push(("cannot be loaded", format!("{}: {}", name.escape_debug(), reason.fact())));
    }
    lines
}

/// The listing as text.
pub(super) fn text(file: &TensorFile) -> String {
    let rows = rows(file);
    let titles: Vec<String> = rows.iter().map(|row| row.title().escape_debug().to_string()).collect();
    let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0);
    // The limit of Rust's formatting.
    let width = width.min(usize::from(u16::MAX));
    let mut text = format!("{}: {}", file.path().display(), summary(file));
    for (row, title) in rows.iter().zip(titles) {
        let dtype = row.first().dtype().name();
        let _ = write!(text, "\n  {title:width$}  {dtype} {}, {}", row.shape(), row.size());
    }
    for (name, line) in notes(file) {
        let _ = write!(text, "\n  {name}: {line}");
    }
    text
}

/// The listing as a card.
pub(super) fn html(file: &TensorFile) -> Result<String> {
    let mut card = Card::new();
    card.title(&file.path().display().to_string());
    card.faded_line(&summary(file));
    let rows = rows(file);
    if !rows.is_empty() {
        card.table(&["tensor", "type", "shape", "size"], |card| {
            for row in &rows {
                let names: Vec<&str> = match row.entries.len() {
                    1 => Vec::new(),
                    _ => row.entries.iter().map(|entry| entry.name()).collect(),
                };
                let cells = [row.first().dtype().name().to_owned(), row.shape(), row.size()];
                card.table_row(&row.title(), &names, &cells);
            }
        });
    }
    card.details(&notes(file));
    Ok(card.finish()?)
}
