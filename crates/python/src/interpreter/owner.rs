//! [`Owner`] keeps the memory of a tensor alive and releases it on any thread.
//!
//! Frameworks release tensors on any thread, with or without the GIL, in any order, and some of them after the interpreter
//! has exited. An owner that needs the interpreter is therefore released only while the interpreter runs. Owners that are
//! still alive when it begins to exit are leaked; the system frees their memory.
//!
//! A drop on a thread without the GIL is deferred (see `deferred_drop`). A framework that holds no lock while it releases a
//! tensor gets an [`AttachingOwner`] instead, which waits for the GIL.

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

/// The drop queue of owners of every kind.
static ANY_THREAD: DropQueue<Owner> = DropQueue::new();

/// The drop queue of Paddle's managed tensors, for Python threads that use Paddle.
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
    /// A managed tensor of DLPack.
    Managed(#[expect(dead_code, reason = "held for its drop")] ManagedTensor),
    /// A managed tensor of Paddle.
    Paddle(#[expect(dead_code, reason = "held for its drop")] PaddleTensor),
    /// Memory that other processes may use too.
    Shared(#[expect(dead_code, reason = "held for its drop")] InterprocessOwner),
    /// A tensor in a mapped file.
    Mapped(#[expect(dead_code, reason = "held for its drop")] MappedTensor),
    /// A block that we allocated.
    Block(#[expect(dead_code, reason = "held for its drop")] HostBlock),
    /// Another owner, whose drop is deferred.
    Deferred(#[expect(dead_code, reason = "held for its drop")] Deferred),
    /// Another owner, of GPU memory that two frameworks use on different streams.
    StreamOrdered(#[expect(dead_code, reason = "held for its drop")] Box<StreamOrderedOwner>),
    /// Another owner, of memory that is aligned by construction.
    Aligned(Box<(aligned::AlignedRange, Owner)>),
    /// Another owner, of memory on a read-only loan.
    ReadOnly(#[expect(dead_code, reason = "held for its drop")] Box<ReadOnlyOwner>),
}

/// Memory that other processes may use too.
pub(crate) trait InterprocessMemory: Send {
    /// Whether a drop may wait for a GPU now.
    fn drop_may_block(&self) -> bool;
}

/// The owner of such memory. Its drop releases the GIL while it waits for a GPU.
pub(crate) struct InterprocessOwner(Option<Box<dyn InterprocessMemory>>);

impl Drop for InterprocessOwner {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take_if(|memory| memory.drop_may_block()) {
            guard::without_interpreter(move || drop(memory));
        }
    }
}

/// An owner and the read-only loan of its memory. The loan ends first.
pub(crate) struct ReadOnlyOwner(ManuallyDrop<(ReadOnlyLoan, Owner)>);

impl Drop for ReadOnlyOwner {
    fn drop(&mut self) {
        // Only threads with the GIL lock the table of loans, so that a fork never copies it locked.
        let now = |(loan, owner), _: Python<'_>| {
            drop(loan);
            drop(owner);
        };
        drop_with_gil(&mut self.0, now, |both| Owner::ReadOnly(Box::new(Self(ManuallyDrop::new(both)))));
    }
}

/// The owner of GPU memory that a source lends to a target on another stream. Its drop orders the source's next use of the
/// memory after the target's work.
pub(crate) struct StreamOrderedOwner {
    owner: Option<Owner>,
    gpu: &'static Gpu,
    /// The memory is reusable after the target's work queued here.
    reusable_after: SyncPoint,
    /// The source uses the memory next on this sync point.
    next_use: SyncPoint,
    /// Keep the streams alive.
    _stream_owners: [Option<Owner>; 2],
}

impl Drop for StreamOrderedOwner {
    fn drop(&mut self) {
        if !guard::exits() {
            // During a capture, the source's stream would join the capture, and the end of the capture would fail.
            let ordered = !self.gpu.is_captured(self.reusable_after).unwrap_or(true)
                && self.gpu.order(self.reusable_after, self.next_use).is_ok();
            // Memory whose reuse cannot be ordered is leaked: the target may still read it.
            if !ordered {
                std::mem::forget(self.owner.take());
            }
        }
        drop(self.owner.take());
    }
}

impl Owner {
    /// The owner of a Python object.
    pub(crate) fn object(object: Py<PyAny>) -> Self {
        Self::Object(Object(ManuallyDrop::new(object)))
    }

    /// The owner of a managed tensor.
    pub(crate) fn managed(managed: ManagedOwner) -> Self {
        Self::Managed(ManagedTensor(ManuallyDrop::new(managed)))
    }

    /// The owner of a managed tensor of Paddle.
    pub(crate) fn paddle(managed: ManagedOwner) -> Self {
        Self::Paddle(PaddleTensor(ManuallyDrop::new(managed)))
    }

    /// The owner of memory that other processes may use too.
    pub(crate) fn shared(memory: impl InterprocessMemory + 'static) -> Self {
        Self::Shared(InterprocessOwner(Some(Box::new(memory))))
    }

    /// The same owner, with a read-only loan that lasts as long as it lives.
    pub(crate) fn read_only(self, loan: ReadOnlyLoan) -> Self {
        Self::ReadOnly(Box::new(ReadOnlyOwner(ManuallyDrop::new((loan, self)))))
    }

    /// The same owner, with its memory recorded as aligned by construction for as long as it lives.
    pub(crate) fn aligned(self, record: aligned::AlignedRange) -> Self {
        Self::Aligned(Box::new((record, self)))
    }

    /// The same owner of GPU memory. Its drop makes `next_use` wait for the work at `reusable_after`.
    pub(crate) fn stream_ordered(
        self,
        gpu: &'static Gpu,
        reusable_after: SyncPoint,
        next_use: SyncPoint,
        stream_owners: [Option<Owner>; 2],
    ) -> Self {
        Self::StreamOrdered(Box::new(StreamOrderedOwner {
            owner: Some(self),
            gpu,
            reusable_after,
            next_use,
            _stream_owners: stream_owners,
        }))
    }

    /// The same owner, for a framework that holds a lock while it releases memory. Blocks and maps are not deferred, because
    /// their release needs neither the GIL nor a lock of a framework. Shared memory may hold another owner.
    pub(crate) fn deferred(self) -> Self {
        if self.needs_no_gil() { self } else { Self::Deferred(Deferred(Some(Box::new(self)))) }
    }

    /// Whether the release needs neither the GIL nor a framework.
    fn needs_no_gil(&self) -> bool {
        match self {
            Self::Block(_) | Self::Mapped(_) => true,
            Self::Aligned(inner) => inner.1.needs_no_gil(),
            _ => false,
        }
    }

    /// Releases the memory on a thread that is known to have the GIL.
    pub(crate) fn release(self, py: Python<'_>) {
        match self {
            Self::Object(object) => object.take().drop_ref(py),
            Self::Buffer(buffer) => buffer.release(py),
            other => drop(other),
        }
    }

    /// The owner as a Python object, for frameworks that keep a reference to one.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Object(object) => Ok(object.take()),
            other => owner_capsule(py, other),
        }
    }
}

/// A managed tensor of DLPack. Its deleter may take a lock of the framework and then wait for the GIL, so it runs with the
/// GIL held, as when the framework's own tensors die.
pub(crate) struct ManagedTensor(ManuallyDrop<ManagedOwner>);

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        let now = |managed, _: Python<'_>| drop(managed);
        drop_with_gil(&mut self.0, now, |managed| Owner::Managed(Self(ManuallyDrop::new(managed))));
    }
}

/// A managed tensor of Paddle. Its deleter may take the lock of Paddle's table of deleters, which our threads must not take.
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

/// Drops a value that needs the GIL: at once on a thread that has it, deferred on any other, and never once the interpreter
/// exits. Called once, by `drop`.
fn drop_with_gil<T>(
    value: &mut ManuallyDrop<T>,
    now: impl FnOnce(T, Python<'_>),
    owner: impl FnOnce(T) -> Owner,
) {
    let Some(_guard) = InterpreterGuard::get() else { return };
    // SAFETY: called by `drop`, so it is taken once and not used again.
    let value = unsafe { ManuallyDrop::take(value) };
    if guard::has_gil() {
        // SAFETY: this thread has the GIL, and `now` returns before anything else can take it away for good.
        now(value, unsafe { Python::assume_attached() });
    } else {
        defer(owner(value));
    }
}

/// An owner whose drop is deferred on every thread.
///
/// Paddle holds a lock while it releases imported memory. A release that leads back to a Paddle tensor would deadlock on that
/// lock.
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

/// An owner for PyTorch and JAX, which may release the GIL while they release a tensor, and hold no lock then. On a thread
/// that runs Python code the drop takes the GIL again, so that memory is released together with the tensor.
pub(crate) struct AttachingOwner(ManuallyDrop<Owner>);

impl AttachingOwner {
    /// The tensor with such an owner.
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

/// A reference to a Python object, which any thread may drop.
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

    /// As [`Buffer::export`], without the error.
    pub(crate) fn try_export(object: &Bound<'_, PyAny>) -> Option<Self> {
        let buffer = Self::get(object);
        if buffer.is_none() {
            // SAFETY: the interpreter is attached.
            unsafe { ffi::PyErr_Clear() };
        }
        buffer
    }

    /// The buffer, or `None` with Python's error set.
    #[inline]
    fn get(object: &Bound<'_, PyAny>) -> Option<Self> {
        // One field is not zero, because an allocation of zeroed memory is slower.
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

    /// The exported buffer.
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
const CAPSULE_NAME: &std::ffi::CStr = c"tensorferry.owner";

/// The owner in an object, if it is a capsule of ours.
pub(crate) fn owner_in_capsule<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Owner> {
    // SAFETY: a capsule of this name is made in `owner_capsule` alone; it holds the owner for as long as it lives, and no code
    // changes the owner.
    unsafe {
        let is_ours = ffi::PyCapsule_IsValid(object.as_ptr(), CAPSULE_NAME.as_ptr()) == 1;
        if !is_ours {
            return None;
        }
        ffi::PyCapsule_GetPointer(object.as_ptr(), CAPSULE_NAME.as_ptr()).cast::<Owner>().as_ref()
    }
}

/// A capsule that holds an owner. A capsule is the smallest Python object that can.
fn owner_capsule(py: Python<'_>, owner: Owner) -> PyResult<Py<PyAny>> {
    unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
        // SAFETY: Python passes the capsule that dies, with the GIL held; its pointer is the box from below, and no code
        // renames it.
        unsafe {
            let owner = ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<Owner>();
            if !owner.is_null() && !guard::exits() {
                Box::from_raw(owner).release(Python::assume_attached());
            }
        }
    }

    let owner = Box::into_raw(Box::new(owner));
    // SAFETY: the pointer is not null, the name lives for ever, the destructor takes the box back. If no capsule
    // could be made, the box is still ours.
    unsafe {
        let capsule = ffi::PyCapsule_New(owner.cast(), CAPSULE_NAME.as_ptr(), Some(release));
        Bound::from_owned_ptr_or_err(py, capsule)
            .map(Bound::unbind)
            .inspect_err(|_| drop(Box::from_raw(owner)))
    }
}
