//! Division of index arrays among threads, and output memory that they share.

use crate::workers;

/// The number of elements that justifies another thread. It is small in tests, so that small arrays are divided too.
const MIN_THREAD_ELEMENTS: usize = if cfg!(test) { 16 } else { 64 << 10 };

/// Memory that several threads write, each at its own indices.
#[derive(Debug)]
pub(super) struct SharedOutput<T>(pub(super) *mut T);

impl<T> Clone for SharedOutput<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedOutput<T> {}

// SAFETY: only a pointer; every use is unsafe and requires that no other thread writes the same index.
unsafe impl<T: Send> Send for SharedOutput<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedOutput<T> {}

impl<T> SharedOutput<T> {
    /// Writes one index.
    ///
    /// # Safety
    /// It is writable, aligned, and written by this thread alone.
    #[inline(always)]
    pub(super) unsafe fn write(self, index: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { self.0.add(index).write(value) }
    }

    /// Writes the same value to several indices.
    ///
    /// # Safety
    /// As [`write`](Self::write), for all of them.
    #[inline(always)]
    pub(super) unsafe fn fill(self, from: usize, to: usize, value: T)
    where
        T: Copy,
    {
        for index in from..to {
            // SAFETY: the caller's contract.
            unsafe { self.write(index, value) }
        }
    }

    /// The pointer. It is a method, so that closures capture the struct, which is `Sync`.
    pub(super) fn start(self) -> *mut T {
        self.0
    }
}

/// The number of threads, at most `max_threads`, for this many elements.
pub(super) fn choose_threads(count: usize, max_threads: usize) -> usize {
    max_threads.min(count / MIN_THREAD_ELEMENTS).max(1)
}

/// The start of a block when `count` elements are divided into `blocks`; the start of the next block is its end.
pub(super) fn block_start(count: usize, blocks: usize, block: usize) -> usize {
    // Not `count * block / blocks`, which may overflow.
    count / blocks * block + count % blocks * block / blocks
}

/// Runs a function for ranges of the elements on several threads.
pub(super) fn for_each_range(count: usize, threads: usize, work: impl Fn(usize, usize) + Sync) {
    let threads = choose_threads(count, threads);
    let blocks = if threads == 1 { 1 } else { threads * 4 };
    workers::for_each_parallel(blocks, threads, |block| {
        work(block_start(count, blocks, block), block_start(count, blocks, block + 1));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_elements() {
        for (count, blocks) in [(0, 1), (5, 3), (100, 7), (usize::MAX, 4)] {
            assert_eq!(block_start(count, blocks, 0), 0);
            assert_eq!(block_start(count, blocks, blocks), count);
            assert!(
                (0..blocks)
                    .all(|block| block_start(count, blocks, block) <= block_start(count, blocks, block + 1))
            );
        }
    }

    #[test]
    fn small_arrays_use_one_thread() {
        assert_eq!(choose_threads(MIN_THREAD_ELEMENTS, 8), 1);
        assert_eq!(choose_threads(3 * MIN_THREAD_ELEMENTS, 2), 2);
        assert_eq!(choose_threads(usize::MAX, 0), 1);
    }
}
