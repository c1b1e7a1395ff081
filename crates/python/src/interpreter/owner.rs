//! What keeps the memory of a tensor alive, and how it is let go.
//!
//! Frameworks release what they hold on any thread, with or without the interpreter, in any order, and
//! some of them after the interpreter has gone. What may need the interpreter is therefore given back only
//! while it runs; from the moment it begins to exit, what is still held is left to the system.
//!
//! A drop on a thread that does not have the GIL is deferred (see `deferred_drop`). Frameworks that hold no lock then get an
//! [`AttachingOwner`].

use crate::interpreter::deferred_drop::{self, Queues, may_drop_paddle_tensors};
use crate::interpreter::guard::{self, InterpreterGuard};
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use tensorferry_core::Tensor;
use tensorferry_core::aligned;
use tensorferry_core::dlpack::ManagedOwner;
use tensorferry_core::drop_queue::DropQueue;
use tensorferry_core::host::HostBlock;
use tensorferry_core::read_only_loans::ReadOnlyLoan;
use tensorferry_cuda::{Gpu, SyncPoint};
use tensorferry_files::MappedTensor;

/// Deferred drops of owners of every kind.
static ANY_THREAD: DropQueue<Owner> = DropQueue::new();

/// Deferred drops of managed tensors of Paddle, for Python threads that use Paddle.
static PADDLE_THREADS: DropQueue<Owner> = DropQueue::new();

static QUEUES: Queues = Queues {
    are_empty: || ANY_THREAD.is_empty() && PADDLE_THREADS.is_empty(),
    wait_for_paddle_thread: || !PADDLE_THREADS.is_empty(),
    drop_deferred,
};

/// Defers the drop of an owner. The caller has an interpreter guard; its thread may hold any lock but ours.
fn defer(owner: Owner) {
    ANY_THREAD.push(owner);
    deferred_drop::schedule(&QUEUES);
}

/// Defers the drop of an owner to a Python thread that uses Paddle. The caller has an interpreter guard.
fn defer_to_paddle_threads(owner: Owner) {
    PADDLE_THREADS.push(owner);
    deferred_drop::wake_drop_thread(&QUEUES);
}

/// Drops the deferred owners that this thread may drop. Called with the GIL held.
#[inline]
pub(crate) fn drop_deferred() {
    // Nearly always both are empty.
    if !(ANY_THREAD.is_empty() && PADDLE_THREADS.is_empty()) {
        drop_deferred_now();
    }
}

#[cold]
fn drop_deferred_now() {
    // SAFETY: the callers have the GIL: Python called them, or they attached this thread.
    let py = unsafe { Python::assume_attached() };
    deferred_drop::drop_for_others(|may_drop_paddle_tensors| {
        ANY_THREAD.take().for_each(|owner| owner.release(py));
        if may_drop_paddle_tensors {
            PADDLE_THREADS.take().for_each(|owner| owner.release(py));
        }
    });
}

/// Called in the child of a fork. The queued owners belong to the parent.
pub(crate) fn after_fork_in_child() {
    ANY_THREAD.abandon();
    PADDLE_THREADS.abandon();
    deferred_drop::after_fork_in_child();
}

