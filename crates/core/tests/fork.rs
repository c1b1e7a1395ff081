//! Tests that the child of a fork starts its own helper threads, while threads of the parent are in the middle of calls.
//!
//! The test has its own program, in which no thread is started during a fork: a Rust program takes a lock for each thread that
//! starts, and a child that is forked at that moment could start none. (A library that Python loads takes no such lock, and
//! calls never wait for a helper that does not start.)

#![cfg(unix)]
#![cfg_attr(miri, expect(unused, reason = "Miri cannot fork"))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use tensorferry_core::workers::run_parallel;

/// The threads of the parent's calls, including the calling thread.
const THREADS: usize = 3;

/// Runs tasks that wait for each other, so that each needs its own thread.
fn run_barrier(threads: usize) {
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

/// Stops the threads also if the test fails, which would otherwise not end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn the_child_of_a_fork_starts_its_own_helpers() {
    // Starts the helpers.
    run_barrier(THREADS);
    let (stop, started) = (AtomicBool::new(false), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..THREADS {
            scope.spawn(|| {
                started.wait();
                while !stop.load(Ordering::Relaxed) {
                    let tasks = AtomicUsize::new(0);
                    run_parallel(THREADS, || while tasks.fetch_add(1, Ordering::Relaxed) < 8 {});
                }
            });
        }
        started.wait();
        for _ in 0..50 {
            // SAFETY: the child of a process with threads may call only functions that take no lock of the parent. It calls
            // `alarm`, `run_barrier`, which takes none, and `_exit`. (Starting a thread allocates; glibc keeps its allocator
            // usable.)
            let child = unsafe { libc::fork() };
            if child == 0 {
                // The alarm ends a child without helpers.
                // SAFETY: `alarm` has no preconditions. No handler is set, so the signal ends the child.
                unsafe { libc::alarm(20) };
                run_barrier(2);
                // SAFETY: `_exit` has no preconditions, and ends the child without running destructors of the parent's values.
                unsafe { libc::_exit(7) };
            }
            let mut status = 0;
            // SAFETY: `waitpid` writes the status to a local variable.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(waited, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the status is {status:#x}");
        }
    });
}
