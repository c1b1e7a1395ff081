//! [`InterpreterGuard`]: keeps the interpreter from finalising while a thread uses it.
//!
//! Frameworks release memory on any thread, with or without the GIL. A thread that waits for the GIL of a finalising
//! interpreter never returns. CPython 3.11 unwinds it through frames of C++ and Rust that cannot be unwound, and the process
//! aborts. Code that may need the interpreter therefore holds a guard. From `atexit` on no guard is issued, and the exit
//! waits for the guards that are held.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static EXITING: AtomicBool = AtomicBool::new(false);
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// The number of [`AttachedGuard`]s. Only threads with the GIL write it, so a load and a store replace an atomic addition.
static ATTACHED_GUARDS: AtomicUsize = AtomicUsize::new(0);

/// How long the exit waits for guards. A release takes microseconds; a thread that takes longer is blocked elsewhere.
const EXIT_WAIT: Duration = Duration::from_secs(2);

thread_local! {
    /// Whether this thread is attached by [`InterpreterGuard::attach`].
    static ATTACHED_BY_US: Cell<bool> = const { Cell::new(false) };
}

/// While a guard lives, the interpreter does not begin to finalise, for at most [`EXIT_WAIT`].
pub(crate) struct InterpreterGuard(());

impl InterpreterGuard {
    /// A guard, or `None` once the interpreter exits.
    ///
    /// The count goes up before the flag is read, and the exit sets the flag before it reads the count: one of the
    /// two sees the other.
    pub(crate) fn get() -> Option<Self> {
        GUARDS.fetch_add(1, Ordering::SeqCst);
        let guard = Self(());
        is_usable().then_some(guard)
    }

    /// Waits for the GIL and runs `work`. For threads that we created, while they hold no lock.
    pub(crate) fn attach(&self, work: impl FnOnce(Python<'_>)) {
        let before = ATTACHED_BY_US.replace(true);
        self.attach_again(work);
        ATTACHED_BY_US.set(before);
    }

    /// Waits for the GIL and runs `work`. For Python threads that released the GIL and hold no lock.
    pub(crate) fn attach_again(&self, work: impl FnOnce(Python<'_>)) {
        // SAFETY: `PyGILState_Ensure` requires an interpreter that is not finalising: `self` keeps it so. The thread is attached
        // from there until `_state` is dropped, also if `work` panics, and the token that `work` gets cannot outlive its call.
        let (_state, py) = unsafe { (AttachedState(ffi::PyGILState_Ensure()), Python::assume_attached()) };
        work(py);
    }
}

/// As [`InterpreterGuard`], for a thread that has the GIL.
///
/// It costs less: the exit sets its flag with the GIL held, so it cannot begin between the check and the count.
pub(crate) struct AttachedGuard(PhantomData<*mut ()>);

impl AttachedGuard {
    /// A guard, or `None` without the GIL, or once the interpreter exits.
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        if !is_usable() || !has_gil() {
            return None;
        }
        ATTACHED_GUARDS.store(ATTACHED_GUARDS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(Self(PhantomData))
    }

    /// The token of this thread.
    #[inline(always)]
    pub(crate) fn python(&self) -> Python<'_> {
        // SAFETY: `assume_attached` requires an attached thread: `get` has found that this thread is, and the guard cannot leave it.
        // Code that detaches the thread attaches it again before it returns.
        unsafe { Python::assume_attached() }
    }
}

impl Drop for AttachedGuard {
    #[inline(always)]
    fn drop(&mut self) {
        // The child of a fork counts from zero, also where the forking thread itself held a guard.
        let others = ATTACHED_GUARDS.load(Ordering::Relaxed).saturating_sub(1);
        ATTACHED_GUARDS.store(others, Ordering::Relaxed);
    }
}

/// What `PyGILState_Ensure` returned, for the matching release.
struct AttachedState(ffi::PyGILState_STATE);

impl Drop for AttachedState {
    fn drop(&mut self) {
        // SAFETY: each call of `PyGILState_Ensure` needs one release with its result, on the same thread and in reverse order.
        // `attach_again` alone creates the struct, as a local variable, so that calls nest.
        unsafe { ffi::PyGILState_Release(self.0) }
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

/// Whether the interpreter exists and has not begun to exit.
#[inline(always)]
fn is_usable() -> bool {
    // SAFETY: CPython documents `Py_IsInitialized` among the functions that need no initialised interpreter and no GIL.
    !exits() && unsafe { ffi::Py_IsInitialized() } != 0
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

/// Whether Python has a state for this thread: Python created it, or it runs Python code.
pub(crate) fn knows_thread() -> bool {
    !thread_state().is_null()
}

/// Python's state for this thread, or null. For comparisons only: another thread may end it.
#[inline(always)]
fn thread_state() -> *mut ffi::PyThreadState {
    // SAFETY: the function needs no GIL. It reads the thread's own slot, and returns null if the thread has no state, and before
    // and after the life of the interpreter.
    unsafe { ffi::PyGILState_GetThisThreadState() }
}

/// Runs `work`, which blocks, and releases the GIL meanwhile if this thread has it.
///
/// A thread without the GIL must not wait for it here: its framework may hold a lock for which the thread with the GIL waits.
///
/// The bound `Send` keeps references to Python objects out of `work`.
pub(crate) fn without_interpreter(work: impl FnOnce() + Send) {
    match AttachedGuard::get() {
        Some(guard) => guard.python().detach(work),
        None => {
            let _guard = InterpreterGuard::get();
            work();
        }
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
        // SAFETY: `dlsym` requires a handle and a C string: `RTLD_DEFAULT` is a handle, and the names are C literals. The
        // names are CPython's, which declares both functions as `PyThreadState *(void)`: null becomes `None`, and every other
        // address is such a function.
        names.into_iter().find_map(|name| unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, Option<Current>>(libc::dlsym(
                libc::RTLD_DEFAULT,
                name.as_ptr(),
            ))
        })
    });
    let Some(current) = current else { return false };
    let own = thread_state();
    // SAFETY: CPython's function reads one variable and needs no GIL. A thread with a state shows that the runtime exists.
    !own.is_null() && unsafe { current() } == own
}

/// Whether this is the interpreter that the process began with, and not a subinterpreter.
pub(crate) fn is_main_interpreter(_py: Python<'_>) -> bool {
    // SAFETY: `PyInterpreterState_Get` requires an attached thread, which the token proves. It never returns null, and
    // `PyInterpreterState_GetID` accepts its result.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) == 0 }
}

/// Issues no more guards, and waits for the guards that are held.
pub(crate) fn begin_exit(py: Python<'_>) {
    EXITING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let begin = Instant::now();
        let are_held = || [&GUARDS, &ATTACHED_GUARDS].iter().any(|count| count.load(Ordering::SeqCst) != 0);
        while are_held() && begin.elapsed() < EXIT_WAIT {
            std::thread::yield_now();
        }
    });
}

/// Called in the child of a fork: the threads that held guards do not exist.
pub(crate) fn after_fork_in_child() {
    GUARDS.store(0, Ordering::SeqCst);
    ATTACHED_GUARDS.store(0, Ordering::SeqCst);
}
