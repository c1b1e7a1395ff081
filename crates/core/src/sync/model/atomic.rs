//! Atomics over those of loom, with `SeqCst` accesses and a drop that counts as an access. `swap`, `fetch_add` and `fetch_sub`
//! refuse `SeqCst`, which no module uses for them.

use loom::sync::atomic::fence;
use std::cell::Cell;
use std::sync::atomic::Ordering;

loom::thread_local! {
    /// Whether this thread has made a `SeqCst` store that no fence follows yet.
    static HAS_UNFENCED_STORE: Cell<bool> = Cell::new(false);
}

/// The ordering of a load for loom, after the fence that keeps an earlier `SeqCst` store before a `SeqCst` load.
fn load_order(order: Ordering) -> Ordering {
    if order != Ordering::SeqCst {
        return order;
    }
    if HAS_UNFENCED_STORE.with(|has| has.replace(false)) {
        fence(Ordering::SeqCst);
    }
    Ordering::Acquire
}

/// Notes a `SeqCst` store that has been made.
fn note_store(order: Ordering) {
    if order == Ordering::SeqCst {
        HAS_UNFENCED_STORE.with(|has| has.set(true));
    }
}

/// The ordering of a read-modify-write.
#[track_caller]
fn exchange_order(order: Ordering) -> Ordering {
    assert_ne!(order, Ordering::SeqCst, "the model has no SeqCst exchange");
    order
}

pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    #[track_caller]
    pub(crate) fn new(value: usize) -> Self {
        Self(loom::sync::atomic::AtomicUsize::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(load_order(order))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
        note_store(order);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: usize, order: Ordering) -> usize {
        self.0.swap(value, exchange_order(order))
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, exchange_order(order))
    }

    #[track_caller]
    pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_sub(value, exchange_order(order))
    }
}

impl Drop for AtomicUsize {
    /// Loom reports a mutable access that does not happen after every other access.
    #[track_caller]
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}

/// A number that is 0 or 1, because loom's own type has no mutable access.
pub(crate) struct AtomicBool(AtomicUsize);

impl AtomicBool {
    #[track_caller]
    pub(crate) fn new(value: bool) -> Self {
        Self(AtomicUsize::new(value.into()))
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    #[track_caller]
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(value.into(), order);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value.into(), exchange_order(order)) != 0
    }

    #[track_caller]
    pub(crate) fn into_inner(mut self) -> bool {
        self.0.0.with_mut(|value| *value != 0)
    }
}

pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        Self(loom::sync::atomic::AtomicPtr::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        self.0.load(load_order(order))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        self.0.store(value, order);
        note_store(order);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.0.swap(value, exchange_order(order))
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, success, failure).inspect(|_| note_store(success))
    }

    #[track_caller]
    pub(crate) fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        // Loom's own does not fail without a reason either.
        self.compare_exchange(current, new, success, failure)
    }
}

impl<T> Drop for AtomicPtr<T> {
    /// Loom reports a mutable access that does not happen after every other access.
    #[track_caller]
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}
