//! Ties: tensors of one tree over the same memory, such as tied weights, of which each gets a copy of its own.

use super::fold::join_names;
use super::tensor::CopiedMemory;
use crate::errors::Result;
use crate::text::format_bytes;
use std::collections::HashMap;
use tensorferry_core::Error;
use tensorferry_core::fallible::try_push;

/// The copied tensors of a tree, by their memory.
#[derive(Default)]
pub(crate) struct Ties {
    positions: HashMap<(usize, usize), usize>,
    /// The paths of the tensors over each memory.
    paths: Vec<Vec<String>>,
    repeated_bytes: usize,
}

impl Ties {
    /// Adds a tensor, which is ignored unless it is copied.
    pub(crate) fn add(&mut self, copied: Option<CopiedMemory>, path: impl FnOnce() -> String) -> Result<()> {
        let Some(copied) = copied else { return Ok(()) };
        let entry_bytes = size_of::<((usize, usize), usize)>();
        let out_of_memory = |_| Error::out_of_memory((self.paths.len() + 1) * entry_bytes);
        self.positions.try_reserve(1).map_err(out_of_memory)?;
        let next = self.paths.len();
        let position = *self.positions.entry((copied.address, copied.extent_bytes)).or_insert(next);
        if position == next {
            try_push(&mut self.paths, Vec::new())?;
        } else {
            self.repeated_bytes += copied.copy_bytes;
        }
        Ok(try_push(&mut self.paths[position], path())?)
    }

    /// The note about tensors over the same memory.
    pub(crate) fn note(&self) -> Option<String> {
        let tied = self.paths.iter().filter(|paths| paths.len() > 1);
        let tied: Vec<String> = tied.map(|paths| paths.join(" = ")).collect();
        (!tied.is_empty()).then(|| {
            format!(
                "tensors over one memory arrive as copies of their own, so that {} are there more than once: {}",
                format_bytes(self.repeated_bytes),
                join_names(tied.iter().map(String::as_str))
            )
        })
    }
}
