//! Paths in trees: the steps from the root to a node, and their text.

use pyo3::prelude::*;
use std::fmt::Write;

/// One step of the path from a node to a child.
pub(crate) enum PathStep<'py> {
    Key(Bound<'py, PyAny>),
    Index(usize),
    Field(String),
}

/// The steps from the root of a tree to one of its tensors.
pub(crate) struct Path<'py, 'a>(pub(super) &'a [PathStep<'py>]);

impl<'py> Path<'py, '_> {
    /// The path to the root itself.
    pub(crate) const ROOT: Self = Self(&[]);

    pub(crate) fn steps(&self) -> &[PathStep<'py>] {
        self.0
    }

    /// The path as a Python expression.
    pub(crate) fn format(&self) -> String {
        format_path(self.0)
    }
}

/// The path from the root as a Python expression.
pub(crate) fn format_path(path: &[PathStep<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        let _ = match step {
            PathStep::Key(key) => write!(text, "[{}]", key.repr().map(|r| r.to_string()).unwrap_or_default()),
            PathStep::Index(index) => write!(text, "[{index}]"),
            PathStep::Field(name) => write!(text, ".{name}"),
        };
    }
    text
}
