//! Deferred drops: when, and on which thread, the drop queues of `owner` are emptied.
//!
//! Threads that must not wait for the GIL do not release owners. A framework may hold a lock while it calls a deleter.
//! If the deleter waits for the GIL, and the thread with the GIL waits for that lock, both wait for ever. Our deleters
//! therefore release the owner if their thread has the GIL, and otherwise push it on a drop queue.
//!
//! Only the deleter of an `AttachingOwner` waits for the GIL, on a thread that runs Python code. Such owners go to
//! PyTorch and JAX alone. Both release the GIL when a tensor dies on such a thread, and hold no lock then. PyTorch's
//! own deleters for NumPy memory also take the GIL on any thread. With the drop queue, a share would cost a microsecond
//! more, and the memory would outlive the tensor. A test uses each framework on a second thread while the first runs
//! such a deleter. TensorFlow gets no such owners: `Variable.assign` releases the old value under the lock of the
//! variable.
//!
//! There are two queues, which differ in the threads that may empty them:
//!
//! | queue | holds | is emptied by |
//! |---|---|---|
//! | `owner::ANY_THREAD` | owners of every kind | the drop thread, the main loop, any call of ours |
//! | `owner::PADDLE_THREADS` | managed tensors of Paddle | the main loop and any call of ours, on a Python thread that uses Paddle |
//!
//! # Lock order
//!
//! The locks are the GIL, the locks that frameworks hold while they call deleters (F), and ours. Paddle's lock (P) is
//! one of F, and needs most care: it is the single mutex of Paddle's table of deleters. Every import by DLPack takes P,
//! and every release of imported memory holds P while the deleter runs. Paddle's own allocations do not take it.
//!
//! | thread | holds | waits for | why there is no cycle |
//! |---|---|---|---|
//! | any, in another deleter of ours | F, perhaps the GIL | only ours | it releases the owner if it has the GIL, and queues it otherwise |
//! | a Python thread, in the deleter of an `AttachingOwner` | none of F | the GIL | it waits like any other thread for the GIL |
//! | any, in Paddle, releasing memory that we lent to Paddle | P | only ours | `Owner::Deferred` queues the owner, even with the GIL |
//! | the drop thread | nothing | the GIL | no thread with the GIL waits for the drop thread |
//! | any, emptying the first queue | the GIL | F; P if it uses Paddle | a thread that does not use Paddle moves Paddle's tensors to the second queue |
//! | a Python thread | the GIL | F, P | this is the order in which the frameworks' own tensors die |
//! | any | all of the above | ours | no other lock is taken while one of ours is held |
//!
//! One deadlock of Paddle remains. A deleter of another library may release the GIL while P is held: PyTorch's deleter
//! for NumPy memory does, and Python code may. A second thread that has the GIL and waits for P then hangs. A program
//! with two Python threads that use Paddle hangs within seconds, also without tensorferry. A program with one such
//! thread must not hang, so only that thread may take P in a deferred drop:
//!
//! - Paddle's tensors are copied to frameworks that release memory on threads of their own.
//! - A Paddle tensor that another thread finds in the first queue (behind an array) or in a `ferry.Job` moves to `PADDLE_THREADS`.
//! - When no thread that uses Paddle is alive, any Python thread empties that queue.
//!
//! Rejected alternatives:
//!
//! - Only the main loop empties the queues: memory and leases pile up while the main thread is in one long call.
//! - Only the drop thread empties them: it ran into the deadlock above.
//! - The drop thread replaces the main loop after a timeout: no timeout is long enough.
//!
//! The drop thread starts with the first deferred drop and stops working once the interpreter exits. The child of a
//! fork starts its own, and leaves the parent's owners to the parent.

use crate::interpreter::guard::{self, InterpreterGuard};
use pyo3::{Python, ffi};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tensorferry_core::drop_queue::{DrainRequest, WakeUp};

