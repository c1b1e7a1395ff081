//! Threads over those of loom, with a token for `park` and a limit of threads.

use loom::sync::Notify;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

pub(crate) use loom::thread::yield_now;

loom::thread_local! {
    static CURRENT: RefCell<Option<Thread>> = RefCell::new(None);
}

thread_local! {
    /// The number of threads that may still be started. Loom runs the threads of a model on one thread of the system.
    static THREADS_LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Allows that many threads to be started through a [`Builder`] from now on.
#[cfg(test)]
pub(crate) fn allow(threads: usize) {
    THREADS_LEFT.set(threads);
}

/// The handle of a thread.
#[derive(Clone)]
pub(crate) struct Thread {
    token: Arc<Notify>,
}

impl Thread {
    fn new() -> Self {
        Self { token: Arc::new(Notify::new()) }
    }

    pub(crate) fn unpark(&self) {
        self.token.notify();
    }
}

pub(crate) fn current() -> Thread {
    CURRENT.with(|current| current.borrow_mut().get_or_insert_with(Thread::new).clone())
}

pub(crate) fn park() {
    current().token.wait();
}

/// The handle of a thread that can be joined.
pub(crate) struct JoinHandle<T> {
    joined: loom::thread::JoinHandle<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    pub(crate) fn join(self) -> std::thread::Result<T> {
        self.joined.join()
    }
}

pub(crate) struct Builder(loom::thread::Builder);

impl Builder {
    pub(crate) fn new() -> Self {
        Self(loom::thread::Builder::new())
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub(crate) fn spawn<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let Some(left) = THREADS_LEFT.get().checked_sub(1) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        THREADS_LEFT.set(left);
        let thread = Thread::new();
        let own = thread.clone();
        let joined = self.0.spawn(move || {
            CURRENT.with(|current| *current.borrow_mut() = Some(own));
            work()
        })?;
        Ok(JoinHandle { joined, thread })
    }
}
