//! What keeps the memory of a tensor alive, and how it is let go.
//!
//! Frameworks release what they hold on any thread, with or without the interpreter, in any order, and
//! some of them after the interpreter has gone. A reference to a Python object is therefore given back
//! only while the interpreter runs; from the moment it begins to exit, what is still held is left to the
//! system. (Attaching a thread to an interpreter that is finalising would end or hang that thread.)

use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tensorferry_core::dlpack::Managed;
use tensorferry_core::frozen::Mark;
use tensorferry_core::host::HostBlock;

static EXITING: AtomicBool = AtomicBool::new(false);

/// Called by `atexit`, before the interpreter begins to finalise.
#[pyfunction]
pub(crate) fn _interpreter_exits() {
    EXITING.store(true, Ordering::Release);
}

/// Keeps the memory of one tensor alive.
pub(crate) enum Owner {
    /// A Python object.
    Object(Object),
    /// An exported Python buffer.
    Buffer(#[expect(dead_code, reason = "held for its drop")] Buffer),
    /// What a framework handed over by DLPack.
    Managed(#[expect(dead_code, reason = "held for its drop")] Managed),
    /// A block of our own.
    Block(#[expect(dead_code, reason = "held for its drop")] HostBlock),
    /// Another owner, released a little later and from the interpreter.
    Deferred(#[expect(dead_code, reason = "held for its drop")] Deferred),
    /// Another owner whose memory is on loan as read-only.
    Frozen(#[expect(dead_code, reason = "held for its drop")] Box<Loan>),
}

/// An owner and the mark that its memory is frozen. The mark goes first.
pub(crate) struct Loan {
    _mark: MarkHolder,
    _owner: Owner,
}

struct MarkHolder(ManuallyDrop<Mark>);

impl Owner {
    /// Keeps a Python object.
    pub(crate) fn object(object: Py<PyAny>) -> Self {
        Self::Object(Object(ManuallyDrop::new(object)))
    }

    /// The same owner, with its memory marked as frozen for as long as it lives.
    pub(crate) fn frozen(self, mark: Mark) -> Self {
        Self::Frozen(Box::new(Loan { _mark: MarkHolder(ManuallyDrop::new(mark)), _owner: self }))
    }

    /// The same owner, for a framework that must not be called back while it lets go.
    pub(crate) fn deferred(self) -> Self {
        match self {
            block @ Self::Block(_) => block,
            other => Self::Deferred(Deferred(Some(Box::new(other)))),
        }
    }

    /// The owner as a Python object, for frameworks that keep one beside their own memory.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Object(object) => Ok(object.take()),
            other => Ok(Py::new(py, Keeper { _owner: other })?.into_any()),
        }
    }
}

/// Runs `release` with the interpreter, or not at all once it exits.
///
/// The state is asked of CPython and not of PyO3, which counts its own calls on this thread: JAX lets go of
/// the GIL while it destroys an array, perhaps below one of our own functions, and calls us from there.
fn with_interpreter(release: impl FnOnce(Python<'_>)) {
    // SAFETY: the interpreter is initialised and has not begun to exit, so the thread may attach; the token lives
    // only inside the pair of calls; `release` does not unwind.
    unsafe {
        if EXITING.load(Ordering::Acquire) || ffi::Py_IsInitialized() == 0 {
            return;
        }
        let state = ffi::PyGILState_Ensure();
        release(Python::assume_attached());
        ffi::PyGILState_Release(state);
    }
}

/// Owners that were let go and wait for the interpreter.
static WAITING: Mutex<Vec<Owner>> = Mutex::new(Vec::new());

/// An owner whose release is put off until the interpreter's main loop comes round, or the next call of ours.
///
/// Paddle holds a lock while it lets go of memory; if that release led back to a Paddle tensor, or waited for the
/// GIL while a thread that has it waits for Paddle's lock, nobody would ever go on.
pub(crate) struct Deferred(Option<Box<Owner>>);

impl Drop for Deferred {
    fn drop(&mut self) {
        let Some(owner) = self.0.take() else { return };
        if EXITING.load(Ordering::Acquire) {
            std::mem::forget(owner);
            return;
        }
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(*owner);
        // SAFETY: the function may be called from any thread, with or without the GIL. When the queue is full the
        // calls in it are due anyway, and ours come with the next one.
        unsafe { ffi::Py_AddPendingCall(Some(release_waiting), std::ptr::null_mut()) };
    }
}

extern "C" fn release_waiting(_: *mut std::ffi::c_void) -> std::ffi::c_int {
    release_deferred();
    0
}

/// Releases what waits. Called with the interpreter attached.
pub(crate) fn release_deferred() {
    let waiting = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    drop(waiting);
}

/// A reference to a Python object, given back on whichever thread drops it.
pub(crate) struct Object(ManuallyDrop<Py<PyAny>>);

impl Object {
    /// The object.
    pub(crate) fn get(&self) -> &Py<PyAny> {
        &self.0
    }

    fn take(mut self) -> Py<PyAny> {
        // SAFETY: `self` is forgotten right after, so the reference is taken once.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        object
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        with_interpreter(|py| {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::take(&mut self.0) }.drop_ref(py);
        });
    }
}

impl Drop for MarkHolder {
    fn drop(&mut self) {
        // The table of marks is only locked by threads that hold the interpreter, so that a fork never
        // copies it locked.
        with_interpreter(|_| {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        });
    }
}

/// An exported Python buffer: while it lives, a bytearray cannot be resized nor a map closed.
pub(crate) struct Buffer(Box<ffi::Py_buffer>);

// SAFETY: the struct is released once, with the interpreter attached; the fields are not changed meanwhile.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Exports the buffer of `object`, whatever its layout, for reading.
    pub(crate) fn export(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive and the struct is ours to fill.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        if status == 0 { Ok(Self(view)) } else { Err(PyErr::fetch(object.py())) }
    }

    /// What was exported.
    pub(crate) fn view(&self) -> &ffi::Py_buffer {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        with_interpreter(|_| {
            // SAFETY: filled by `PyObject_GetBuffer` and released once, with the interpreter attached.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// An owner that NumPy keeps as the base of an array.
#[pyclass(frozen, module = "tensorferry._native", name = "_Keeper")]
struct Keeper {
    _owner: Owner,
}

// SAFETY: the owner is never looked at through a shared reference, only dropped.
unsafe impl Sync for Keeper {}
