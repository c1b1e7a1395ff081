//! What the models of `workers` and `drop_queue` share.

use super::thread;
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a model in every interleaving, or in those with at most `preemptions` preemptions. It may start `helpers` helpers.
pub(crate) fn explore(preemptions: Option<usize>, helpers: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // The variable LOOM_MAX_PREEMPTIONS overrides the bounds.
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    let tried = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&tried);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        thread::allow(helpers);
        model();
    });
    assert!(tried.load(Ordering::Relaxed) > 1, "the model has a single interleaving");
}

/// Memory that is not atomic. Loom reports two accesses that race. It does not see the lock, which only makes the type `Sync`.
pub(crate) struct SharedCell(std::sync::Mutex<UnsafeCell<()>>);

impl SharedCell {
    pub(crate) fn new() -> Self {
        Self(std::sync::Mutex::new(UnsafeCell::new(())))
    }

    #[track_caller]
    pub(crate) fn read(&self) {
        self.0.lock().unwrap().with(|_| ());
    }

    #[track_caller]
    pub(crate) fn write(&self) {
        self.0.lock().unwrap().with_mut(|_| ());
    }
}

/// A point that `threads` threads must reach before any of them goes on.
pub(crate) struct Rendezvous {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Rendezvous {
    pub(crate) fn new(threads: usize) -> Self {
        Self { missing: Mutex::new(threads), complete: Condvar::new() }
    }

    pub(crate) fn wait(&self) {
        let mut missing = self.missing.lock().unwrap();
        *missing -= 1;
        if *missing == 0 {
            self.complete.notify_all();
        }
        while *missing > 0 {
            missing = self.complete.wait(missing).unwrap();
        }
    }
}
