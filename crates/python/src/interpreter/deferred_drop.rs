//! Deferred drops: releasing owners from threads that must not wait for the GIL.
//!
//! A framework may hold a lock of its own while it calls a deleter. A deleter that waits for the GIL there waits for ever
//! if the thread that has the GIL waits for that lock. So a deleter of ours releases the owner if its thread has the GIL, and
//! pushes it on a drop queue otherwise.
//!
//! One case waits for the GIL: `AttachingOwner`, which is lent to PyTorch and JAX alone, on a thread that runs Python code.
//! These give up the GIL when a tensor dies on such a thread, and hold no lock then: PyTorch's own deleters for memory of
//! NumPy's take the GIL on any thread. Through the queue, a share would cost a microsecond more and the memory would be
//! released later than the tensor. A test uses each framework on a second thread while the first is in such a deleter.
//! TensorFlow is not among them: `Variable.assign` releases the old value under the lock of the variable.
//!
//! Two queues differ in who may empty them:
//!
//! | queue | holds | is emptied by |
//! |---|---|---|
//! | `owner::ANY_THREAD` | owners of every kind | the drop thread, the main loop, any call of ours |
//! | `owner::PADDLE_THREADS` | managed tensors of Paddle | the main loop and any call of ours, on a Python thread that uses Paddle |
//!
//! # Lock order
//!
//! Locks: the GIL; the locks that frameworks hold while they call deleters (F), of which Paddle's (P) is the worst; ours.
//! P is the one mutex of Paddle's table of deleters: every import by DLPack takes it, and every release of imported memory
//! holds it while the deleter runs. Paddle's own allocations do not take it.
//!
//! | thread | holds | wants | why there is no cycle |
//! |---|---|---|---|
//! | any, in another deleter of ours | F, perhaps the GIL | nothing but ours | an owner is released under the GIL that the thread has, or queued |
//! | a Python thread, in the deleter of an `AttachingOwner` | none of F | the GIL | as any thread that wants the GIL |
//! | any, in Paddle, below it what we lent to Paddle | P | nothing but ours | `Owner::Deferred` queues, also under the GIL |
//! | drop thread | nothing | the GIL | a thread that has the GIL never waits for the drop thread |
//! | any, emptying the first queue | the GIL | F; P if it uses Paddle | else Paddle's tensors go on to the second queue |
//! | a Python thread | the GIL | F, P | the order in which the frameworks' own tensors die |
//! | any | all of the above | ours | ours are leaves: no other lock is taken under them |
//!
//! What is left is Paddle's: a deleter that is not ours may give up the GIL below P (PyTorch's does for memory of NumPy's;
//! Python code may), and a second thread that has the GIL and wants P then hangs. A program with two Python threads that use
//! Paddle hangs so without tensorferry, within seconds. A program with one must not, so a deferred drop takes P on that one
//! only: Paddle's tensors are copied to frameworks that release on threads of their own, and one that another thread meets in
//! the first queue anyway (behind an array) or in a job waits in `PADDLE_THREADS`. Once no such thread lives, any Python
//! thread empties it.
//!
//! Rejected: the main loop alone, because memory and leases pile up while the main thread is in one long call; the drop
//! thread alone, because it hung in the way just said; a time after which the drop thread acts in the main loop's place,
//! because no time is long enough.
//!
//! The drop thread starts with the first deferred drop, waits for good once the interpreter exits, and starts anew in the
//! child of a fork, which leaves the parent's owners to the parent.

use crate::interpreter::guard::{self, InterpreterGuard};
use pyo3::ffi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tensorferry_core::drop_queue::{Request, WakeUp};

/// How long the drop thread lets owners gather, so that it takes the GIL from others once for all of them.
const GATHER_TIME: Duration = Duration::from_millis(1);

/// When the drop thread asks the main loop again, whose list of 32 requests was full.
const RETRY_TIME: Duration = Duration::from_millis(10);

/// The queues, as the drop thread and the main loop use them. `owner` has them, because they hold its type.
pub(super) struct Queues {
    /// Whether both are empty.
    pub(super) are_empty: fn() -> bool,
    /// Whether owners are left that only a Python thread that uses Paddle may drop.
    pub(super) wait_for_paddle_thread: fn() -> bool,
    /// Drops the owners that this thread may drop, with the GIL held.
    pub(super) drop_deferred: fn(),
}

/// Whether the main loop was asked to empty the queues and has not begun to.
static MAIN_LOOP: Request = Request::new();

/// The drop thread of this process. [`after_fork_in_child`] forgets the parent's.
static DROP_THREAD: AtomicPtr<DropThread> = AtomicPtr::new(ptr::null_mut());

