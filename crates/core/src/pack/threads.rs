//! Who does the work: the calling thread, and helpers for as long as one call lasts.
//!
//! Helpers are started and joined within the call. That costs some tens of microseconds, which is why small
//! work stays on the calling thread, but nothing outlives the call, so nothing can hang in the child of a
//! `fork()`.

use std::thread;

/// Bytes that make a thread worth its start.
///
/// Starting and joining one takes some 50 microseconds. On 2 cores of a Xeon, in microseconds with one thread
/// and with two: a copy of 1 MiB takes 39 and 69, of 2 MiB 165 and 91; float64 to float32 from 2 MiB 130 and 112.
/// In tests a few bytes suffice, so that small tensors are cut too.
const BYTES_EACH: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// How many threads of at most `most` are worth it for so many bytes.
pub(super) fn worth(bytes: usize, most: usize) -> usize {
    most.min(bytes / BYTES_EACH).max(1)
}

/// Runs the task for every part, each on a thread of its own; back when all are done.
///
/// A part whose thread the system refuses to start is run by the caller. The task must not panic.
pub(super) fn each<P: Sync>(parts: &[P], task: impl Fn(&P) + Sync) {
    let Some((first, others)) = parts.split_first() else { return };
    if others.is_empty() {
        return task(first);
    }
    let task = &task;
    thread::scope(|scope| {
        for part in others {
            let started =
                thread::Builder::new().name("tensorferry".into()).spawn_scoped(scope, move || task(part));
            if started.is_err() {
                task(part);
            }
        }
        task(first);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_done_once() {
        for count in 0..5 {
            let parts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            each(&parts, |part| {
                part.fetch_add(1, Ordering::Relaxed);
            });
            assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn small_work_stays_here() {
        assert_eq!(worth(0, 8), 1);
        assert_eq!(worth(BYTES_EACH, 8), 1);
        assert_eq!(worth(2 * BYTES_EACH, 8), 2);
        assert_eq!(worth(usize::MAX, 8), 8);
        assert_eq!(worth(usize::MAX, 0), 1);
    }
}
