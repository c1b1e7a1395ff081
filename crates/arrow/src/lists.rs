//! The offsets of lists: where each list begins and ends in the array of all elements.

use crate::errors::invalid_struct;
use std::ptr;
use tensorferry_core::{DType, Result};

/// Offsets in memory that somebody else keeps alive: one more than there are lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    /// The first offset; null if there are no lists.
    data: *const u8,
    is_large: bool,
    lists: usize,
    /// The offset at which the child begins.
    base: i64,
}

impl Offsets {
    /// The offsets of `lists` lists, after the first `skipped` ones.
    ///
    /// # Safety
    /// `data` is null and there are no lists, or `skipped + lists + 1` offsets of this width are readable there, and do not
    /// change, as long as the value or a slice of it is used.
    pub(crate) unsafe fn new(data: *const u8, is_large: bool, skipped: usize, lists: usize) -> Self {
        let width = if is_large { 8 } else { 4 };
        // Some producers have no offset at all where there are no lists.
        let data = if lists == 0 { ptr::null() } else { data.wrapping_add(skipped * width) };
        Self { data, is_large, lists, base: 0 }
    }

    /// Whether there are no lists.
    pub(crate) fn is_empty(self) -> bool {
        self.lists == 0
    }

    /// The type of the offsets.
    fn dtype(self) -> DType {
        if self.is_large { DType::Int64 } else { DType::Int32 }
    }

    /// An offset; the last one for a list that does not exist.
    pub(crate) fn get(self, index: usize) -> i64 {
        let index = index.min(self.lists);
        if self.data.is_null() {
            return 0;
        }
        // SAFETY: there is one offset more than there are lists (the contract of `new`). Arrow does not guarantee its alignment.
        let offset = unsafe {
            match self.is_large {
                true => self.data.cast::<i64>().add(index).read_unaligned(),
                false => i64::from(self.data.cast::<i32>().add(index).read_unaligned()),
            }
        };
        offset - self.base
    }

    /// The offsets in a child that begins where the first list does.
    #[must_use]
    pub(crate) fn rebase(self) -> Self {
        Self { base: self.base + self.get(0), ..self }
    }

    /// The offsets of some of the lists. Lists that do not exist are left out.
    #[must_use]
    pub(crate) fn slice(self, start: usize, lists: usize) -> Self {
        let start = start.min(self.lists);
        let width = self.dtype().size();
        let lists = lists.min(self.lists - start);
        let data = if lists == 0 { ptr::null() } else { self.data.wrapping_add(start * width) };
        Self { data, lists, ..self }
    }

    /// The first and the last element of all lists.
    pub(crate) fn range(self) -> (usize, usize) {
        (self.get(0) as usize, self.get(self.lists) as usize)
    }

    /// The length that all lists have; `None` if they differ, or without lists.
    pub(crate) fn common_length(self) -> Option<usize> {
        let length = self.get(1) - self.get(0);
        let is_common = (1..self.lists).all(|index| self.get(index + 1) - self.get(index) == length);
        (self.lists > 0 && is_common).then_some(length as usize)
    }

    /// Checks that the offsets ascend, and stay within a child of `elements` elements.
    pub(crate) fn check(self, elements: usize) -> Result<()> {
        let mut previous = self.get(0);
        if previous < 0 {
            return Err(invalid_struct(format!("the first list begins at {previous}")));
        }
        for index in 1..=self.lists {
            let next = self.get(index);
            if next < previous {
                return Err(invalid_struct(format!(
                    "list {} begins at {previous} and ends at {next}",
                    index - 1
                )));
            }
            previous = next;
        }
        if previous as u64 > elements as u64 {
            return Err(invalid_struct(format!(
                "the lists end at {previous}, and there are {elements} elements"
            )));
        }
        Ok(())
    }
}