/// How many Python threads that live have carried tensors from or to Paddle.
static PADDLE_THREAD_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is one of them.
    static USES_PADDLE: Cell<bool> = const { Cell::new(false) };
    static PADDLE_THREAD: PaddleThread = PaddleThread::new();
    /// Whether this thread drops owners that another thread gave up, and must not take Paddle's lock for them.
    static DROPS_FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// A Python thread that uses Paddle, until the thread ends.
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

/// Notes that this thread uses Paddle.
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

/// Has the queues emptied, after an owner was pushed. The caller has an interpreter guard; its thread may hold any lock
/// but ours.
pub(super) fn schedule(queues: &'static Queues) {
    // The main thread with the GIL is about to run Python code. Without it, it may be in a long call.
    let main_loop_comes = is_main_thread() && request_main_loop(queues) && guard::has_gil();
    if !main_loop_comes {
        wake_drop_thread(queues);
    }
}

/// Runs `work`, which drops owners that other threads gave up; it is told whether this thread may drop Paddle's tensors.
pub(super) fn drop_for_others(work: impl FnOnce(bool)) {
    let uses_paddle = USES_PADDLE.get() || PADDLE_THREAD_COUNT.load(Ordering::Relaxed) == 0;
    let before = DROPS_FOR_OTHERS.replace(!uses_paddle);
    work(may_drop_paddle_tensors());
    DROPS_FOR_OTHERS.set(before);
}

/// Called in the child of a fork. The other threads do not exist there.
pub(super) fn after_fork_in_child() {
    MAIN_LOOP.take();
    // The parent's drop thread is leaked: something may still point to it.
    DROP_THREAD.store(ptr::null_mut(), Ordering::Release);
    PADDLE_THREAD_COUNT.store(usize::from(USES_PADDLE.get()), Ordering::Relaxed);
}

/// Asks the interpreter's main loop to empty the queues; whether it will. The thread is known to Python.
fn request_main_loop(queues: &'static Queues) -> bool {
    extern "C" fn pending_call(queues: *mut c_void) -> c_int {
        MAIN_LOOP.take();
        if !guard::exits() {
            // SAFETY: the address of the static that was passed below.
            unsafe { ((*queues.cast::<Queues>()).drop_deferred)() };
        }
        0
    }
    if !MAIN_LOOP.raise() {
        return true;
    }
    // SAFETY: the interpreter runs, since the caller has a guard; Python keeps both pointers, which are to statics.
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
        // SAFETY: both take nothing and cannot fail.
        #[cfg(target_os = "linux")]
        let is_main = unsafe { libc::gettid() == libc::getpid() };
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

/// Wakes the drop thread of this process, which is started if there is none. If the system refuses a thread, the next call of
/// ours drops what is deferred.
pub(super) fn wake_drop_thread(queues: &'static Queues) {
    let found = DROP_THREAD.load(Ordering::Acquire);
    // SAFETY: null, or leaked by `start`.
    let running = unsafe { found.as_ref() };
    if let Some(drop_thread) = running.or_else(|| start(queues)) {
        drop_thread.wake_up.call();
    }
}

/// Starts the drop thread of this process, unless another thread does.
fn start(queues: &'static Queues) -> Option<&'static DropThread> {
    let new = Box::into_raw(Box::new(DropThread { wake_up: WakeUp::new(), queues }));
    match DROP_THREAD.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: leaked above; nothing frees it.
            let new: &'static DropThread = unsafe { &*new };
            let started = thread::Builder::new().name("tensorferry".into()).spawn(|| new.serve());
            if started.is_err() {
                DROP_THREAD.store(ptr::null_mut(), Ordering::Release);
            }
            started.is_ok().then_some(new)
        }
        Err(other) => {
            // SAFETY: `new` was made above and seen by no other thread. `other` was leaked by the thread that came first.
            unsafe {
                drop(Box::from_raw(new));
                other.as_ref()
            }
        }
    }
}

impl DropThread {
    fn serve(&self) {
        loop {
            self.wake_up.wait();
            thread::sleep(GATHER_TIME);
            if (self.queues.are_empty)() {
                continue;
            }
            let Some(guard) = InterpreterGuard::get() else { continue };
            let mut refused = false;
            guard.attach(|_| {
                (self.queues.drop_deferred)();
                refused = (self.queues.wait_for_paddle_thread)() && !request_main_loop(self.queues);
            });
            drop(guard);
            if refused {
                thread::sleep(RETRY_TIME);
                self.wake_up.call();
            }
        }
    }
}
