//! The child of a fork has none of its parent's threads, of which some are in the middle of a call.
//!
//! Alone in its program, and no thread is being started while it forks: a program of Rust's own takes a lock for each
//! thread that starts, and the child of a fork in that moment would start none. (A library that Python loads takes no
//! such lock; and a helper that does not come is never waited for.)

#![cfg(unix)]
#![cfg_attr(miri, expect(unused, reason = "Miri cannot fork"))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use tensorferry_core::workers::run_parallel;

/// How many threads the parent's calls are for, the caller's own included.
const THREADS: usize = 3;

/// Parts that wait for each other, so that each needs a thread of its own.
fn meet(threads: usize) {
    let (taken, arrived) = (AtomicUsize::new(0), AtomicUsize::new(0));
    run_parallel(threads, || {
        while taken.fetch_add(1, Ordering::Relaxed) < threads {
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < threads {
                thread::yield_now();
            }
        }
    });
}

/// Also when the test fails, which would else never end.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn the_child_of_a_fork_has_helpers_of_its_own() {
    // Now they have started.
    meet(THREADS);
    let (stop, begun) = (AtomicBool::new(false), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        for _ in 0..THREADS {
            scope.spawn(|| {
                begun.wait();
                while !stop.load(Ordering::Relaxed) {
                    let parts = AtomicUsize::new(0);
                    run_parallel(THREADS, || while parts.fetch_add(1, Ordering::Relaxed) < 8 {});
                }
            });
        }
        begun.wait();
        for _ in 0..50 {
            // SAFETY: the child runs only `together`, which takes no lock, and leaves without cleaning up.
            // (Starting a thread allocates; glibc sees to its allocator in the child of a fork.)
            let child = unsafe { libc::fork() };
            if child == 0 {
                // A child that has no helper is ended by the alarm.
                // SAFETY: no handler is set: the signal ends the child.
                unsafe { libc::alarm(20) };
                meet(2);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(7) };
            }
            let mut status = 0;
            // SAFETY: a child of ours, and a place for its status.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(waited, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the status is {status:#x}");
        }
    });
}
