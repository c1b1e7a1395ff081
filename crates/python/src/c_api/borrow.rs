//! `borrow` and `release`, and borrows that last as long as a managed tensor.

use super::entry::{PendingException, Step, enter};
use super::numpy_borrows::{ArrayKey, BorrowedArray};
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::conversion::source::{Source, SourceMemory};
use crate::errors::{Failure, Result, fail};
use crate::interpreter::guard::InterpreterGuard;
use crate::interpreter::owner::{self, GilBound, NeedsGil, Owner};
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::{RefCell, RefMut};
use std::ffi::{c_int, c_void};
use tensorferry_core::borrow_table::{Borrow, BorrowConflict, BorrowTable, ElementRange};
use tensorferry_core::dlpack::abi::RawTensor;
use tensorferry_core::{ErrorKind, Tensor};

/// What a borrow holds.
struct Held {
    /// The array that is borrowed in the table of rust-numpy, if any.
    array: Option<BorrowedArray>,
    /// The thread that began the borrow, which is the only one in the child of its fork.
    thread: libc::pthread_t,
}

/// The borrows of all extensions. The GIL guards them: a lock would cost four atomic operations for each view.
static BORROWS: Borrows = Borrows(RefCell::new(BorrowTable::new()));

struct Borrows(RefCell<BorrowTable<Held>>);

// SAFETY: sharing requires that no two threads access the `RefCell` at the same time. `borrows` alone accesses it, and takes a
// `Python` token, so its thread has the GIL: the module declares that it needs the GIL, and refuses subinterpreters. Its callers
// keep the result for one call of the table, which runs no code that could release the GIL. A fork never copies it in use for the
// same reason.
unsafe impl Sync for Borrows {}

