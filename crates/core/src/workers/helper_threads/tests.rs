//! Tests of the helper threads.

use super::*;
use std::sync::Barrier;

/// Runs `count` tasks and asserts that each ran once.
fn check(helpers: &HelperThreads, count: usize, threads: usize) {
    let tasks: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            task.fetch_add(1, Ordering::Relaxed);
        }
    };
    helpers.run(threads - 1, &work);
    assert!(tasks.iter().all(|task| task.load(Ordering::Relaxed) == 1));
}

fn started(helpers: &HelperThreads) -> usize {
    helpers.slots.iter().filter(|slot| slot.helper.get().is_some()).count()
}

#[test]
fn every_task_runs_once() {
    for count in 0..5 {
        for threads in 0..4 {
            let tasks: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            for_each_parallel(count, threads, |task| {
                tasks[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(tasks.iter().all(|task| task.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn a_second_caller_gets_its_share() {
    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    // Starts three helpers, which are idle afterwards.
    check(&helpers, 64, 4);
    let (inside, leave) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let caller = ActiveCaller::register(&helpers.callers);
            assert_eq!(caller.number, 1);
            inside.wait();
            leave.wait();
        });
        inside.wait();
        let caller = thread::current().id();
        let (posted, is_counted) = (AtomicUsize::new(0), AtomicBool::new(false));
        helpers.run(3, &|| {
            if thread::current().id() == caller {
                // A slot holds the job or is busy with it until the helpers may return.
                let words = helpers.slots.iter().map(|slot| slot.word.load(Ordering::Relaxed));
                posted.store(words.filter(|&word| is_job(word) || word == BUSY).count(), Ordering::Relaxed);
                is_counted.store(true, Ordering::Relaxed);
            }
            while !is_counted.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        leave.wait();
        // With the caller, half of four threads.
        assert_eq!(posted.into_inner(), 1);
    });
    assert_eq!(helpers.callers.load(Ordering::Relaxed), 0);
}

#[test]
fn helpers_are_reused_and_not_more_than_requested() {
    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
        check(&helpers, 7, 3);
    }
    assert_eq!(started(&helpers), 2);
    check(&helpers, 7, 2);
    assert_eq!(started(&helpers), 2);
    check(&helpers, 7, 4);
    assert_eq!(started(&helpers), 3);
}

#[test]
fn sleeping_helpers_are_woken() {
    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        // The tasks wait for each other, so each needs its own thread.
        let barrier = Barrier::new(2);
        let next = AtomicUsize::new(0);
        helpers.run(1, &|| {
            while next.fetch_add(1, Ordering::Relaxed) < 2 {
                barrier.wait();
            }
        });
        while !helpers.slots[0].asleep.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
    assert_eq!(started(&helpers), 1);
}

#[test]
fn many_callers_at_once() {
    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    thread::scope(|scope| {
        for threads in 2..if cfg!(miri) { 4 } else { 10 } {
            let helpers = &helpers;
            scope.spawn(move || {
                for count in 0..if cfg!(miri) { 3 } else { 500 } {
                    check(helpers, count % 20, 2 + threads % 3);
                }
            });
        }
    });
    assert!(started(&helpers) <= 3);
}

#[test]
fn a_panic_reaches_the_caller_and_helpers_survive_it() {
    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    for on_caller in [true, false] {
        let caller = thread::current().id();
        let barrier = Barrier::new(2);
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            helpers.run(1, &|| {
                barrier.wait();
                if (thread::current().id() == caller) == on_caller {
                    panic::resume_unwind(Box::new("on purpose"));
                }
            });
        }));
        assert!(result.is_err());
    }
    check(&helpers, 9, 2);
    assert_eq!(started(&helpers), 1);
}

/// Without the second `catch_unwind` the helper ends, and the caller waits for ever.
#[test]
fn a_panic_payload_whose_drop_panics_does_not_end_the_helper() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            // A payload without size, because the helper forgets it.
            panic::resume_unwind(Box::new(()));
        }
    }

    let helpers = HelperThreads::new(MAX_HELPER_THREADS);
    let (caller, barrier) = (thread::current().id(), Barrier::new(2));
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        helpers.run(1, &|| {
            barrier.wait();
            if thread::current().id() != caller {
                panic::resume_unwind(Box::new(PanicsOnDrop));
            }
        });
    }));
    assert!(result.is_err());
    check(&helpers, 9, 2);
    assert_eq!(started(&helpers), 1);
}