/// Keeps the memory of one tensor alive.
pub(crate) enum Owner {
    /// A Python object.
    Object(Object),
    /// An exported Python buffer.
    Buffer(Buffer),
    /// What a framework handed over by DLPack.
    ManagedOwner(#[expect(dead_code, reason = "held for its drop")] Foreign),
    /// A managed tensor of Paddle.
    Paddle(#[expect(dead_code, reason = "held for its drop")] PaddleTensor),
    /// Memory that other processes have too, or may have.
    Shared(#[expect(dead_code, reason = "held for its drop")] Lent),
    /// A part of a file.
    MappedTensor(#[expect(dead_code, reason = "held for its drop")] MappedTensor),
    /// A block of our own.
    Block(#[expect(dead_code, reason = "held for its drop")] HostBlock),
    /// Another owner, whose drop is deferred.
    Deferred(#[expect(dead_code, reason = "held for its drop")] Deferred),
    /// Another owner, of GPU memory that two frameworks work on in different streams.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Box<Borrowed>),
    /// Another owner, of memory that is known to be aligned by construction.
    Aligned(Box<(aligned::Mark, Owner)>),
    /// Another owner whose memory is on loan as read-only.
    Frozen(#[expect(dead_code, reason = "held for its drop")] Box<Loan>),
}

/// Memory that other processes have too, or may have.
pub(crate) trait Lend: Send {
    /// Whether to let go of it now may mean to wait for a GPU.
    fn waits(&self) -> bool;
}

/// Such memory; whoever else wants the interpreter has it while a GPU is waited for.
pub(crate) struct Lent(Option<Box<dyn Lend>>);

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take_if(|memory| memory.waits()) {
            guard::without_interpreter(move || drop(memory));
        }
    }
}

/// An owner and the mark that its memory is frozen. The mark goes first.
pub(crate) struct Loan(ManuallyDrop<(ReadOnlyLoan, Owner)>);

impl Drop for Loan {
    fn drop(&mut self) {
        // The table of marks is only locked by threads that hold the interpreter, so that a fork never copies it locked.
        let now = |(mark, owner), _: Python<'_>| {
            drop(mark);
            drop(owner);
        };
        drop_with_gil(&mut self.0, now, |both| Owner::Frozen(Box::new(Self(ManuallyDrop::new(both)))));
    }
}

/// Memory on loan between two ends that queue work in different places.
pub(crate) struct Borrowed {
    owner: Option<Owner>,
    gpu: &'static Gpu,
    /// The borrower's work, which must be done first.
    gives: SyncPoint,
    /// The lender's, which waits.
    takes: SyncPoint,
    /// What keeps their streams alive.
    _keepers: [Option<Owner>; 2],
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !guard::exits() {
            // SAFETY: the streams are kept, by their frameworks or below.
            let ordered = unsafe {
                // The lender's stream would become part of the capture, and its end would fail.
                !self.gpu.is_captured(self.gives).unwrap_or(true)
                    && self.gpu.order(self.gives, self.takes).is_ok()
            };
            // Memory that could not be ordered (a graph is being captured, or the device is lost) is not given back:
            // somebody may still read it.
            if !ordered {
                std::mem::forget(self.owner.take());
            }
        }
        drop(self.owner.take());
    }
}

impl Owner {
    /// Keeps a Python object.
    pub(crate) fn object(object: Py<PyAny>) -> Self {
        Self::Object(Object(ManuallyDrop::new(object)))
    }

    /// Keeps what a framework handed over.
    pub(crate) fn managed(managed: ManagedOwner) -> Self {
        Self::ManagedOwner(Foreign(ManuallyDrop::new(managed)))
    }

    /// Keeps what Paddle handed over.
    pub(crate) fn paddle(managed: ManagedOwner) -> Self {
        Self::Paddle(PaddleTensor(ManuallyDrop::new(managed)))
    }

    /// Keeps memory that other processes have too, or may have.
    pub(crate) fn shared(memory: impl Lend + 'static) -> Self {
        Self::Shared(Lent(Some(Box::new(memory))))
    }

    /// The same owner, with its memory marked as frozen for as long as it lives.
    pub(crate) fn read_only(self, mark: ReadOnlyLoan) -> Self {
        Self::Frozen(Box::new(Loan(ManuallyDrop::new((mark, self)))))
    }

    /// The same owner, with its memory known to be aligned by construction for as long as it lives.
    pub(crate) fn aligned(self, mark: aligned::Mark) -> Self {
        Self::Aligned(Box::new((mark, self)))
    }

    /// The same owner of GPU memory: before it is let go, what takes it back waits for what used it.
    pub(crate) fn borrowed(
        self,
        gpu: &'static Gpu,
        gives: SyncPoint,
        takes: SyncPoint,
        keepers: [Option<Owner>; 2],
    ) -> Self {
        Self::Borrowed(Box::new(Borrowed { owner: Some(self), gpu, gives, takes, _keepers: keepers }))
    }

    /// The same owner, for a framework that holds a lock while it releases memory. Blocks and maps are released by the
    /// system alone; shared memory may keep another owner.
    pub(crate) fn deferred(self) -> Self {
        if self.needs_no_gil() { self } else { Self::Deferred(Deferred(Some(Box::new(self)))) }
    }

    /// Whether the system alone releases the memory.
    fn needs_no_gil(&self) -> bool {
        match self {
            Self::Block(_) | Self::MappedTensor(_) => true,
            Self::Aligned(inner) => inner.1.needs_no_gil(),
            _ => false,
        }
    }

    /// Releases on a thread that has the GIL, which need not be asked for again.
    pub(crate) fn release(self, py: Python<'_>) {
        match self {
            Self::Object(object) => object.take().drop_ref(py),
            Self::Buffer(buffer) => buffer.release(py),
            other => drop(other),
        }
    }

    /// The owner as a Python object, for frameworks that keep one beside their own memory.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Object(object) => Ok(object.take()),
            other => keeper(py, other),
        }
    }
}

/// A managed tensor that a framework handed over. Its deleter may take a lock of the framework's and then want the GIL, so it
/// runs with the GIL, as when the framework's own tensors die.
pub(crate) struct Foreign(ManuallyDrop<ManagedOwner>);

impl Drop for Foreign {
    fn drop(&mut self) {
        let now = |managed, _: Python<'_>| drop(managed);
        drop_with_gil(&mut self.0, now, |managed| Owner::ManagedOwner(Self(ManuallyDrop::new(managed))));
    }
}

/// A managed tensor of Paddle. Its deleter may take the lock of Paddle's table of deleters, which threads of ours must not.
pub(crate) struct PaddleTensor(ManuallyDrop<ManagedOwner>);

impl Drop for PaddleTensor {
    fn drop(&mut self) {
        let Some(_guard) = InterpreterGuard::get() else { return };
        // SAFETY: taken in `drop`, once.
        let managed = unsafe { ManuallyDrop::take(&mut self.0) };
        if guard::has_gil() && may_drop_paddle_tensors() {
            drop(managed);
        } else {
            defer_to_paddle_threads(Owner::paddle(managed));
        }
    }
}

/// Drops what needs the GIL: now on a thread that has it, deferred on any other, and not at all once the interpreter exits.
/// For use in `drop`, once.
fn drop_with_gil<T>(
    thing: &mut ManuallyDrop<T>,
    now: impl FnOnce(T, Python<'_>),
    owner: impl FnOnce(T) -> Owner,
) {
    let Some(_guard) = InterpreterGuard::get() else { return };
    // SAFETY: called by `drop`, so it is taken once and not used again.
    let thing = unsafe { ManuallyDrop::take(thing) };
    if guard::has_gil() {
        // SAFETY: this thread has the GIL, and `now` returns before anything else can take it away for good.
        now(thing, unsafe { Python::assume_attached() });
    } else {
        defer(owner(thing));
    }
}

/// An owner whose drop is deferred on every thread.
///
/// Paddle holds a lock while it releases imported memory; a release that led back to a Paddle tensor would wait for that lock
/// for ever.
pub(crate) struct Deferred(Option<Box<Owner>>);

impl Drop for Deferred {
    fn drop(&mut self) {
        let Some(owner) = self.0.take() else { return };
        match InterpreterGuard::get() {
            Some(_guard) => defer(*owner),
            None => std::mem::forget(owner),
        }
    }
}

/// An owner for a framework that may give up the GIL while it releases a tensor, and holds no lock then: PyTorch and JAX. On a
/// thread that runs Python code the drop takes the GIL back, so that memory is released with the tensor.
pub(crate) struct AttachingOwner(ManuallyDrop<Owner>);

impl AttachingOwner {
    /// The tensor under such an owner.
    #[inline]
    pub(crate) fn of(tensor: Tensor<Owner>) -> Tensor<Self> {
        // SAFETY: the new owner holds the first one until its own drop.
        unsafe { tensor.map_owner(|owner| Self(ManuallyDrop::new(owner))) }
    }
}

impl Drop for AttachingOwner {
    fn drop(&mut self) {
        // SAFETY: taken in `drop`, once.
        let owner = unsafe { ManuallyDrop::take(&mut self.0) };
        if owner.needs_no_gil() {
            return drop(owner);
        }
        match InterpreterGuard::get() {
            Some(guard) if guard::has_gil() => {
                // SAFETY: this thread has the GIL.
                owner.release(unsafe { Python::assume_attached() });
                drop(guard);
            }
            Some(guard) if guard::knows_thread() => guard.attach_again(|py| owner.release(py)),
            _ => drop(owner),
        }
    }
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
        let now = |object: Py<PyAny>, py: Python<'_>| object.drop_ref(py);
        drop_with_gil(&mut self.0, now, Owner::object);
    }
}

/// An exported Python buffer: while it lives, a bytearray cannot be resized nor a map closed.
pub(crate) struct Buffer(ManuallyDrop<Box<ffi::Py_buffer>>);

// SAFETY: the struct is released once, with the interpreter attached; the fields are not changed meanwhile.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Exports the buffer of `object`, whatever its layout, for reading.
    pub(crate) fn export(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::get(object).ok_or_else(|| PyErr::fetch(object.py()))
    }