/// How long the drop thread waits for more owners, so that it takes the GIL once for all of them.
const GATHER_TIME: Duration = Duration::from_millis(1);

/// How long the drop thread waits after the main loop refused a request because its list of 32 was full.
const RETRY_TIME: Duration = Duration::from_millis(10);

/// Access to the drop queues, which are in `owner` because they hold its type.
pub(super) struct Queues {
    /// Whether both are empty.
    pub(super) are_empty: fn() -> bool,
    /// Whether owners remain that only a Python thread that uses Paddle may drop.
    pub(super) wait_for_paddle_thread: fn() -> bool,
    /// Drops the owners that this thread may drop.
    pub(super) drop_deferred: fn(Python<'_>),
}

/// Whether a request to the main loop to empty the queues is pending.
static MAIN_LOOP: DrainRequest = DrainRequest::new();

/// The drop thread of this process. [`after_fork_in_child`] forgets the parent's.
static DROP_THREAD: AtomicPtr<DropThread> = AtomicPtr::new(ptr::null_mut());

/// The number of live Python threads that have converted tensors from or to Paddle.
static PADDLE_THREAD_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is counted in [`PADDLE_THREAD_COUNT`].
    static USES_PADDLE: Cell<bool> = const { Cell::new(false) };
    static PADDLE_THREAD: PaddleThread = PaddleThread::new();
    /// Whether this thread drops deferred owners, and must not take Paddle's lock for them.
    static DROPS_FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Counts a Python thread that uses Paddle until the thread ends.
struct PaddleThread;

impl PaddleThread {
    fn new() -> Self {
        PADDLE_THREAD_COUNT.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for PaddleThread {
    fn drop(&mut self) {
        PADDLE_THREAD_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Records that this thread uses Paddle.
#[inline]
pub(crate) fn note_paddle_thread() {
    if !USES_PADDLE.get() && guard::runs_python_code() {
        USES_PADDLE.set(true);
        PADDLE_THREAD.with(|_| ());
    }
}

/// Whether a thread that has the GIL may take Paddle's lock now.
pub(crate) fn may_drop_paddle_tensors() -> bool {
    guard::runs_python_code() && !DROPS_FOR_OTHERS.get()
}

/// Schedules the emptying of the queues after an owner was pushed. The calling thread may hold any lock but ours.
pub(super) fn schedule(guard: &InterpreterGuard, queues: &'static Queues) {
    // The main thread runs the main loop soon if it has the GIL. Without the GIL it may be in a long call.
    let main_loop_is_next = is_main_thread() && request_main_loop(guard, queues) && guard::has_gil();
    if !main_loop_is_next {
        wake_drop_thread(queues);
    }
}

/// Runs `work`, which drops deferred owners. Its argument says whether this thread may drop Paddle's tensors.
pub(super) fn drop_for_others(work: impl FnOnce(bool)) {
    let uses_paddle = USES_PADDLE.get() || PADDLE_THREAD_COUNT.load(Ordering::Relaxed) == 0;
    let before = DROPS_FOR_OTHERS.replace(!uses_paddle);
    work(may_drop_paddle_tensors());
    DROPS_FOR_OTHERS.set(before);
}

/// Called in the child of a fork, which has no other thread.
pub(super) fn after_fork_in_child() {
    MAIN_LOOP.take();
    // The parent's drop thread is leaked, because references to it may remain.
    DROP_THREAD.store(ptr::null_mut(), Ordering::Release);
    PADDLE_THREAD_COUNT.store(usize::from(USES_PADDLE.get()), Ordering::Relaxed);
}

/// Asks the interpreter's main loop to empty the queues. Returns whether it will. The thread is known to Python.
fn request_main_loop(_guard: &InterpreterGuard, queues: &'static Queues) -> bool {
    // Only Python calls it. PyO3 declares the type of pending calls as safe, so it cannot be `unsafe`.
    extern "C" fn pending_call(queues: *mut c_void) -> c_int {
        MAIN_LOOP.take();
        if !guard::exits() {
            // SAFETY: Python passes the pointer that was given to `Py_AddPendingCall` below, which is to a static, and runs
            // pending calls on an attached thread, as `assume_attached` requires. The token ends with this call.
            let (queues, py) = unsafe { (&*queues.cast::<Queues>(), Python::assume_attached()) };
            (queues.drop_deferred)(py);
        }
        0
    }
    if !MAIN_LOOP.raise() {
        return true;
    }
    // SAFETY: `Py_AddPendingCall` needs no GIL, but an interpreter that is not finalising, which the guard ensures. Python keeps
    // both pointers until the call: one is a function, and the other points to a static.
    let added =
        unsafe { ffi::Py_AddPendingCall(Some(pending_call), ptr::from_ref(queues).cast_mut().cast()) } == 0;
    if !added {
        MAIN_LOOP.take();
    }
    added
}

/// Whether this is the thread that the process began with, which runs the main loop.
fn is_main_thread() -> bool {
    thread_local! {
        static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    }
    IS_MAIN.get().unwrap_or_else(|| {
        // By number: the C library has a function `gettid` since glibc 2.30, and the wheel is for 2.28.
        // SAFETY: `syscall` requires the arguments of the call that it names, and `SYS_gettid` has none.
        #[cfg(target_os = "linux")]
        let is_main = u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }) == Ok(std::process::id());
        #[cfg(not(target_os = "linux"))]
        let is_main = false;
        IS_MAIN.set(Some(is_main));
        is_main
    })
}

struct DropThread {
    wake_up: WakeUp,
    queues: &'static Queues,
}

/// Wakes the drop thread of this process, which is started on first use. If the system cannot start a thread, the next call
/// of ours empties the queues.
pub(super) fn wake_drop_thread(queues: &'static Queues) {
    let found = DROP_THREAD.load(Ordering::Acquire);
    // SAFETY: `as_ref` requires null or a value that is not freed while the reference lives: `start` stores only boxes that it
    // leaks, and the load acquires what it wrote.
    let running = unsafe { found.as_ref() };
    if let Some(drop_thread) = running.or_else(|| start(queues)) {
        drop_thread.wake_up.call();
    }
}

/// Starts the drop thread of this process, unless another thread has started it.
fn start(queues: &'static Queues) -> Option<&'static DropThread> {
    let new = Box::into_raw(Box::new(DropThread { wake_up: WakeUp::new(), queues }));
    match DROP_THREAD.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: `new` comes from `Box::into_raw`, and no code frees a pointer that was stored, so it is valid for `'static`.
            let new: &'static DropThread = unsafe { &*new };
            let started = thread::Builder::new().name("tensorferry".into()).spawn(|| new.serve());
            if started.is_err() {
                DROP_THREAD.store(ptr::null_mut(), Ordering::Release);
            }
            started.is_ok().then_some(new)
        }
        Err(other) => {
            // SAFETY: `from_raw` requires a pointer of `Box::into_raw` that is used nowhere else: the exchange failed, so no other
            // thread has seen `new`. `other` is null or a box that the thread which stored it leaked.
            unsafe {
                drop(Box::from_raw(new));
                other.as_ref()
            }
        }
    }
}

impl DropThread {
    /// Empties the queues whenever it is woken.
    fn serve(&self) {
        loop {
            self.wake_up.wait();
            thread::sleep(GATHER_TIME);
            if (self.queues.are_empty)() {
                continue;
            }
            let Some(guard) = InterpreterGuard::get() else { continue };
            let mut is_refused = false;
            guard.attach(|py| {
                (self.queues.drop_deferred)(py);
                is_refused =
                    (self.queues.wait_for_paddle_thread)() && !request_main_loop(&guard, self.queues);
            });
            drop(guard);
            if is_refused {
                thread::sleep(RETRY_TIME);
                self.wake_up.call();
            }
        }
    }
}
