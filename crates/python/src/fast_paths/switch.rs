//! Parser of `TENSORFERRY_DISABLE`: a comma-separated list of fast paths, frameworks, or `all`.

use super::table::{FastPath, ROWS};
use crate::text::closest_name;

/// The set of disabled fast paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disabled(u64);

const _: () = assert!(FastPath::COUNT <= u64::BITS as usize);

impl Disabled {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn contains(self, path: FastPath) -> bool {
        self.0 & (1 << path as u64) != 0
    }

    fn with(self, path: FastPath) -> Self {
        Self(self.0 | 1 << path as u64)
    }
}

/// The fast paths in a comma-separated list, and each unknown name in it with a hint.
pub(crate) fn parse(text: &str) -> (Disabled, Vec<(String, String)>) {
    let mut unknown = Vec::new();
    let mut disabled = Disabled::NONE;
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let mut named =
            ROWS.iter().filter(|row| ["all", row.name, row.framework()].contains(&name)).peekable();
        if named.peek().is_none() {
            unknown.push((name.to_owned(), hint(name)));
        }
        disabled = named.fold(disabled, |disabled, row| disabled.with(row.path));
    }
    (disabled, unknown)
}

fn hint(name: &str) -> String {
    let known = ROWS.iter().flat_map(|row| [row.name, row.framework()]).chain(["all"]);
    match closest_name(name, known) {
        Some(known) => format!("did you mean \"{known}\"?"),
        None => "write all, or a comma-separated list of names from tensorferry doctor".to_owned(),
    }
}
