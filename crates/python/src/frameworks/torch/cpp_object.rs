//! The C++ object inside the Python object of a torch tensor or storage.
//!
//! Its offset differs between versions, so a probe determines it: exactly one word of each sample holds the address `_cdata`.

use crate::fast_paths::{Probed, Unusable, present};
use pyo3::prelude::*;
use std::ffi::c_void;

/// Where the C++ object is: an `at::Tensor`, which is one pointer to a `c10::TensorImpl`, or a `c10::Storage`, which is one to a
/// `c10::StorageImpl`.
#[derive(Clone, Copy)]
pub(super) struct CppObject {
    /// The offset in the Python object, in bytes.
    offset: usize,
}

impl CppObject {
    /// Determines the offset from samples, which are all of type `torch.Tensor`, or all of type `torch.UntypedStorage`.
    pub(super) fn of(samples: &[&Bound<'_, PyAny>]) -> Probed<Self> {
        let first = samples.first().ok_or_else(|| Unusable::failed("no sample"))?;
        // Every instance has at least this size: a subclass only adds to it.
        let size: usize = first.get_type().getattr("__base__")?.getattr("__basicsize__")?.extract()?;
        let mut addresses = Vec::new();
        for sample in samples {
            addresses.push(present(sample.getattr("_cdata"))?.extract::<usize>()?);
        }
        let word = size_of::<usize>();
        let holds_address = |offset: &usize| {
            samples.iter().zip(&addresses).all(|(sample, address)| {
                // SAFETY: the read requires an aligned word inside the object. An object has at least the `__basicsize__` of its
                // base, which is `size`, and the offsets are multiples of a word up to `size` minus a word. Integers have no
                // invalid values.
                let found = unsafe { sample.as_ptr().cast::<u8>().add(*offset).cast::<usize>().read() };
                found == *address
            })
        };
        let header = size_of::<pyo3::ffi::PyObject>();
        let mut offsets = (header..=size.saturating_sub(word)).step_by(word).filter(holds_address);
        match (offsets.next(), offsets.next()) {
            (Some(offset), None) => Ok(Self { offset }),
            _ => Err(Unusable::failed("no word, or more than one, of an object holds the address _cdata")),
        }
    }

    /// The address of the `at::Tensor` or `c10::Storage`.
    ///
    /// # Safety
    /// The object is an instance of the type of the samples.
    #[inline(always)]
    pub(super) unsafe fn address(self, object: &Bound<'_, PyAny>) -> *const c_void {
        // SAFETY: `add` requires an address inside the object: `of` found the offset within the size of every instance.
        unsafe { object.as_ptr().cast::<u8>().add(self.offset).cast() }
    }

    /// The address of the `c10::TensorImpl` or `c10::StorageImpl`.
    ///
    /// # Safety
    /// The object is an instance of the type of the samples.
    #[inline(always)]
    pub(super) unsafe fn implementation(self, object: &Bound<'_, PyAny>) -> *const c_void {
        // SAFETY: the read requires an aligned pointer, which an `at::Tensor` and a `c10::Storage` are. `address` has the contract of
        // this function.
        unsafe { self.address(object).cast::<*const c_void>().read() }
    }
}
