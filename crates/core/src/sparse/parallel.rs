//! Division of index arrays among threads, and output memory that they share.

use crate::error::{Error, Result};
use crate::host::{ALIGNMENT, HostBlock};
use crate::workers;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

/// The number of elements that justifies another thread. It is small in tests, so that small arrays are divided too.
const MIN_THREAD_ELEMENTS: usize = if cfg!(test) { 16 } else { 64 << 10 };

/// The bounds of blocks: the start of each, and the end of the last.
pub(super) type Bounds = SmallVec<[usize; 16]>;

/// The address of memory that several threads use, each its own indices.
#[derive(Debug)]
pub(super) struct SharedOutput<T>(pub(super) *mut T);

impl<T> Clone for SharedOutput<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedOutput<T> {}

// SAFETY: the value is an address. To dereference it is unsafe, and callers then guarantee that no other thread uses the same
// index; items move between threads, so they must be `Send`.
unsafe impl<T: Send> Send for SharedOutput<T> {}
// SAFETY: a shared reference gives a copy of the address, to which the argument for `Send` applies.
unsafe impl<T: Send> Sync for SharedOutput<T> {}

impl<T> SharedOutput<T> {
    /// Writes one index.
    ///
    /// # Safety
    /// The index is within memory that is writable and aligned for `T`, and no other thread uses that index meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write(self, index: usize, value: T) {
        // SAFETY: `write` requires a valid, aligned address without concurrent accesses: the contract of this function.
        unsafe { self.0.add(index).write(value) }
    }

    /// The pointer. It is a method, so that closures capture the struct, which is `Sync`.
    pub(super) fn start(self) -> *mut T {
        self.0
    }
}

/// Memory for a count of numbers, none of which is written yet.
#[derive(Debug)]
pub(super) struct NumberBlock<T> {
    block: HostBlock,
    count: usize,
    numbers: PhantomData<T>,
}

/// A [`NumberBlock`] of which every number is written.
#[derive(Debug)]
pub(super) struct WrittenNumbers<T>(NumberBlock<T>);

impl<T: Copy> NumberBlock<T> {
    /// Memory for `count` numbers.
    ///
    /// # Errors
    /// When it cannot be allocated.
    pub(super) fn new(count: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGNMENT) };
        let bytes = count.checked_mul(size_of::<T>()).ok_or_else(|| Error::out_of_memory(usize::MAX))?;
        Ok(Self { block: HostBlock::new(bytes)?, count, numbers: PhantomData })
    }

    /// The numbers, to be written.
    pub(super) fn slots(&mut self) -> &mut [MaybeUninit<T>] {
        // SAFETY: `new` allocated `count` times the size of a number, aligned to `ALIGNMENT`, which it compares with that of a
        // number. The value owns the block alone, and is borrowed mutably as long as the slice. The slots need not be
        // initialised.
        unsafe { slice::from_raw_parts_mut(self.block.data().cast(), self.count) }
    }

    /// The block as one of which every number is written.
    ///
    /// # Safety
    /// Every slot was written.
    pub(super) unsafe fn assume_written(self) -> WrittenNumbers<T> {
        WrittenNumbers(self)
    }
}

impl<T: Copy> WrittenNumbers<T> {
    /// The numbers.
    pub(super) fn numbers(&self) -> &[T] {
        // SAFETY: memory for `count` aligned numbers, as in `NumberBlock::slots`, all of which were written (the contract of
        // `assume_written`). Writes need `numbers_mut` or `into_unwritten`, which the borrow excludes.
        unsafe { slice::from_raw_parts(self.0.block.data().cast(), self.0.count) }
    }

    /// The numbers, to be changed.
    pub(super) fn numbers_mut(&mut self) -> &mut [T] {
        // SAFETY: memory for `count` aligned numbers, as in `NumberBlock::slots`, all of which were written (the contract of
        // `assume_written`). The mutable borrow excludes other accesses.
        unsafe { slice::from_raw_parts_mut(self.0.block.data().cast(), self.0.count) }
    }

    /// The memory, for other numbers.
    pub(super) fn into_unwritten(self) -> NumberBlock<T> {
        self.0
    }
}

