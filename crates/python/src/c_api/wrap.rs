//! `wrap`: a managed tensor of an extension as a tensor of any framework.
//!
//! The extension keeps the managed tensor if the call fails. Frameworks release what they fail to import at different times, so
//! they get a reference to a [`LentTensor`], which takes the managed tensor over after the call alone.

use super::borrow::BorrowedOwner;
use super::entry::{Step, enter};
use crate::conversion::convert;
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{OWN_FRAMEWORK, Source};
use crate::errors::{Result, fail, not_a_tensor};
use crate::frameworks::{self, Target};
use crate::interpreter::owner::{LentTensor, Owner};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use tensorferry_core::dlpack::abi::{FLAG_IS_COPIED, ManagedTensorVersioned};
use tensorferry_core::dlpack::{ManagedOwner, borrow_versioned, is_own_export};
use tensorferry_core::plan::{ConvertOptions, SourceMutability};
use tensorferry_core::{Access, ErrorKind};

/// The function of the table.
///
/// # Safety
/// The thread has the GIL. `tensor` is a valid managed tensor, whose memory nothing else uses after a success, and `like_or_name` is
/// a live object.
pub(super) unsafe extern "C" fn wrap(
    tensor: *mut ManagedTensorVersioned,
    like_or_name: *mut c_void,
) -> *mut c_void {
    let like_or_name = like_or_name.cast::<ffi::PyObject>();
    // SAFETY: `enter` requires the GIL, `ref_from_ptr` a live object and `wrap_tensor` a valid managed tensor: the contract of
    // `wrap`.
    let wrapped = unsafe {
        enter(
            |_| Step::Slow(()),
            |py, ()| wrap_tensor(py, tensor, Bound::ref_from_ptr(py, &like_or_name)).map(Bound::into_ptr),
        )
    };
    wrapped.unwrap_or(ptr::null_mut()).cast()
}

/// # Safety
/// `tensor` is null, or a valid managed tensor that nothing else releases if the result is a tensor.
unsafe fn wrap_tensor<'py>(
    py: Python<'py>,
    tensor: *mut ManagedTensorVersioned,
    like_or_name: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let Some(managed) = NonNull::new(tensor) else {
        return Err(fail(
            ErrorKind::InvalidTensor,
            "the managed tensor is NULL",
            "pass the result of an export",
        ));
    };
    let target = target_like(like_or_name)?;
    let lent = LentTensor::lent();
    let owner = Owner::wrapped(Arc::clone(&lent));
    // SAFETY: `borrow_versioned` requires a valid struct, by the contract of this function, and an owner that keeps its memory: the
    // extension keeps the managed tensor during the call, and `lent` from its end on. After an error nothing has the tensor: the
    // built-in frameworks release what they fail to import before they return, and the others get a copy.
    let tensor = unsafe { borrow_versioned(managed, owner) }?;
    // SAFETY: the struct is valid, by the contract of this function.
    let is_lent = unsafe { is_taken_in_place(managed.as_ref()) };
    // Read-only memory, and that of a tensor which `take` shared, may belong to another tensor, which can change.
    let mutability = match tensor.access() {
        Access::ReadWrite if !is_lent => SourceMutability::Temporary,
        _ => SourceMutability::Mutable,
    };
    let source =
        Source::in_place(py.None().into_bound(py), OWN_FRAMEWORK, tensor).with_mutability(mutability);
    // A registered framework may keep a view of memory that it fails to import, and then the extension would free it. The
    // built-in ones keep nothing.
    let copy = matches!(target, Target::Registered(_)).then_some(true);
    let options = ConvertOptions { copy, ..ConvertOptions::NONE };
    let request = ConversionRequest { options, ..ConversionRequest::new(target) };
    let result = convert::convert_source(py, source, &request)?;
    // SAFETY: `ManagedOwner::versioned` requires a valid struct that nothing else releases: the contract of this function, because
    // the call succeeds.
    lent.give_up(unsafe { ManagedOwner::versioned(managed) });
    drop(Owner::wrapped(lent));
    Ok(result)
}

/// Whether `take` returned the struct, over memory of the tensor that it read.
fn is_taken_in_place(managed: &ManagedTensorVersioned) -> bool {
    let is_taken = is_own_export::<Owner>(managed) || is_own_export::<BorrowedOwner>(managed);
    is_taken && managed.flags & FLAG_IS_COPIED == 0
}

/// The framework that a name, a module or a tensor stands for.
fn target_like(given: &Bound<'_, PyAny>) -> Result<Target> {
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyModule>() {
        return frameworks::target(given);
    }
    let recognised = recognise(given)?;
    match recognised.kind() {
        Recognised::Tensor(framework, _) => Ok(Target::Builtin(framework.framework())),
        Recognised::Registered(index) => Ok(Target::Registered(index)),
        Recognised::KerasVariable => target_like(&given.getattr("value")?),
        Recognised::Bytes
        | Recognised::Buffer
        | Recognised::Protocol
        | Recognised::Arrow
        | Recognised::Pandas
        | Recognised::Image
        | Recognised::OrtValue
        | Recognised::ArrowColumn => Ok(Target::Builtin(Builtin::Numpy.framework())),
        Recognised::Refused(_) | Recognised::Container(_) | Recognised::Leaf | Recognised::Unknown => {
            Err(not_a_tensor(given))
        }
    }
}
