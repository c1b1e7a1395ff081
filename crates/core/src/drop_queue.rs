//! Deferred drops: a lock-free queue of items that one thread releases and another thread drops, and two signals to that
//! thread.
//!
//! Frameworks release memory on threads that must not wait for the GIL. Such a thread pushes the owner here and goes on.
//! Pushing takes no lock, so a fork never copies a held one. The module is independent of Python, so that `make loom` can test
//! every interleaving of the protocol and Miri can run its tests.
//!
//! Protocol: a producer pushes first and signals second; a consumer takes the signal first and the items second. A push
//! whose signal finds one already raised is therefore seen by the consumer of that signal.

use crate::sync::{AtomicBool, AtomicPtr, Condvar, Mutex, Ordering};
use std::ptr;
use std::sync::PoisonError;

struct Node<T> {
    item: T,
    next: *mut Node<T>,
}

/// Items that wait to be dropped. Items are pushed one at a time and taken all at once.
pub struct DropQueue<T> {
    /// The newest item.
    head: AtomicPtr<Node<T>>,
}

// SAFETY: the queue owns its items, and `T: Send` lets them move to another thread together with it.
unsafe impl<T: Send> Send for DropQueue<T> {}
// SAFETY: a shared queue never gives out a reference to an item. It moves items between threads, which `T: Send` permits:
// `push` takes an item by value, and the swap in `take` gives each node to one thread.
unsafe impl<T: Send> Sync for DropQueue<T> {}

impl<T> DropQueue<T> {
    /// An empty queue.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// An empty queue. Loom's atomics have no const constructors.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds an item, without waiting for any thread.
    pub fn push(&self, item: T) {
        let mut head = self.head.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(Node { item, next: head }));
        while let Err(now) = self.head.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed)
        {
            head = now;
            // SAFETY: `node` is valid and not aliased: it comes from the box above, and the exchange that failed did not
            // publish it.
            unsafe { (*node).next = head };
        }
    }

    /// Whether the queue is empty, as far as this thread has seen.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Takes all items, the oldest first.
    pub fn take(&self) -> Taken<T> {
        // ABA cannot happen: nodes leave the list all at once, through this swap or through `abandon`, which frees none.
        let mut rest = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut Node<T> = ptr::null_mut();
        while !rest.is_null() {
            // SAFETY: `rest` is a node from `Box::into_raw` in `push`, or null, which ends the loop. It is not aliased: the
            // swap above took the list away from every other thread, and acquires what the producers wrote.
            let next = unsafe { std::mem::replace(&mut (*rest).next, oldest) };
            oldest = std::mem::replace(&mut rest, next);
        }
        Taken { oldest }
    }

    /// Forgets all items without dropping them: in the child of a fork they belong to the parent.
    pub fn abandon(&self) {
        self.head.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl<T> Drop for DropQueue<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Items taken from a queue, the oldest first. Those that are not iterated over are dropped with it.
pub struct Taken<T> {
    oldest: *mut Node<T>,
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.oldest.is_null() {
            return None;
        }
        // SAFETY: `oldest` is not null by the check above. It comes from `Box::into_raw` in `push`, `take` gave the list to
        // this value alone, and the next line removes the node from it, so that it is freed once.
        let node = unsafe { Box::from_raw(self.oldest) };
        self.oldest = node.next;
        Some(node.item)
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// A flag that requests a drain of the queue. Further requests are merged until it is taken.
pub struct DrainRequest(AtomicBool);

impl DrainRequest {
    /// No request.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// No request. Loom's atomics have no const constructors.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the request; returns whether it was not raised before.
    ///
    /// Both sides swap the flag. If this returns false, the swap that takes the request reads this one, and so sees the
    /// items that this thread pushed before.
    #[must_use]
    pub fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Takes the request, before the items are taken.
    pub fn take(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

/// Wakes one waiting thread. Its lock is a leaf: no other lock is taken while it is held.
pub struct WakeUp {
    called: Mutex<bool>,
    changed: Condvar,
}

impl WakeUp {
    /// A signal that has not been raised.
    #[expect(clippy::new_without_default, reason = "as the others")]
    pub fn new() -> Self {
        Self { called: Mutex::new(false), changed: Condvar::new() }
    }

    /// Wakes the thread, or keeps it from its next wait.
    pub fn call(&self) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !*called {
            *called = true;
            self.changed.notify_one();
        }
    }

    /// Waits for a call, and takes it.
    pub fn wait(&self) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        while !*called {
            called = self.changed.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
        *called = false;
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
