//! How many threads a copy is worth, and in how many parts it is cut for them.
//!
//! There are several parts for each thread where the tensor is large: a thread that another program keeps from
//! its core then does fewer of them, instead of making everybody wait for its half.

/// Bytes that make a thread worth being woken.
///
/// On 2 cores of a Xeon, in microseconds with one thread and with two: a copy of 128 KiB takes 3.5 and 3.3, of
/// 256 KiB 6.8 and 5.4, of 512 KiB 12.7 and 7.9, of 1 MiB 36 and 14. A helper that sleeps takes some more
/// to come. In tests a few bytes suffice, so that small tensors are cut too.
const BYTES_EACH: usize = if cfg!(test) { 64 } else { 256 << 10 };

/// The most parts for each thread.
const PARTS_EACH: usize = 8;

/// How many threads of at most `most` are worth it for so many bytes, and how many parts they share.
pub(super) fn worth(bytes: usize, most: usize) -> (usize, usize) {
    let threads = most.min(bytes / BYTES_EACH).max(1);
    if threads == 1 {
        return (1, 1);
    }
    let parts_each = (bytes / BYTES_EACH / threads / 2).clamp(1, PARTS_EACH);
    (threads, threads.saturating_mul(parts_each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_work_stays_here() {
        assert_eq!(worth(0, 8), (1, 1));
        assert_eq!(worth(BYTES_EACH, 8), (1, 1));
        assert_eq!(worth(2 * BYTES_EACH, 8), (2, 2));
        assert_eq!(worth(usize::MAX, 8), (8, 8 * PARTS_EACH));
        assert_eq!(worth(usize::MAX, 0), (1, 1));
    }

    #[test]
    fn large_work_has_more_parts_than_threads() {
        assert_eq!(worth(8 * BYTES_EACH, 2), (2, 4));
        assert_eq!(worth(1000 * BYTES_EACH, 2), (2, 2 * PARTS_EACH));
    }
}
