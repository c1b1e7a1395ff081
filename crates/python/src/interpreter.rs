//! The interpreter as seen by code that is called from anywhere: may it still be entered?
//!
//! Frameworks release memory on any thread, with or without the GIL. A thread that asks for the GIL of an
//! interpreter that is finalising never comes back: CPython 3.11 unwinds it, through frames of C++ and Rust that
//! cannot be unwound, and the process aborts. So whatever may need the interpreter holds a [`Pass`]. From `atexit`
//! on none is given out any more, and the exit waits for those that are still held.

use crate::later;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static EXITING: AtomicBool = AtomicBool::new(false);
static PASSES: AtomicUsize = AtomicUsize::new(0);

/// How long the exit waits for others. A release takes microseconds; whoever needs longer is stuck elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);

/// As long as this lives the interpreter does not begin to finalise.
pub(crate) struct Pass(());

impl Pass {
    /// A pass, or nothing once the interpreter exits.
    ///
    /// The count goes up before the flag is read, and the exit sets the flag before it reads the count: one of the
    /// two sees the other.
    pub(crate) fn get() -> Option<Self> {
        PASSES.fetch_add(1, Ordering::SeqCst);
        let pass = Self(());
        // SAFETY: the function may be called at any time, from any thread.
        let gone = exits() || unsafe { ffi::Py_IsInitialized() } == 0;
        (!gone).then_some(pass)
    }

    /// Runs `work` with the interpreter, for which this thread waits if it must.
    ///
    /// The state is asked of CPython and not of PyO3, which counts its own calls on this thread: JAX lets go of
    /// the GIL while it destroys an array, perhaps below one of our own functions, and calls us from there.
    pub(crate) fn enter(&self, work: impl FnOnce(Python<'_>)) {
        // SAFETY: with a pass the interpreter is there and does not finalise, so the thread may attach; the token lives
        // only inside the pair of calls; `work` does not unwind.
        unsafe {
            let state = ffi::PyGILState_Ensure();
            work(Python::assume_attached());
            ffi::PyGILState_Release(state);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // The child of a fork counts from zero, also where the forking thread itself held a pass.
        if PASSES.fetch_sub(1, Ordering::SeqCst) == 0 {
            PASSES.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Whether the interpreter has begun to exit.
pub(crate) fn exits() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Whether this thread is one of Python's, with the interpreter at the moment or without.
///
/// A framework that gives up the GIL on such a thread expects others to take it, so here the GIL may be waited for. A thread
/// of the framework's own may hold a lock for which a thread waits that has the GIL.
pub(crate) fn is_pythons_thread() -> bool {
    // SAFETY: may be called from any thread, with or without the interpreter, as long as there is one.
    !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null()
}

/// Runs `work`, which waits for something; if this thread has the interpreter, others may have it meanwhile.
///
/// Memory is let go on any thread, with the interpreter or without, and a thread that does not have it must not ask for it
/// here: a framework may hold a lock of its own, for which a thread waits that has it.
pub(crate) fn without_interpreter(work: impl FnOnce()) {
    let Some(_pass) = Pass::get().filter(|_| has_interpreter()) else { return work() };
    // SAFETY: this thread has the interpreter, gives it up here and takes it back below. With a pass it does not begin to
    // finalise meanwhile; `work` does not unwind.
    unsafe {
        let state = ffi::PyEval_SaveThread();
        work();
        ffi::PyEval_RestoreThread(state);
    }
}

/// Whether this thread has the interpreter, as CPython sees it; no where that cannot be known.
///
/// The stable ABI has no such question. What is asked has been there under one name or the other since 3.5; it gives the
/// state of whichever thread has the interpreter (of this one alone since 3.12).
fn has_interpreter() -> bool {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static CURRENT: OnceLock<Option<Current>> = OnceLock::new();
    let current = CURRENT.get_or_init(|| {
        let names = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"];
        // SAFETY: strings, which are looked up in what the process has loaded.
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

/// Called by `atexit`, before the interpreter begins to finalise.
#[pyfunction]
fn interpreter_exits(py: Python<'_>) {
    later::release_waiting();
    EXITING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let begin = Instant::now();
        while PASSES.load(Ordering::SeqCst) != 0 && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    });
}

/// Called in the child of a fork: the threads that held passes are not there.
#[pyfunction]
fn child_begins() {
    PASSES.store(0, Ordering::SeqCst);
    later::child_begins();
}

/// Asks Python to tell us of its end, and of forks.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let exits = wrap_pyfunction!(interpreter_exits, module)?;
    py.import("atexit")?.call_method1("register", (exits,))?;
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("after_in_child", wrap_pyfunction!(child_begins, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&keywords))?;
    Ok(())
}