    /// The same, where it is no matter why there is none.
    pub(crate) fn try_export(object: &Bound<'_, PyAny>) -> Option<Self> {
        let buffer = Self::get(object);
        if buffer.is_none() {
            // SAFETY: the interpreter is attached.
            unsafe { ffi::PyErr_Clear() };
        }
        buffer
    }

    /// The buffer; without one, Python's error is set.
    #[inline]
    fn get(object: &Bound<'_, PyAny>) -> Option<Self> {
        // One field that is not zero: memory that must be all zeros comes by a slower road.
        let mut view = Box::new(ffi::Py_buffer { readonly: 1, ..ffi::Py_buffer::new() });
        // SAFETY: the object is alive and the struct is ours to fill.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        (status == 0).then(|| Self(ManuallyDrop::new(view)))
    }

    fn release(self, py: Python<'_>) {
        let mut buffer = ManuallyDrop::new(self);
        // SAFETY: taken out once, from what is not dropped.
        let mut view = unsafe { ManuallyDrop::take(&mut buffer.0) };
        end_export(&mut view, py);
    }

    /// The object that exported the buffer.
    pub(crate) fn exporter<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: null, or a reference that the export holds.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, self.0.obj) }
    }

    /// What was exported.
    pub(crate) fn view(&self) -> &ffi::Py_buffer {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let now = |mut view: Box<_>, py: Python<'_>| end_export(&mut view, py);
        drop_with_gil(&mut self.0, now, |view| Owner::Buffer(Self(ManuallyDrop::new(view))));
    }
}

