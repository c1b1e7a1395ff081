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
use ::numpy::{PyArray1, PyArrayMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensorferry_core::borrow_table::{BorrowConflict, BorrowTable, ElementRange};
use tensorferry_core::dlpack::abi::RawTensor;
use tensorferry_core::dlpack::borrow as describe;
use tensorferry_core::{Access, ErrorKind};

/// The borrows of all extensions. Each holds the array that is borrowed in the table of rust-numpy, if any.
static BORROWS: Mutex<BorrowTable<Option<Py<PyAny>>>> = Mutex::new(BorrowTable::new());

/// Only threads with the GIL lock the table, and none runs Python code meanwhile, so that a fork never copies it locked.
fn borrows(_py: Python<'_>) -> MutexGuard<'static, BorrowTable<Option<Py<PyAny>>>> {
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
    // SAFETY: `enter` requires the GIL: the contract of this function.
    let ended = unsafe {
        enter(
            |py| {
                let Some((is_exclusive, array)) = borrows(py).release(borrow) else {
                    return Step::Slow(());
                };
                if let Some(array) = array {
                    NumpyBorrows::release(py, &array, is_exclusive);
                    array.drop_ref(py);
                }
                Step::Done(())
            },
            |_, ()| {
                let fact = format!("no borrow has the identifier {borrow}");
                Err(fail(ErrorKind::InvalidArgument, fact, "release each borrow once"))
            },
        )
    };
    if ended.is_some() { 0 } else { -1 }
}

/// Enters a borrow into both tables.
///
/// # Safety
/// `object` is null or a live object, and `tensor` points to a valid tensor.
#[inline(always)]
unsafe fn borrow_tensor(
    py: Python<'_>,
    object: *mut ffi::PyObject,
    tensor: *const RawTensor,
    is_exclusive: bool,
) -> Result<u64> {
    // SAFETY: `describe` requires shape and strides during the call: those of a valid tensor, by the contract of this function. Nothing
    // uses the memory through the result. `from_borrowed_ptr_or_opt` requires null or a live object.
    let (elements, object) = unsafe {
        let described = describe(tensor.read(), Access::ReadOnly, true, ())?;
        (ElementRange::of(&described), Bound::from_borrowed_ptr_or_opt(py, object))
    };
    let array = match object {
        Some(object) if is_array(&object)? => Some(object),
        _ => None,
    };
    let numpy_borrows = array.as_ref().map(|_| NumpyBorrows::get(py)).transpose()?;
    let payload = array.as_ref().map(|array| array.clone().unbind());
    let identifier = borrows(py).borrow(elements, is_exclusive, payload).map_err(conflict)?;
    if let (Some(table), Some(array)) = (numpy_borrows, &array)
        && let Err(failure) = table.acquire(array, is_exclusive)
    {
        let ended = borrows(py).release(identifier);
        drop(ended);
        return Err(failure);
    }
    Ok(identifier)
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
            "an extension is reading the memory of this tensor, and this call would write it"
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
            _ => Err(conflict(BorrowConflict::Written)),
        }
    }

    /// Ends the borrow of an array.
    fn release(py: Python<'_>, array: &Py<PyAny>, is_exclusive: bool) {
        let Some(table) = NUMPY_BORROWS.get(py) else { return };
        // SAFETY: the pointer is valid, as in `get`. rust-numpy's functions require an array that was acquired in the same way: the
        // table of borrows holds an array only if `acquire` succeeded.
        unsafe {
            let table = &*table.0;
            let release = if is_exclusive { table.release_mut } else { table.release };
            release(table.flags, array.as_ptr());
        }
    }
}
