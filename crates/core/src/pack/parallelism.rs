//! Chooses the number of threads for a copy, and the number of blocks that they share.
//!
//! Large copies have several blocks for each thread, so that a thread that loses its core to another program processes fewer
//! of them instead of delaying the call.

/// The number of bytes that justifies another thread.
///
/// On 2 cores of a Xeon, in microseconds with one thread and with two: a copy of 128 KiB takes 3.5 and 3.3, of
/// 256 KiB 6.8 and 5.4, of 512 KiB 12.7 and 7.9, of 1 MiB 36 and 14. A sleeping helper
/// takes longer. The value is small in tests, so that small tensors are divided too.
const MIN_THREAD_BYTES: usize = if cfg!(test) { 64 } else { 256 << 10 };

/// The maximum number of blocks for each thread.
const MAX_BLOCKS_PER_THREAD: usize = 8;

/// The number of threads, at most `max_threads`, and the number of blocks for a copy of this size.
pub(super) fn choose(bytes: usize, max_threads: usize) -> (usize, usize) {
    let threads = max_threads.min(bytes / MIN_THREAD_BYTES).max(1);
    if threads == 1 {
        return (1, 1);
    }
    let blocks_per_thread = (bytes / MIN_THREAD_BYTES / threads / 2).clamp(1, MAX_BLOCKS_PER_THREAD);
    (threads, threads.saturating_mul(blocks_per_thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_copies_use_one_thread() {
        assert_eq!(choose(0, 8), (1, 1));
        assert_eq!(choose(MIN_THREAD_BYTES, 8), (1, 1));
        assert_eq!(choose(2 * MIN_THREAD_BYTES, 8), (2, 2));
        assert_eq!(choose(usize::MAX, 8), (8, 8 * MAX_BLOCKS_PER_THREAD));
        assert_eq!(choose(usize::MAX, 0), (1, 1));
    }

    #[test]
    fn large_copies_have_more_blocks_than_threads() {
        assert_eq!(choose(8 * MIN_THREAD_BYTES, 2), (2, 4));
        assert_eq!(choose(1000 * MIN_THREAD_BYTES, 2), (2, 2 * MAX_BLOCKS_PER_THREAD));
    }
}
