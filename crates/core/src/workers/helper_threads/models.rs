//! Models of the helper threads (`make loom`): the code above, in the interleavings of two or three threads.
//!
//! A lost wake-up is a deadlock, an access to a job that its caller has freed is a race with the drop of its atomics, and an
//! access to the caller's memory outside the call is a race with a [`SharedCell`]. Loom reports all three.
//!
//! The smallest models try every interleaving. The others try those with a bounded number of preemptions, because all of
//! them would take days. Most defects need one or two preemptions. `LOOM_MAX_PREEMPTIONS` overrides the bounds.

use super::*;
use crate::sync::{Rendezvous, SharedCell, explore};
use std::sync::Arc;

/// The preemptions that a model of three threads tries.
const PREEMPTIONS: Option<usize> = Some(2);

/// Memory that a caller writes before a call, that the work reads, and whose parts one thread each writes.
struct Tasks {
    input: SharedCell,
    next: AtomicUsize,
    outputs: Vec<SharedCell>,
}

impl Tasks {
    fn new(count: usize) -> Self {
        let outputs = (0..count).map(|_| SharedCell::new()).collect();
        Self { input: SharedCell::new(), next: AtomicUsize::new(0), outputs }
    }

    fn work(&self) {
        self.input.read();
        while let Some(output) = self.outputs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            output.write();
        }
    }

    /// Runs the tasks in a call and asserts that all have run.
    fn run(&self, helpers: &HelperThreads, threads: usize) {
        self.input.write();
        self.next.store(0, Ordering::Relaxed);
        helpers.run(threads - 1, &|| self.work());
        assert!(self.next.load(Ordering::Relaxed) >= self.outputs.len());
        self.end();
    }

    /// Races with every thread that is still in the call.
    fn end(&self) {
        self.input.write();
        self.outputs.iter().for_each(SharedCell::write);
    }
}

#[test]
fn a_helper_takes_a_job_or_the_caller_withdraws_it() {
    explore(None, 1, || Tasks::new(2).run(&HelperThreads::new(1), 2));
}

#[test]
fn a_second_call_reuses_the_helper_of_the_first() {
    explore(Some(3), 1, || {
        let (helpers, tasks) = (HelperThreads::new(1), Tasks::new(1));
        tasks.run(&helpers, 2);
        tasks.run(&helpers, 2);
    });
}

#[test]
fn two_helpers_and_the_caller_share_a_job() {
    explore(PREEMPTIONS, 2, || Tasks::new(2).run(&HelperThreads::new(2), 3));
}

/// Each call ends only if its helper arrives, so a helper that sleeps on is a deadlock.
#[test]
fn a_helper_that_falls_asleep_is_woken() {
    explore(Some(3), 1, || {
        let helpers = HelperThreads::new(1);
        for _ in 0..2 {
            let everyone = Rendezvous::new(2);
            helpers.run(1, &|| everyone.wait());
        }
    });
}

/// The second caller may find the helper idle before the first has stored the handle that wakes it.
#[test]
fn a_helper_that_falls_asleep_is_woken_by_a_second_caller() {
    explore(PREEMPTIONS, 1, || {
        let helpers = Arc::new(HelperThreads::new(1));
        let second = {
            let helpers = Arc::clone(&helpers);
            loom::thread::spawn(move || {
                let everyone = Rendezvous::new(2);
                let job = Job {
                    work: &|| everyone.wait(),
                    pending: AtomicUsize::new(0),
                    panicked: AtomicBool::new(false),
                    caller: thread::current(),
                };
                let posted = PostedJob { helpers: &helpers, job: &job };
                posted.post(1);
                // The helper has the job until this thread arrives, or never got it.
                if job.pending.load(Ordering::Relaxed) > 0 {
                    everyone.wait();
                }
                drop(posted);
            })
        };
        helpers.run(1, &|| ());
        second.join().unwrap();
    });
}

#[test]
fn two_callers_share_one_helper() {
    explore(PREEMPTIONS, 1, || {
        let helpers = Arc::new(HelperThreads::new(1));
        let second = {
            let helpers = Arc::clone(&helpers);
            loom::thread::spawn(move || Tasks::new(1).run(&helpers, 4))
        };
        Tasks::new(1).run(&helpers, 4);
        second.join().unwrap();
        assert_eq!(helpers.callers.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn two_first_callers_create_the_helpers_of_the_process_once() {
    explore(PREEMPTIONS, 1, || {
        let process = Arc::new(ProcessHelpers { current: AtomicPtr::new(ptr::null_mut()) });
        let call = |process: &ProcessHelpers| {
            let helpers = process.get();
            Tasks::new(1).run(helpers, 4);
            ptr::from_ref(helpers).addr()
        };
        let second = {
            let process = Arc::clone(&process);
            loom::thread::spawn(move || call(&process))
        };
        let found = call(&process);
        assert_eq!(second.join().unwrap(), found);
    });
}

/// The work panics on one side, whichever the interleaving gives it to, and the helper takes part in the next call.
fn panic_on(caller_panics: bool) {
    let (helpers, tasks) = (HelperThreads::new(1), Tasks::new(1));
    let caller = loom::thread::current().id();
    // Not loom's type, because the model asks it nothing but whether the interleaving has a panic.
    let panicked = std::sync::atomic::AtomicBool::new(false);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        helpers.run(1, &|| {
            tasks.work();
            if (loom::thread::current().id() == caller) == caller_panics {
                panicked.store(true, Ordering::Relaxed);
                panic::resume_unwind(Box::new("on purpose"));
            }
        });
    }));
    assert_eq!(result.is_err(), panicked.into_inner());
    tasks.end();
    tasks.run(&helpers, 2);
}

#[test]
fn a_panic_on_the_helper_reaches_the_caller() {
    explore(PREEMPTIONS, 1, || panic_on(false));
}

#[test]
fn a_caller_that_panics_waits_for_its_helper() {
    explore(PREEMPTIONS, 1, || panic_on(true));
}

#[test]
fn a_refused_thread_leaves_the_slot_for_a_later_call() {
    explore(None, 0, || {
        let helpers = HelperThreads::new(1);
        Tasks::new(1).run(&helpers, 2);
        assert!(helpers.slots[0].helper.get().is_none());
        thread::allow(1);
        Tasks::new(1).run(&helpers, 2);
        assert!(helpers.slots[0].helper.get().is_some());
    });
}

#[test]
fn a_thread_is_refused_while_another_caller_posts() {
    explore(PREEMPTIONS, 1, || {
        let helpers = Arc::new(HelperThreads::new(2));
        let second = {
            let helpers = Arc::clone(&helpers);
            loom::thread::spawn(move || Tasks::new(1).run(&helpers, 4))
        };
        Tasks::new(1).run(&helpers, 4);
        second.join().unwrap();
        assert_eq!(helpers.slots.iter().filter(|slot| slot.helper.get().is_some()).count(), 1);
    });
}