/// The number of threads, at most `max_threads`, for this many elements.
pub(super) fn choose_threads(count: usize, max_threads: usize) -> usize {
    max_threads.min(count / MIN_THREAD_ELEMENTS).max(1)
}

/// The number of threads, at most `max_threads`, and of blocks for this many elements.
pub(super) fn choose_blocks(count: usize, max_threads: usize) -> (usize, usize) {
    match choose_threads(count, max_threads) {
        1 => (1, 1),
        threads => (threads, threads.saturating_mul(4)),
    }
}

/// The start of a block when `count` elements are divided into `blocks`; the start of the next block is its end.
pub(super) fn block_start(count: usize, blocks: usize, block: usize) -> usize {
    // Not `count * block / blocks`, which may overflow.
    count / blocks * block + count % blocks * block / blocks
}

/// The bounds when `count` elements are divided into `blocks`.
pub(super) fn block_bounds(count: usize, blocks: usize) -> Bounds {
    (0..=blocks).map(|block| block_start(count, blocks, block)).collect()
}

/// Runs a function for ranges of the elements on several threads.
pub(super) fn for_each_range(count: usize, threads: usize, work: impl Fn(usize, usize) + Sync) {
    let (threads, blocks) = choose_blocks(count, threads);
    workers::for_each_parallel(blocks, threads, |block| {
        work(block_start(count, blocks, block), block_start(count, blocks, block + 1));
    });
}

/// Runs a function for blocks of a slice on several threads: with the number of the block, and the items between its bounds.
///
/// # Panics
/// When the bounds are not sorted, or exceed the slice.
pub(super) fn for_each_block<T: Send>(
    items: &mut [T],
    bounds: &[usize],
    threads: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(bounds.is_sorted() && bounds.last().is_none_or(|&end| end <= items.len()));
    let start = SharedOutput(items.as_mut_ptr());
    workers::for_each_parallel(bounds.len().saturating_sub(1), threads, |block| {
        let (from, to) = (bounds[block], bounds[block + 1]);
        // SAFETY: the assertion checks that the ranges are within the slice and do not overlap. `for_each_parallel` passes each
        // number to one call and returns after all calls, while `items` is borrowed mutably. So no other reference reaches
        // these items, which another thread may use because they are `Send`.
        work(block, unsafe { slice::from_raw_parts_mut(start.start().add(from), to - from) });
    });
}

/// The numbers that a function writes, which must be all.
#[cfg(test)]
pub(super) fn written<T: Copy>(count: usize, write: impl FnOnce(&mut [MaybeUninit<T>])) -> Vec<T> {
    let mut block = NumberBlock::new(count).unwrap();
    write(block.slots());
    // SAFETY: the tests pass functions that write every slot. Miri reports a slot that was not.
    unsafe { block.assume_written() }.numbers().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_elements() {
        for (count, blocks) in [(0, 1), (5, 3), (100, 7), (usize::MAX, 4)] {
            let bounds = block_bounds(count, blocks);
            assert_eq!((bounds.len(), bounds[0], bounds[blocks]), (blocks + 1, 0, count));
            assert!(bounds.is_sorted());
        }
    }

    #[test]
    fn threads_write_their_own_blocks() {
        let mut items = vec![0; 100];
        for_each_block(&mut items, &[10, 10, 40, 100], 3, |block, items| {
            items.iter_mut().for_each(|item| *item += 11 * block);
        });
        let expected = |index: usize| match index {
            0..10 => 0,
            10..40 => 11,
            _ => 22,
        };
        assert!(items.iter().enumerate().all(|(index, &item)| item == expected(index)));
    }

    #[test]
    fn blocks_that_overlap_or_exceed_the_slice_are_rejected() {
        for bounds in [[0, 7, 5, 10], [0, 5, 7, 11]] {
            let run = || for_each_block(&mut [0u8; 10], &bounds, 1, |_, items| items.fill(1));
            assert!(std::panic::catch_unwind(run).is_err(), "{bounds:?}");
        }
    }

    #[test]
    fn small_arrays_use_one_thread() {
        assert_eq!(choose_threads(MIN_THREAD_ELEMENTS, 8), 1);
        assert_eq!(choose_threads(3 * MIN_THREAD_ELEMENTS, 2), 2);
        assert_eq!(choose_threads(usize::MAX, 0), 1);
    }
}
