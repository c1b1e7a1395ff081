//! `borrow` and `release`: the table of borrows, and that of rust-numpy.
//!
//! Extensions that use rust-numpy record their borrows of arrays in a table of their own, in a capsule on a module of NumPy. An array
//! that is borrowed here is borrowed there too, so that both kinds of extension see each other. Memory that NumPy shares with another
//! framework is in rust-numpy's table only if it was borrowed as an array.

use super::entry::{Step, enter};
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, fail};
use crate::frameworks::numpy;
use crate::interpreter::fork_lock;
use crate::interpreter::objects;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use ::numpy::{PyArray1, PyArrayMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensorferry_core::borrow_table::{BorrowConflict, BorrowTable, ElementRange};
use tensorferry_core::dlpack::abi::RawTensor;
use tensorferry_core::dlpack::borrow as describe;
use tensorferry_core::{Access, ByteOrder, Device, ErrorKind, Layout, Tensor};

/// What a borrow holds.
struct Held {
    /// The array that is borrowed in the table of rust-numpy, if any.
    array: Option<BorrowedArray>,
    /// The thread that began the borrow, which is the only one in the child of its fork.
    thread: libc::pthread_t,
}

/// An array that is borrowed in the table of rust-numpy.
///
/// rust-numpy computes the key of a borrow from the array, at its beginning and at its end, and aborts if it does not find the key.
/// Python code can change the shape, the type or the memory of an array in between.
struct BorrowedArray {
    array: Py<PyAny>,
    /// The description of the array at the beginning; `None` for a view that nobody else has.
    before: Option<Tensor<()>>,
}

/// The borrows of all extensions.
static BORROWS: Mutex<BorrowTable<Held>> = Mutex::new(BorrowTable::new());

/// Only threads with the GIL lock the table, and none runs Python code meanwhile, so that a fork never copies it locked.
fn borrows(_py: Python<'_>) -> MutexGuard<'static, BorrowTable<Held>> {
    BORROWS.lock().unwrap_or_else(PoisonError::into_inner)
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
    // SAFETY: `enter` requires the GIL, `borrow_tensor` a live object or null and a valid tensor: the contract of `borrow`.
    let begun = unsafe {
        enter(
            |py| match borrow_tensor(py, object, tensor, exclusive != 0) {
                Ok(identifier) => Step::Done(identifier),
                Err(failure) => Step::Slow(failure),
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
            |py| match borrows(py).release(borrow) {
                Some((is_exclusive, held)) => {
                    end(py, is_exclusive, held);
                    Step::Done(())
                }
                None => Step::Slow(()),
            },
            |_, ()| {
                let fact = format!("no borrow has the identifier {borrow}");
                Err(fail(ErrorKind::InvalidArgument, fact, "release each borrow once"))
            },
        )
    };
    if ended.is_some() { 0 } else { -1 }
}

/// An exception that was set when a function began, and is set again when it ends, instead of its own. Code that cleans up after an
/// error calls `release`.
struct PendingException {
    class: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    traceback: *mut ffi::PyObject,
}

impl PendingException {
    /// # Safety
    /// The thread has the GIL until the result is dropped.
    #[inline(always)]
    unsafe fn save() -> Option<Self> {
        let mut saved = Self { class: ptr::null_mut(), value: ptr::null_mut(), traceback: ptr::null_mut() };
        // SAFETY: both functions require the GIL, as the contract of this function says, and pointers to locals.
        unsafe {
            if ffi::PyErr_Occurred().is_null() {
                return None;
            }
            ffi::PyErr_Fetch(&raw mut saved.class, &raw mut saved.value, &raw mut saved.traceback);
        }
        Some(saved)
    }
}

impl Drop for PendingException {
    fn drop(&mut self) {
        // SAFETY: `PyErr_Restore` takes the references that `PyErr_Fetch` gave, once. The thread has the GIL by the contract of `save`.
        unsafe { ffi::PyErr_Restore(self.class, self.value, self.traceback) }
    }
}

/// Ends a borrow that is no longer in the table.
#[inline(always)]
fn end(py: Python<'_>, is_exclusive: bool, held: Held) {
    let Some(BorrowedArray { array, before }) = held.array else { return };
    match before.filter(|before| !numpy::has_layout(array.bind(py), before)) {
        None => NumpyBorrows::release(py, array.bind(py), is_exclusive),
        Some(before) => {
            // SAFETY: the tensor had elements, and was taken from the array.
            match unsafe { private_view(array.bind(py), &before) } {
                Ok(view) => NumpyBorrows::release(py, &view, is_exclusive),
                // Without memory for the view, the array stays borrowed there.
                Err(failure) => drop(failure),
            }
        }
    }
    array.drop_ref(py);
}

/// Called in the child of a fork: the borrows of other threads would never end.
pub(crate) fn after_fork_in_child(py: Python<'_>) {
    let ended = borrows(py).retain(|held| held.thread == current_thread());
    for (is_exclusive, held) in ended {
        end(py, is_exclusive, held);
    }
}

/// The calling thread, which keeps its identifier in the child of a fork.
#[inline(always)]
fn current_thread() -> libc::pthread_t {
    // SAFETY: the function only reads the thread's own identifier.
    unsafe { libc::pthread_self() }
}

/// Enters a borrow into both tables.
///
/// # Safety
/// `object` is null or a live object, from which `tensor`, a valid tensor, was taken.
#[inline(always)]
unsafe fn borrow_tensor(
    py: Python<'_>,
    object: *mut ffi::PyObject,
    tensor: *const RawTensor,
    is_exclusive: bool,
) -> Result<u64> {
    // SAFETY: `of_raw` requires a valid tensor, and `from_borrowed_ptr_or_opt` null or a live object: the contract of this function.
    let (elements, object) =
        unsafe { (ElementRange::of_raw(&*tensor), Bound::from_borrowed_ptr_or_opt(py, object)) };
    let thread = current_thread();
    if let Some(object) = &object
        && elements.is_some()
        && is_array(object)?
    {
        // SAFETY: `describe` requires shape and strides during the call: those of a valid tensor. Nothing uses the memory through the
        // result. `borrowed_array` requires a tensor with elements that was taken from the array. Both are the contract of this
        // function.
        let array = unsafe { borrowed_array(object, describe(tensor.read(), Access::ReadOnly, true, ())?) }?;
        let table = NumpyBorrows::get(py)?;
        let acquired = array.array.bind(py).clone();
        let held = Held { array: Some(array), thread };
        let identifier = borrows(py).borrow(elements, is_exclusive, held).map_err(conflict)?;
        if let Err(failure) = table.acquire(&acquired, is_exclusive) {
            let ended = borrows(py).release(identifier);
            drop(ended);
            return Err(failure);
        }
        return Ok(identifier);
    }
    borrows(py).borrow(elements, is_exclusive, Held { array: None, thread }).map_err(conflict)
}

/// The array for the table of rust-numpy: itself, or a view that nobody else has where rust-numpy would count strides of axes with
/// one element, which mean nothing, or divide by a stride of 0.
///
/// # Safety
/// The tensor has elements, and was taken from the array.
#[inline(always)]
unsafe fn borrowed_array(array: &Bound<'_, PyAny>, tensor: Tensor<()>) -> Result<BorrowedArray> {
    let mut axes = tensor.layout().shape().iter().zip(tensor.layout().strides());
    if axes.all(|(&length, &stride)| length > 1 && stride != 0) && numpy::has_layout(array, &tensor) {
        return Ok(BorrowedArray { array: array.clone().unbind(), before: Some(tensor) });
    }
    // SAFETY: the contract of this function.
    let view = unsafe { private_view(array, &tensor) }?;
    Ok(BorrowedArray { array: view.unbind(), before: None })
}

/// A view of an array, without the axes of one element and those of stride 0. It has the same key as the array had when the tensor was
/// taken from it.
///
/// # Safety
/// The tensor has elements, and was taken from the array.
#[cold]
unsafe fn private_view<'py>(array: &Bound<'py, PyAny>, tensor: &Tensor<()>) -> Result<Bound<'py, PyAny>> {
    let (layout, dtype) = (tensor.layout(), tensor.dtype());
    let axes = layout.shape().iter().zip(layout.strides());
    let axes = axes.filter(|&(&length, &stride)| length > 1 && stride != 0);
    let axes = axes.map(|(&length, &stride)| (length, stride));
    let (lengths, strides): (SmallVec<[i64; 4]>, SmallVec<[i64; 4]>) = axes.unzip();
    let layout = Layout::strided(layout.item(), &lengths, &strides)?;
    let layout = if layout.rank() == 0 { Layout::dense(layout.item(), &[1])? } else { layout };
    let is_writable = numpy::memory_of(array).is_some_and(|memory| memory.writable);
    let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
    let owner = Owner::object(array.clone().unbind());
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the elements are some of those of the tensor, and
    // the array keeps them. Nothing reads or writes them through the view.
    let tensor =
        unsafe { Tensor::new(tensor.data(), dtype, layout, Device::CPU, ByteOrder::Native, access, owner) }?;
    numpy::write_array(array.py(), tensor)
}

/// Whether the object is an array of NumPy, which is not imported for the answer.
#[inline(always)]
fn is_array(object: &Bound<'_, PyAny>) -> Result<bool> {
    match recognise(object)?.kind() {
        Recognised::Tensor(Builtin::Numpy, _) => numpy::is_array(object),
        _ => Ok(false),
    }
}

#[cold]
fn conflict(conflict: BorrowConflict) -> Failure {
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

/// The C struct in the capsule of rust-numpy, version 1. Later versions append fields.
#[repr(C)]
struct NumpyBorrows {
    version: u64,
    flags: *mut c_void,
    acquire: unsafe extern "C" fn(*mut c_void, *mut ffi::PyObject) -> c_int,
    acquire_mut: unsafe extern "C" fn(*mut c_void, *mut ffi::PyObject) -> c_int,
    release: unsafe extern "C" fn(*mut c_void, *mut ffi::PyObject),
    release_mut: unsafe extern "C" fn(*mut c_void, *mut ffi::PyObject),
}

/// A pointer into the capsule, which is never freed.
#[derive(Clone, Copy)]
struct TablePointer(*const NumpyBorrows);

// SAFETY: the pointer is only used with the GIL held, by functions that take a token.
unsafe impl Send for TablePointer {}
// SAFETY: as above.
unsafe impl Sync for TablePointer {}

static NUMPY_BORROWS: ForkSafeOnce<TablePointer> = ForkSafeOnce::new();

const CAPSULE_NAME: &CStr = c"_RUST_NUMPY_BORROW_CHECKING_API";

impl NumpyBorrows {
    /// The table. The first call creates it, unless an extension has.
    #[inline(always)]
    fn get(py: Python<'_>) -> Result<&'static Self> {
        let table = NUMPY_BORROWS.get_or_try_init(py, || Python::attach(Self::find))?;
        // SAFETY: the pointer is that of a capsule of rust-numpy, whose struct has these fields from version 1 on, which `find` has
        // compared. `find` leaks a reference to the capsule.
        Ok(unsafe { &*table.0 })
    }

    #[cold]
    fn find(py: Python<'_>) -> Result<TablePointer> {
        let unusable = |fact: &str| {
            fail(
                ErrorKind::FrameworkFailed,
                fact.to_owned(),
                "check that NumPy and the extensions are up to date",
            )
        };
        // The borrow of an array creates the capsule. It sets a cell of PyO3's, which a fork must not copy.
        fork_lock::without_fork(py, || drop(PyArray1::<u8>::zeros(py, 1, false).readonly()))?;
        let module = match py.import("numpy._core.multiarray") {
            Ok(module) => module,
            Err(_) => py.import("numpy.core.multiarray")?,
        };
        let capsule = module.getattr(CAPSULE_NAME.to_string_lossy().as_ref())?;
        let table = objects::capsule_pointer(&capsule, CAPSULE_NAME)
            .ok_or_else(|| unusable("the borrows of rust-numpy are not in a capsule of their name"))?
            .cast::<Self>();
        // SAFETY: every version of the struct begins with its version.
        if unsafe { (&raw const (*table.as_ptr()).version).read() } < 1 {
            return Err(unusable("the borrows of rust-numpy have an unknown version"));
        }
        std::mem::forget(capsule);
        Ok(TablePointer(table.as_ptr()))
    }

    #[inline(always)]
    fn acquire(&self, array: &Bound<'_, PyAny>, is_exclusive: bool) -> Result<()> {
        let acquire = if is_exclusive { self.acquire_mut } else { self.acquire };
        // SAFETY: rust-numpy's function requires an array, as the caller has checked, and the GIL, which the `Bound` proves.
        match unsafe { acquire(self.flags, array.as_ptr()) } {
            0 => Ok(()),
            -2 => Err(fail(
                ErrorKind::InvalidArgument,
                "the array is read-only, and this call would write it",
                "pass a writable array",
            )),
            // A writer excludes a reader, and both exclude a writer.
            _ if is_exclusive => Err(conflict(BorrowConflict::Read)),
            _ => Err(conflict(BorrowConflict::Written)),
        }
    }

    /// Ends the borrow of a view.
    fn release(py: Python<'_>, view: &Bound<'_, PyAny>, is_exclusive: bool) {
        let Some(table) = NUMPY_BORROWS.get(py) else { return };
        // SAFETY: the pointer is valid, as in `get`. rust-numpy's functions require an array that was acquired in the same way and has
        // not changed: the table of borrows holds an array only if `acquire` succeeded, and `end` has compared it, or has made a view
        // like it.
        unsafe {
            let table = &*table.0;
            let release = if is_exclusive { table.release_mut } else { table.release };
            release(table.flags, view.as_ptr());
        }
    }
}
