//! [`Owner`] keeps the memory of a tensor alive and releases it on any thread.
//!
//! Frameworks release tensors on any thread, with or without the GIL, in any order, and some of them after the interpreter
//! has exited. An owner that needs the interpreter is therefore released only while the interpreter runs. Owners that are
//! still alive when it begins to exit are leaked; the system frees their memory.
//!
//! A drop on a thread without the GIL is deferred (see `deferred_drop`). A framework that holds no lock while it releases a
//! tensor gets an [`AttachingOwner`] instead, which waits for the GIL.

use crate::interpreter::deferred_drop::{self, Queues, may_drop_paddle_tensors};
use crate::interpreter::guard::{self, AttachedGuard, InterpreterGuard};
use crate::interpreter::objects;
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use tensorferry_arrow::ArrayOwner;
use tensorferry_core::Tensor;
use tensorferry_core::aligned;
use tensorferry_core::dlpack::ManagedOwner;
use tensorferry_core::drop_queue::DropQueue;
use tensorferry_core::host::HostBlock;
use tensorferry_core::read_only_loans::ReadOnlyLoan;
use tensorferry_cuda::{Gpu, StreamBlock, SyncPoint};
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

/// Defers the drop of an owner. The calling thread may hold any lock but ours.
pub(crate) fn defer(guard: &InterpreterGuard, owner: Owner) {
    ANY_THREAD.push(owner);
    deferred_drop::schedule(guard, &QUEUES);
}

/// Drops the deferred owners that this thread may drop.
#[inline]
pub(crate) fn drop_deferred(py: Python<'_>) {
    if !(ANY_THREAD.is_empty() && PADDLE_THREADS.is_empty()) {
        drop_deferred_now(py);
    }
}

