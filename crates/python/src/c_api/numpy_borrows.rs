//! The table of borrows of rust-numpy.
//!
//! Extensions that use rust-numpy record their borrows of arrays in a table of their own, in a capsule on a module of NumPy. An array
//! that is borrowed in our table is borrowed there too, so that both kinds of extension see each other. Memory that NumPy shares with
//! another framework is in rust-numpy's table only if it was borrowed as an array.
//!
//! rust-numpy computes the key of a borrow from the array, at its beginning and at its end, and aborts if it does not find the key.
//! Python code can change the shape, the type or the memory of an array in between. The end of a borrow therefore compares the array
//! with the borrowed range, and passes a view of that range if they differ.

use super::entry::PendingException;
use crate::errors::{Result, fail};
use crate::frameworks::numpy::{self, ArrayRange};
use crate::interpreter::fork_lock;
use crate::interpreter::objects;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use ::numpy::{PyArray1, PyArrayMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::ffi::{CStr, c_int, c_void};
use tensorferry_core::borrow_table::{BorrowConflict, ElementRange};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

/// How rust-numpy finds the borrow of an array.
#[derive(Clone, Copy)]
pub(super) struct ArrayKey {
    /// The object at the end of the chain of its bases.
    root: *mut ffi::PyObject,
    /// Whether the rank is 0. rust-numpy gives such an array an empty range, which overlaps with no other, so that it is entered
    /// twice: as rust-numpy does, and as a view with one axis.
    is_scalar: bool,
    /// Whether the array itself has the borrowed range.
    is_exact: bool,
}

impl ArrayKey {
    /// The key for the borrow of a range; `None` if the object is not an array.
    #[inline(always)]
    pub(super) fn of(object: &Bound<'_, PyAny>, borrowed: &ElementRange) -> Result<Option<Self>> {
        let Some(ArrayRange { elements, root, is_scalar }) = numpy::range_of(object)? else {
            return Ok(None);
        };
        Ok(Some(Self { root, is_scalar, is_exact: elements.as_ref() == Some(borrowed) }))
    }

    /// Begins the borrow of a range, unless another one excludes it.
    #[inline(always)]
    pub(super) fn acquire(
        self,
        array: &Bound<'_, PyAny>,
        elements: &ElementRange,
        is_exclusive: bool,
    ) -> Result<Option<BorrowConflict>> {
        let table = NumpyBorrows::get(array.py())?;
        match self.is_exact {
            true => table.acquire(array, is_exclusive),
            false => self.acquire_views(array, table, elements, is_exclusive),
        }
    }

    /// Begins a borrow by views. rust-numpy would count strides of axes with one element, which mean nothing, or divide by a stride
    /// of 0.
    #[cold]
    fn acquire_views(
        &self,
        array: &Bound<'_, PyAny>,
        table: &NumpyBorrows,
        elements: &ElementRange,
        is_exclusive: bool,
    ) -> Result<Option<BorrowConflict>> {
        let view = view_of(array, elements, false)?;
        let scalar = if self.is_scalar { Some(view_of(array, elements, true)?) } else { None };
        let refused = table.acquire(&view, is_exclusive)?;
        let (None, Some(scalar)) = (refused, scalar) else { return Ok(refused) };
        let acquired = table.acquire(&scalar, is_exclusive);
        if !matches!(acquired, Ok(None)) {
            NumpyBorrows::release(array.py(), &view, is_exclusive);
        }
        acquired
    }
}

/// An array that is borrowed there.
pub(super) struct BorrowedArray {
    array: Py<PyAny>,
    /// The object at the end of the chain of its bases, if that is another one. The array may get another base meanwhile.
    root: Option<Py<PyAny>>,
    key: ArrayKey,
}

impl BorrowedArray {
    /// # Safety
    /// The key is that of the array, whose bases have not changed since.
    #[inline(always)]
    pub(super) unsafe fn new(array: &Bound<'_, PyAny>, key: ArrayKey) -> Self {
        // SAFETY: `from_borrowed_ptr` requires a live object: by the contract of this function, the array still holds it.
        let root = || unsafe { Bound::from_borrowed_ptr(array.py(), key.root) }.unbind();
        let root = (key.root != array.as_ptr()).then(root);
        Self { array: array.clone().unbind(), root, key }
    }

    /// Drops the references, of a borrow that has ended or has not begun there.
    #[inline(always)]
    pub(super) fn drop_refs(self, py: Python<'_>) {
        self.array.drop_ref(py);
        if let Some(root) = self.root {
            root.drop_ref(py);
        }
    }

    /// Ends the borrow of a range, and drops the reference.
    #[inline(always)]
    pub(super) fn release(self, py: Python<'_>, elements: &ElementRange, is_exclusive: bool) {
        let array = self.array.bind(py);
        match numpy::range_of(array) {
            Ok(Some(now)) if now.root == self.key.root && now.elements.as_ref() == Some(elements) => {
                NumpyBorrows::release(py, array, is_exclusive);
            }
            _ => self.release_views(py, elements, is_exclusive),
        }
        self.drop_refs(py);
    }

    /// Ends a borrow by views, for an array that was borrowed by views, or has changed since.
    #[cold]
    fn release_views(&self, py: Python<'_>, elements: &ElementRange, is_exclusive: bool) {
        // SAFETY: `save` requires the GIL, which the token proves.
        let _pending = unsafe { PendingException::save() };
        let root = self.root.as_ref().unwrap_or(&self.array).bind(py);
        for is_scalar in [false, true] {
            // Without memory for the view, or if an array without a base has got one, the entry stays: rust-numpy would not find it.
            if (self.key.is_scalar || !is_scalar)
                && let Ok(view) = view_of(root, elements, is_scalar)
                && numpy::range_of(&view)
                    .is_ok_and(|range| range.is_some_and(|range| range.root == self.key.root))
            {
                NumpyBorrows::release(py, &view, is_exclusive);
            }
        }
    }
}

/// A view that covers a range of the memory of an array, and that nobody else has. `base` is the array, or the end of the chain of its
/// bases. A scalar has no axes.
fn view_of<'py>(
    base: &Bound<'py, PyAny>,
    elements: &ElementRange,
    is_scalar: bool,
) -> Result<Bound<'py, PyAny>> {
    let dtype = match elements.item() {
        1 => DType::UInt8,
        2 => DType::UInt16,
        4 => DType::UInt32,
        8 => DType::UInt64,
        16 => DType::Complex128,
        item => {
            let fact = format!("the elements of the borrowed tensor have {item} bytes");
            return Err(fail(
                ErrorKind::InvalidTensor,
                fact,
                "borrow the tensor that was taken from the array",
            ));
        }
    };
    let (lengths, strides): (SmallVec<[i64; 4]>, SmallVec<[i64; 4]>) = elements.axes().unzip();
    let layout = match lengths.len() {
        0 if is_scalar => Layout::dense(dtype.size(), &[])?,
        0 => Layout::dense(dtype.size(), &[1])?,
        _ => Layout::strided(dtype.size(), &lengths, &strides)?,
    };
    let is_writable = numpy::memory_of(base).is_some_and(|memory| memory.writable);
    let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
    let data = std::ptr::with_exposed_provenance_mut(elements.address());
    let owner = Owner::object(base.clone().unbind());
    // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the range is that of elements of the array.
    // Nothing reads or writes memory through the view, so that the range may also be one that the array no longer has.
    let tensor = unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, access, owner) }?;
    numpy::write_array(base.py(), tensor)
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
    fn acquire(&self, array: &Bound<'_, PyAny>, is_exclusive: bool) -> Result<Option<BorrowConflict>> {
        let acquire = if is_exclusive { self.acquire_mut } else { self.acquire };
        // SAFETY: rust-numpy's function requires an array, as the caller has checked, and the GIL, which the `Bound` proves.
        match unsafe { acquire(self.flags, array.as_ptr()) } {
            0 => Ok(None),
            -2 => Err(fail(
                ErrorKind::InvalidArgument,
                "the array is read-only, and this call would write it",
                "pass a writable array",
            )),
            // A writer excludes a reader, and both exclude a writer.
            _ if is_exclusive => Ok(Some(BorrowConflict::Read)),
            _ => Ok(Some(BorrowConflict::Written)),
        }
    }

    /// Ends the borrow of an array with the same key.
    fn release(py: Python<'_>, view: &Bound<'_, PyAny>, is_exclusive: bool) {
        let Some(table) = NUMPY_BORROWS.get(py) else { return };
        // SAFETY: the pointer is valid, as in `get`. rust-numpy's functions require an array with the key of one that was acquired in
        // the same way: `BorrowedArray::release` has compared its range and the end of its bases.
        unsafe {
            let table = &*table.0;
            let release = if is_exclusive { table.release_mut } else { table.release };
            release(table.flags, view.as_ptr());
        }
    }
}