#[inline(always)]
fn borrows(_py: Python<'_>) -> RefMut<'static, BorrowTable<Held>> {
    BORROWS.0.borrow_mut()
}

/// The function of the table.
///
/// # Safety
/// The thread has the GIL. `object` is null or a live object, `tensor` points to a valid tensor, and `borrow` can be written.
pub(super) unsafe extern "C" fn borrow(
    object: *mut c_void,
    tensor: *const RawTensor,
    exclusive: c_int,
    borrow: *mut u64,
) -> c_int {
    let object = object.cast::<ffi::PyObject>();
    // SAFETY: `enter` requires the GIL, `of_raw` a valid tensor, and `from_borrowed_ptr_or_opt` a live object or null: the contract of
    // `borrow`.
    let begun = unsafe {
        enter(
            |py| {
                if (*tensor).ndim > 0 && ((*tensor).shape.is_null() || (*tensor).strides.is_null()) {
                    return Step::Slow(no_strides());
                }
                let elements = ElementRange::of_raw(&*tensor);
                let object = Bound::from_borrowed_ptr_or_opt(py, object);
                match array_of(object.as_ref()).and_then(|array| begin(py, array, elements, exclusive != 0)) {
                    Ok(identifier) => Step::Done(identifier),
                    Err(failure) => Step::Slow(failure),
                }
            },
            |_, failure| Err(failure),
        )
    };
    match begun {
        // SAFETY: `borrow` can be written, by the contract of this function.
        Some(identifier) => unsafe {
            borrow.write(identifier);
            0
        },
        None => -1,
    }
}

/// The function of the table.
///
/// # Safety
/// The thread has the GIL.
pub(super) unsafe extern "C" fn release(borrow: u64) -> c_int {
    // SAFETY: `enter` and `PendingException` require the GIL: the contract of this function.
    let ended = unsafe {
        let _pending = PendingException::save();
        enter(
            |py| if end(py, borrow) { Step::Done(()) } else { Step::Slow(()) },
            |_, ()| {
                let fact = format!("no borrow has the identifier {borrow}");
                Err(fail(ErrorKind::InvalidArgument, fact, "release each borrow once"))
            },
        )
    };
    if ended.is_some() { 0 } else { -1 }
}

/// Called in the child of a fork: the borrows of other threads would never end.
pub(crate) fn after_fork_in_child(py: Python<'_>) {
    let ended = borrows(py).retain(|held| held.thread == current_thread());
    ended.into_iter().for_each(|ended| end_in_numpy(py, ended));
}

/// The calling thread, which keeps its identifier in the child of a fork.
#[inline(always)]
fn current_thread() -> libc::pthread_t {
    // SAFETY: the function only reads the thread's own identifier.
    unsafe { libc::pthread_self() }
}

/// The object, if it is a tensor of NumPy, which is not imported for the answer.
#[inline(always)]
pub(super) fn array_of<'a, 'py>(
    object: Option<&'a Bound<'py, PyAny>>,
) -> Result<Option<&'a Bound<'py, PyAny>>> {
    let Some(object) = object else { return Ok(None) };
    let is_array = matches!(recognise(object)?.kind(), Recognised::Tensor(Builtin::Numpy, _));
    Ok(is_array.then_some(object))
}

/// Borrows the memory of a tensor. `array` is the tensor of NumPy that it was read from, if it was one.
#[inline(always)]
pub(super) fn begin_of(
    py: Python<'_>,
    tensor: &Tensor<Owner>,
    array: Option<&Bound<'_, PyAny>>,
    is_exclusive: bool,
) -> Result<u64> {
    begin(py, array, ElementRange::of(tensor), is_exclusive)
}

/// Enters a borrow into both tables. `array` is the tensor of NumPy that the elements were read from, if it was one.
#[inline(always)]
fn begin(
    py: Python<'_>,
    array: Option<&Bound<'_, PyAny>>,
    elements: Option<ElementRange>,
    is_exclusive: bool,
) -> Result<u64> {
    let key = match (array, &elements) {
        (Some(array), Some(elements)) => ArrayKey::of(array, elements)?,
        _ => None,
    };
    let borrowed = array.zip(key);
    let held = || Held {
        // SAFETY: `new` requires the key of the array as it is: it was made above, and no Python code has run since.
        array: borrowed.map(|(array, key)| unsafe { BorrowedArray::new(array, key) }),
        thread: current_thread(),
    };
    let identifier = borrows(py).borrow(elements, is_exclusive, held).map_err(refusal)?;
    let (Some((array, key)), Some(elements)) = (borrowed, &elements) else { return Ok(identifier) };
    let failure = match key.acquire(array, elements, is_exclusive) {
        Ok(None) => return Ok(identifier),
        Ok(Some(conflict)) => refusal(conflict),
        Err(failure) => failure,
    };
    let ended = borrows(py).release(identifier);
    if let Some(array) = ended.and_then(|ended| ended.payload.array) {
        array.drop_refs(py);
    }
    Err(failure)
}

/// Ends a borrow in both tables. False if none has this identifier.
#[inline(always)]
fn end(py: Python<'_>, identifier: u64) -> bool {
    let ended = borrows(py).release(identifier);
    ended.map(|ended| end_in_numpy(py, ended)).is_some()
}

/// Ends a borrow that is no longer in our table.
#[inline(always)]
fn end_in_numpy(py: Python<'_>, ended: Borrow<Held>) {
    if let (Some(array), Some(elements)) = (ended.payload.array, &ended.elements) {
        array.release(py, elements, ended.is_exclusive);
    }
}

#[cold]
fn no_strides() -> Failure {
    fail(
        ErrorKind::InvalidTensor,
        "the tensor has no shape or no strides",
        "borrow a tensor that take returned, or set both",
    )
}

#[cold]
fn refusal(conflict: BorrowConflict) -> Failure {
    let fact = match conflict {
        BorrowConflict::Written => "an extension is writing the memory of this tensor",
        BorrowConflict::Read => {
            "an extension is using the memory of this tensor, and this call would write it"
        }
    };
    let hint =
        "pass tensors that do not share memory, such as a copy, or wait until the other call has returned";
    fail(ErrorKind::BorrowConflict, fact, hint)
}

/// A borrow for reading while a source is copied: another extension may be writing the memory.
pub(super) struct BorrowDuringCopy<'py> {
    borrow: u64,
    py: Python<'py>,
}

impl<'py> BorrowDuringCopy<'py> {
    /// Borrows the memory of a source, which was read from `object`; `None` if the copy reads no tensor's memory.
    pub(super) fn of(object: &Bound<'py, PyAny>, source: &Source<'_>) -> Result<Option<Self>> {
        let elements = match &source.memory {
            SourceMemory::InPlace(tensor) => ElementRange::of(tensor),
            SourceMemory::Pending { reads, .. } => reads.as_deref().copied(),
        };
        let Some(elements) = elements else { return Ok(None) };
        let py = object.py();
        let borrow = begin(py, array_of(Some(object))?, Some(elements), false)?;
        Ok(Some(Self { borrow, py }))
    }
}

impl Drop for BorrowDuringCopy<'_> {
    fn drop(&mut self) {
        end(self.py, self.borrow);
    }
}

/// An owner, and the borrow of its memory. The borrow ends first.
pub(super) type BorrowedOwner = GilBound<BorrowedMemory>;

pub(super) struct BorrowedMemory {
    borrow: u64,
    owner: Owner,
}

impl BorrowedMemory {
    #[inline(always)]
    pub(super) fn owner(borrow: u64, owner: Owner) -> BorrowedOwner {
        GilBound::new(Self { borrow, owner })
    }
}

impl NeedsGil for BorrowedMemory {
    #[inline]
    fn drop_attached(self, py: Python<'_>) {
        // In the child of a fork, the borrow of another thread has ended.
        end(py, self.borrow);
        self.owner.release(py);
    }

    fn defer(self, guard: &InterpreterGuard) {
        owner::defer(guard, Owner::other(Box::new(GilBound::new(self))));
    }
}