#[cold]
fn drop_deferred_now(py: Python<'_>) {
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
    /// A managed tensor of DLPack, and its producer, if that may own the memory alone.
    Managed(
        #[expect(dead_code, reason = "held for its drop")] ManagedTensor,
        #[expect(dead_code, reason = "held for its drop")] Option<Object>,
    ),
    /// A managed tensor of Paddle.
    Paddle(#[expect(dead_code, reason = "held for its drop")] PaddleTensor),
    /// A managed tensor of an extension module.
    Wrapped(#[expect(dead_code, reason = "held for its drop")] WrappedTensor),
    /// An array of the Arrow C data interface.
    Arrow(#[expect(dead_code, reason = "held for its drop")] ArrowMemory),
    /// Memory that other processes may use too.
    Shared(#[expect(dead_code, reason = "held for its drop")] InterprocessOwner),
    /// A tensor in a mapped file.
    Mapped(#[expect(dead_code, reason = "held for its drop")] MappedTensor),
    /// A block that we allocated.
    Block(#[expect(dead_code, reason = "held for its drop")] HostBlock),
    /// A block of GPU memory that we allocated.
    Device(#[expect(dead_code, reason = "held for its drop")] Box<StreamBlock>),
    /// Another owner, whose drop is deferred.
    Deferred(#[expect(dead_code, reason = "held for its drop")] Deferred),
    /// Another owner, of GPU memory that two frameworks use on different streams.
    StreamOrdered(#[expect(dead_code, reason = "held for its drop")] Box<StreamOrderedOwner>),
    /// Another owner, of memory that is aligned by construction.
    Aligned(Box<(aligned::AlignedRange, Owner)>),
    /// Another owner, of memory on a read-only loan.
    ReadOnly(#[expect(dead_code, reason = "held for its drop")] Box<ReadOnlyOwner>),
    /// None: the owner was moved out ([`Owner::take`]).
    Moved,
    /// An owner that only the user of its memory knows.
    Other(#[expect(dead_code, reason = "held for its drop")] Box<dyn Send>),
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

/// A value that must be dropped with the GIL held.
pub(crate) trait NeedsGil: Sized {
    /// Whether a thread that has the GIL may drop it now.
    fn may_drop_now() -> bool {
        true
    }

    /// Drops the value.
    fn drop_attached(self, py: Python<'_>);

    /// Puts the value on a drop queue.
    fn defer(self, guard: &InterpreterGuard);
}

/// Holds a value until it can be dropped: at once on a thread that has the GIL, deferred on any other, and never once the
/// interpreter exits.
pub(crate) struct GilBound<T: NeedsGil>(ManuallyDrop<T>);

impl<T: NeedsGil> GilBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// The value.
    pub(crate) fn get(&self) -> &T {
        &self.0
    }

    fn take(self) -> T {
        let mut held = ManuallyDrop::new(self);
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again: `held` is not dropped, and this function owns
        // it.
        unsafe { ManuallyDrop::take(&mut held.0) }
    }
}

impl<T: NeedsGil> Drop for GilBound<T> {
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again: `drop` runs once and calls `take` once, and nothing
        // reads a field after it.
        let take = |field: &mut ManuallyDrop<T>| unsafe { ManuallyDrop::take(field) };
        if let Some(guard) = AttachedGuard::get()
            && T::may_drop_now()
        {
            let py = guard.python();
            return objects::without_pending_exception(py, || take(&mut self.0).drop_attached(py));
        }
        if let Some(guard) = InterpreterGuard::get() {
            take(&mut self.0).defer(&guard);
        }
    }
}

/// An owner and the read-only loan of its memory. The loan ends first.
pub(crate) type ReadOnlyOwner = GilBound<(ReadOnlyLoan, Owner)>;

impl NeedsGil for (ReadOnlyLoan, Owner) {
    /// Only threads with the GIL lock the table of loans, so that a fork never copies it locked.
    fn drop_attached(self, _py: Python<'_>) {
        let (loan, owner) = self;
        drop(loan);
        drop(owner);
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::ReadOnly(Box::new(GilBound::new(self))));
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
        Self::Object(GilBound::new(object))
    }

    /// The owner of a managed tensor.
    pub(super) fn managed(managed: ManagedOwner) -> Self {
        Self::Managed(GilBound::new(managed), None)
    }

    /// The owner of a managed tensor, which keeps its producer alive too.
    pub(super) fn produced(managed: ManagedOwner, producer: Py<PyAny>) -> Self {
        Self::Managed(GilBound::new(managed), Some(GilBound::new(producer)))
    }

    /// The owner of a managed tensor of an extension module.
    pub(crate) fn wrapped(managed: Arc<LentTensor>) -> Self {
        Self::Wrapped(GilBound::new(managed))
    }

    /// The owner of an array of the Arrow C data interface.
    pub(crate) fn arrow(array: ArrayOwner) -> Self {
        Self::Arrow(GilBound::new(array))
    }

    /// The owner of a managed tensor of Paddle.
    pub(super) fn paddle(managed: ManagedOwner) -> Self {
        Self::Paddle(GilBound::new(PaddleManaged(managed)))
    }

    /// The owner of memory that other processes may use too.
    pub(crate) fn shared(memory: impl InterprocessMemory + 'static) -> Self {
        Self::Shared(InterprocessOwner(Some(Box::new(memory))))
    }

    /// Moves the owner out.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Moved)
    }

    /// An owner of any other type.
    pub(crate) fn other(owner: Box<dyn Send>) -> Self {
        Self::Other(owner)
    }

    /// The same owner, with a read-only loan that lasts as long as it lives.
    pub(super) fn read_only(self, loan: ReadOnlyLoan) -> Self {
        Self::ReadOnly(Box::new(GilBound::new((loan, self))))
    }

    /// The same owner, with its memory recorded as aligned by construction for as long as it lives.
    pub(super) fn aligned(self, record: aligned::AlignedRange) -> Self {
        Self::Aligned(Box::new((record, self)))
    }

    /// The same owner of GPU memory. Its drop makes `next_use` wait for the work at `reusable_after`.
    pub(super) fn stream_ordered(
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
    pub(super) fn deferred(self) -> Self {
        if self.needs_no_gil() { self } else { Self::Deferred(Deferred(Some(Box::new(self)))) }
    }

    /// Whether the release needs neither the GIL nor a framework.
    fn needs_no_gil(&self) -> bool {
        match self {
            Self::Block(_) | Self::Mapped(_) | Self::Device(_) => true,
            Self::Aligned(inner) => inner.1.needs_no_gil(),
            _ => false,
        }
    }

    /// Releases the memory on a thread that is known to have the GIL.
    pub(crate) fn release(self, py: Python<'_>) {
        match self {
            Self::Object(object) => object.take().drop_ref(py),
            Self::Buffer(buffer) => buffer.0.take().drop_attached(py),
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
pub(crate) type ManagedTensor = GilBound<ManagedOwner>;

impl NeedsGil for ManagedOwner {
    fn drop_attached(self, _py: Python<'_>) {
        drop(self);
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::managed(self));
    }
}

/// A managed tensor of an extension module, which keeps it until a framework has a tensor over its memory.
///
/// The last reference releases the managed tensor, if it was given up by then.
pub(crate) struct LentTensor(Mutex<LentState>);

enum LentState {
    /// The extension releases it.
    Lent,
    /// It was given up.
    GivenUp(#[expect(dead_code, reason = "held for its drop")] ManagedOwner),
}

impl LentTensor {
    /// A managed tensor that the extension keeps.
    pub(crate) fn lent() -> Arc<Self> {
        Arc::new(Self(Mutex::new(LentState::Lent)))
    }

    /// Takes the managed tensor from the extension.
    pub(crate) fn give_up(&self, managed: ManagedOwner) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = LentState::GivenUp(managed);
    }
}

/// The owner of such a managed tensor. Its deleter may be that of a framework, so it runs with the GIL held.
pub(crate) type WrappedTensor = GilBound<Arc<LentTensor>>;

impl NeedsGil for Arc<LentTensor> {
    fn drop_attached(self, _py: Python<'_>) {
        drop(self);
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::wrapped(self));
    }
}

/// An array of the Arrow C data interface. Its release callback may be that of a Python object.
pub(crate) type ArrowMemory = GilBound<ArrayOwner>;

impl NeedsGil for ArrayOwner {
    fn drop_attached(self, _py: Python<'_>) {
        drop(self);
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::arrow(self));
    }
}

/// A managed tensor of Paddle. Its deleter may take the lock of Paddle's table of deleters, which our threads must not take.
pub(crate) type PaddleTensor = GilBound<PaddleManaged>;

pub(crate) struct PaddleManaged(ManagedOwner);

impl NeedsGil for PaddleManaged {
    fn may_drop_now() -> bool {
        may_drop_paddle_tensors()
    }

    fn drop_attached(self, _py: Python<'_>) {
        drop(self.0);
    }

    /// Defers the drop to a Python thread that uses Paddle.
    fn defer(self, _guard: &InterpreterGuard) {
        PADDLE_THREADS.push(Owner::paddle(self.0));
        deferred_drop::wake_drop_thread(&QUEUES);
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
            Some(guard) => defer(&guard, *owner),
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
        // SAFETY: `map_owner` requires that the new owner keeps the memory valid: it holds the first owner until its own drop.
        unsafe { tensor.map_owner(|owner| Self(ManuallyDrop::new(owner))) }
    }
}

impl Drop for AttachingOwner {
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again: `drop` runs once, and nothing reads a field
        // after it.
        let owner = unsafe { ManuallyDrop::take(&mut self.0) };
        if owner.needs_no_gil() {
            return drop(owner);
        }
        if let Some(guard) = AttachedGuard::get() {
            return owner.release(guard.python());
        }
        match InterpreterGuard::get() {
            Some(guard) if guard::knows_thread() => guard.attach_again(|py| owner.release(py)),
            _ => drop(owner),
        }
    }
}

/// A reference to a Python object, which any thread may drop.
pub(crate) type Object = GilBound<Py<PyAny>>;

impl NeedsGil for Py<PyAny> {
    fn drop_attached(self, py: Python<'_>) {
        self.drop_ref(py);
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::object(self));
    }
}

/// An exported Python buffer: while it lives, a bytearray cannot be resized nor a map closed.
pub(crate) struct Buffer(GilBound<ExportedView>);

/// A struct that `PyObject_GetBuffer` has filled and that is not released yet.
struct ExportedView(Box<ffi::Py_buffer>);

// SAFETY: moving the struct moves addresses. The exporter leaves the fields unchanged until the release, which `drop_attached` does
// on a thread that has the GIL.
unsafe impl Send for ExportedView {}

impl NeedsGil for ExportedView {
    fn drop_attached(mut self, _py: Python<'_>) {
        // SAFETY: `PyBuffer_Release` requires an attached thread, which the token proves, and a struct that `PyObject_GetBuffer`
        // filled, once: `Buffer::get` alone makes an `ExportedView`, and this function consumes it.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }

    fn defer(self, guard: &InterpreterGuard) {
        defer(guard, Owner::Buffer(Buffer(GilBound::new(self))));
    }
}

impl Buffer {
    /// Exports the buffer of `object`, whatever its layout, for reading.
    pub(crate) fn export(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::get(object).ok_or_else(|| PyErr::fetch(object.py()))
    }

    /// As [`Buffer::export`], without the error.
    pub(crate) fn try_export(object: &Bound<'_, PyAny>) -> Option<Self> {
        let buffer = Self::get(object);
        if buffer.is_none() {
            objects::clear_exception(object.py());
        }
        buffer
    }

    /// The buffer, or `None` with Python's error set.
    #[inline]
    fn get(object: &Bound<'_, PyAny>) -> Option<Self> {
        // One field is not zero, because an allocation of zeroed memory is slower.
        let mut view = Box::new(ffi::Py_buffer { readonly: 1, ..ffi::Py_buffer::new() });
        // SAFETY: `PyObject_GetBuffer` requires a live object, an attached thread, which the `Bound` proves, and a writable
        // struct, which `view` is.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        (status == 0).then(|| Self(GilBound::new(ExportedView(view))))
    }

    /// The object that exported the buffer.
    pub(crate) fn exporter<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: `from_borrowed_ptr_or_opt` requires null or a live object: `obj` is null, or a reference that the export holds
        // until its release, which consumes `self`.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, self.view().obj) }
    }

    /// Whether its bytes follow each other in memory.
    pub(crate) fn is_contiguous(&self) -> bool {
        // SAFETY: `PyBuffer_IsContiguous` requires a struct that `PyObject_GetBuffer` has filled, which `view` returns.
        unsafe { ffi::PyBuffer_IsContiguous(self.view(), b'C' as _) == 1 }
    }

    /// The exported buffer.
    pub(crate) fn view(&self) -> &ffi::Py_buffer {
        &self.0.get().0
    }
}

/// The name of the capsules that hold owners.
const CAPSULE_NAME: &std::ffi::CStr = c"tensorferry.owner";

/// The owner in an object, if it is a capsule of ours.
pub(crate) fn owner_in_capsule<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Owner> {
    let owner = objects::capsule_pointer(object, CAPSULE_NAME)?.cast::<Owner>();
    // SAFETY: `as_ref` requires an `Owner` that lives and is not changed for `'a`. `owner_capsule` alone makes capsules of this
    // name, and no code changes the owner in one. `object` keeps the capsule alive, and the capsule its box.
    Some(unsafe { owner.as_ref() })
}

/// A capsule that holds an owner. A capsule is the smallest Python object that can.
fn owner_capsule(py: Python<'_>, owner: Owner) -> PyResult<Py<PyAny>> {
    unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
        // SAFETY: Python calls a destructor once, with the dying capsule, on an attached thread, as `assume_attached` requires.
        // `PyCapsule_GetPointer` returns the pointer of `Box::into_raw` below, which `from_raw` requires, because no code renames
        // the capsule. The token ends with this call.
        unsafe {
            let owner = ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<Owner>();
            if !owner.is_null() && !guard::exits() {
                Box::from_raw(owner).release(Python::assume_attached());
            }
        }
    }

    let owner = Box::into_raw(Box::new(owner));
    // SAFETY: `PyCapsule_New` requires a pointer that is not null and a name that outlives the capsule: a box, and a constant. It
    // returns a new reference, or null with an exception set. Without a capsule no destructor runs, so that `from_raw` takes the
    // box back once.
    unsafe {
        let capsule = ffi::PyCapsule_New(owner.cast(), CAPSULE_NAME.as_ptr(), Some(release));
        Bound::from_owned_ptr_or_err(py, capsule)
            .map(Bound::unbind)
            .inspect_err(|_| drop(Box::from_raw(owner)))
    }
}
