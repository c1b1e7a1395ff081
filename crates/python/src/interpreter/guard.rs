//! [`InterpreterGuard`]: keeps the interpreter from finalising while a thread uses it.
//!
//! Frameworks release memory on any thread, with or without the GIL. A thread that waits for the GIL of a finalising
//! interpreter never returns. CPython 3.11 unwinds it through frames of C++ and Rust that cannot be unwound, and the process
//! aborts. Code that may need the interpreter therefore holds a guard. From `atexit` on no guard is issued, and the exit
//! waits for the guards that are held.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static EXITING: AtomicBool = AtomicBool::new(false);
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// How long the exit waits for guards. A release takes microseconds; a thread that takes longer is blocked elsewhere.
const EXIT_WAIT: Duration = Duration::from_secs(2);

thread_local! {
    /// Whether this thread is attached by [`InterpreterGuard::attach`].
    static ATTACHED_BY_US: Cell<bool> = const { Cell::new(false) };
}

/// While a guard lives, the interpreter does not begin to finalise.
pub(crate) struct InterpreterGuard(());

impl InterpreterGuard {
    /// A guard, or `None` once the interpreter exits.
    ///
    /// The count goes up before the flag is read, and the exit sets the flag before it reads the count: one of the
    /// two sees the other.
    pub(crate) fn get() -> Option<Self> {
        GUARDS.fetch_add(1, Ordering::SeqCst);
        let guard = Self(());
        // SAFETY: the function may be called at any time, from any thread.
        let is_gone = exits() || unsafe { ffi::Py_IsInitialized() } == 0;
        (!is_gone).then_some(guard)
    }

    /// Waits for the GIL and runs `work`. For threads that we created, while they hold no lock.
    pub(crate) fn attach(&self, work: impl FnOnce(Python<'_>)) {
        let before = ATTACHED_BY_US.replace(true);
        self.attach_again(work);
        ATTACHED_BY_US.set(before);
    }

    /// Waits for the GIL and runs `work`. For Python threads that released the GIL and hold no lock.
    pub(crate) fn attach_again(&self, work: impl FnOnce(Python<'_>)) {
        // SAFETY: with a guard the interpreter runs and does not finalise, so the thread may attach; the token lives only
        // inside the pair of calls; `work` does not unwind.
        unsafe {
            let state = ffi::PyGILState_Ensure();
            work(Python::assume_attached());
            ffi::PyGILState_Release(state);
        }
    }
}

impl Drop for InterpreterGuard {
    fn drop(&mut self) {
        // The child of a fork counts from zero, also where the forking thread itself held a guard.
        if GUARDS.fetch_sub(1, Ordering::SeqCst) == 0 {
            GUARDS.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Whether the interpreter has begun to exit.
pub(crate) fn exits() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Whether this thread, which has the GIL, runs Python code of the user. False for threads that we created.
pub(crate) fn runs_python_code() -> bool {
    !ATTACHED_BY_US.get()
}

/// Runs `work`, which calls user code, on an attached thread that we created.
pub(crate) fn as_python_code<T>(work: impl FnOnce() -> T) -> T {
    let before = ATTACHED_BY_US.replace(false);
    let result = work();
    ATTACHED_BY_US.set(before);
    result
}

/// Whether Python has a state for this thread: Python created it, or it runs Python code. The caller has a guard.
pub(crate) fn knows_thread() -> bool {
    // SAFETY: may be called from any thread while there is an interpreter.
    !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null()
}

/// Runs `work`, which blocks, and releases the GIL meanwhile if this thread has it.
///
/// A thread without the GIL must not wait for it here: its framework may hold a lock for which the thread with the GIL waits.
pub(crate) fn without_interpreter(work: impl FnOnce()) {
    let Some(_guard) = InterpreterGuard::get().filter(|_| has_gil()) else { return work() };
    // SAFETY: this thread has the GIL, releases it here and takes it back below. With a guard the interpreter does not
    // begin to finalise meanwhile; `work` does not unwind.
    unsafe {
        let state = ffi::PyEval_SaveThread();
        work();
        ffi::PyEval_RestoreThread(state);
    }
}

/// Whether this thread has the GIL, as CPython sees it; false where that cannot be known.
///
/// The stable ABI has no function for this. CPython has one under one of two names since 3.5. It returns the state of the
/// thread that has the GIL (since 3.12, of this thread only). PyO3's answer is not reliable, because PyO3 counts its own calls
/// on this thread. JAX releases the GIL while it destroys an array, perhaps below one of our functions, and calls us then.
pub(crate) fn has_gil() -> bool {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static CURRENT: OnceLock<Option<Current>> = OnceLock::new();
    let current = CURRENT.get_or_init(|| {
        let names = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"];
        // SAFETY: strings, which are looked up in the libraries that the process has loaded.
        let found = names.map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        let found = found.into_iter().find(|function| !function.is_null())?;
        // SAFETY: CPython's function of that name, which takes nothing.
        Some(unsafe { std::mem::transmute::<*mut std::ffi::c_void, Current>(found) })
    });
    let Some(current) = current else { return false };
    // SAFETY: both may be called from any thread, with or without the interpreter, as long as there is one.
    unsafe {
        let own = ffi::PyGILState_GetThisThreadState();
        !own.is_null() && current() == own
    }
}

/// Issues no more guards, and waits for the guards that are held.
pub(crate) fn begin_exit(py: Python<'_>) {
    EXITING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let begin = Instant::now();
        while GUARDS.load(Ordering::SeqCst) != 0 && begin.elapsed() < EXIT_WAIT {
            std::thread::yield_now();
        }
    });
}

/// Called in the child of a fork: the threads that held guards do not exist.
pub(crate) fn after_fork_in_child() {
    GUARDS.store(0, Ordering::SeqCst);
}
