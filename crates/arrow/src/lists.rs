//! The offsets of lists: where each list begins and ends in the array of all elements.

use crate::errors::invalid_struct;
use std::ptr;
use tensorferry_core::{DType, Result};

/// The number of lists that are compared at once.
const BLOCK_LISTS: usize = 1024;

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
        let is_common = self.every_list(|begin, end| end - begin == length);
        (self.lists > 0 && is_common).then_some(length as usize)
    }

    /// Whether the begin and the end of every list have a property. They count from the first element of the whole child.
    fn every_list(self, holds: impl Fn(i64, i64) -> bool) -> bool {
        match self.is_large {
            true => self.every_list_of::<i64>(holds),
            false => self.every_list_of::<i32>(holds),
        }
    }

    fn every_list_of<T: Into<i64>>(self, holds: impl Fn(i64, i64) -> bool) -> bool {
        // SAFETY: as in `get`, for an index of at most `lists`.
        let offset = |index: usize| unsafe { self.data.cast::<T>().add(index).read_unaligned() }.into();
        // Without an exit inside a block the compiler compares several lists at once.
        let mut blocks = (0..self.lists).step_by(BLOCK_LISTS);
        blocks.all(|start| {
            let end = self.lists.min(start + BLOCK_LISTS);
            (start..end).fold(true, |all, index| all & holds(offset(index), offset(index + 1)))
        })
    }

    /// Checks that the offsets ascend, and stay within a child of `elements` elements.
    pub(crate) fn check(self, elements: usize) -> Result<()> {
        let (first, last) = (self.get(0), self.get(self.lists));
        if first < 0 {
            return Err(invalid_struct(format!("the first list begins at {first}")));
        }
        if !self.every_list(|begin, end| begin <= end) {
            let descends = |index: &usize| self.get(index + 1) < self.get(*index);
            let index = (0..self.lists).find(descends).unwrap_or_default();
            let (begin, end) = (self.get(index), self.get(index + 1));
            return Err(invalid_struct(format!("list {index} begins at {begin} and ends at {end}")));
        }
        if last as u64 > elements as u64 {
            return Err(invalid_struct(format!(
                "the lists end at {last}, and there are {elements} elements"
            )));
        }
        Ok(())
    }
}
