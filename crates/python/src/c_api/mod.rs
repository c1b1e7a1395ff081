//! The C table for extension modules: `tensorferry._C_API`, described by `tensorferry.h`.
//!
//! The table gives C code what `to` does in Python: any tensor in, as a managed tensor of DLPack, and a managed tensor out, as a
//! tensor of any framework. The table of borrows lets extensions that do not know each other exclude conflicting accesses.

pub(crate) mod borrow;
mod entry;
mod numpy_borrows;
mod request;
mod take;
mod wrap;

use pyo3::ffi;
use pyo3::prelude::*;
use tensorferry_core::c_api::{Api, CAPSULE_NAME, MAJOR, MINOR};

static TABLE: Api = Api {
    major: MAJOR,
    minor: MINOR,
    size: size_of::<Api>(),
    take: take::take,
    wrap: wrap::wrap,
    borrow: borrow::borrow,
    release: borrow::release,
};

/// Adds the capsule to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: `PyCapsule_New` requires a pointer that is not null and a name that outlives the capsule: both are statics. Readers
    // get a mutable pointer, and the contract of the table forbids them to write. It returns a new reference, or null with an
    // exception set.
    let capsule = unsafe {
        let table = (&raw const TABLE).cast_mut().cast();
        Bound::from_owned_ptr_or_err(module.py(), ffi::PyCapsule_New(table, CAPSULE_NAME.as_ptr(), None))?
    };
    module.add("_C_API", capsule)
}