fn end_export(view: &mut ffi::Py_buffer, _py: Python<'_>) {
    // SAFETY: filled by `PyObject_GetBuffer`; the interpreter is attached. Python marks what has ended, and does nothing twice.
    unsafe { ffi::PyBuffer_Release(view) };
}

/// The name of the capsules that hold owners.
const KEEPER: &std::ffi::CStr = c"tensorferry.owner";

/// The owner that an object holds, if it is a capsule of ours.
pub(crate) fn kept_by<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Owner> {
    // SAFETY: a capsule of this name is made in `keeper` alone; it holds the owner for as long as it lives, and nobody
    // changes the owner.
    unsafe {
        let ours = ffi::PyCapsule_IsValid(object.as_ptr(), KEEPER.as_ptr()) == 1;
        if !ours {
            return None;
        }
        ffi::PyCapsule_GetPointer(object.as_ptr(), KEEPER.as_ptr()).cast::<Owner>().as_ref()
    }
}

/// A Python object that holds an owner: a capsule, which is the smallest there is.
fn keeper(py: Python<'_>, owner: Owner) -> PyResult<Py<PyAny>> {
    unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
        // SAFETY: Python passes the capsule that dies, with the GIL held; its pointer is the box of below, and nobody
        // renames it.
        unsafe {
            let owner = ffi::PyCapsule_GetPointer(capsule, KEEPER.as_ptr()).cast::<Owner>();
            if !owner.is_null() && !guard::exits() {
                Box::from_raw(owner).release(Python::assume_attached());
            }
        }
    }

    let owner = Box::into_raw(Box::new(owner));
    // SAFETY: the pointer is not null, the name lives for ever, the destructor takes the box back. If no capsule
    // could be made, the box is still ours.
    unsafe {
        let capsule = ffi::PyCapsule_New(owner.cast(), KEEPER.as_ptr(), Some(release));
        Bound::from_owned_ptr_or_err(py, capsule)
            .map(Bound::unbind)
            .inspect_err(|_| drop(Box::from_raw(owner)))
    }
}
