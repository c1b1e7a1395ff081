//! The bits of a torch tensor that say "conjugate me" or "negate me" when the values are next used.
//!
//! `t.is_neg()` lets go of the GIL and takes it back, which costs more than all else that is read of a tensor, and
//! another thread may come in between. So the C++ function behind it is asked, which looks at one word. It takes the C++
//! tensor that every Python tensor has inside. Where that lies differs between versions and is not taken on trust: it is
//! the one place that holds the address which `t._cdata` gives, in tensors made for the purpose, and the functions must
//! give the right answers there. Otherwise the methods are called.

use crate::errors::Result;
use crate::settings::fast_paths_disabled;
use crate::slots::{Method, symbol};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{CStr, c_void};
use tensorferry_core::DType;
use tensorferry_core::dtype::Kind;
use tensorferry_core::plan::Pending;

pub(super) struct Bits {
    inside: Option<Inside>,
    is_neg: Method,
    is_conj: Method,
}

/// `bool at::native::is_neg(const at::Tensor&)`, and the like.
type Ask = unsafe extern "C" fn(*const c_void) -> bool;

/// The C++ tensor inside of a Python one, and what can be asked of it.
#[derive(Clone, Copy)]
struct Inside {
    /// How many bytes into the Python object it lies.
    place: usize,
    is_neg: Ask,
    is_conj: Ask,
}

impl Bits {
    /// How to read them of instances of `base`, with the library that has torch's functions.
    pub(super) fn of(torch: &Bound<'_, PyModule>, base: &Bound<'_, PyType>, library: &CStr) -> Result<Self> {
        Ok(Self {
            inside: Inside::of(torch, base, library).ok().flatten(),
            is_neg: Method::of(base, c"is_neg")?,
            is_conj: Method::of(base, c"is_conj")?,
        })
    }

    /// What must be done to the values of a tensor first.
    ///
    /// # Safety
    /// The object is an instance of the type that was given to [`Bits::of`].
    #[inline(always)]
    pub(super) unsafe fn pending(&self, object: &Bound<'_, PyAny>, dtype: DType) -> Result<Option<Pending>> {
        // SAFETY: the caller's contract.
        unsafe {
            if dtype.kind() == Kind::Complex && self.ask(object, |inside| inside.is_conj, &self.is_conj)? {
                return Ok(Some(Pending::Conjugate));
            }
            if dtype != DType::Bool && self.ask(object, |inside| inside.is_neg, &self.is_neg)? {
                return Ok(Some(Pending::Negate));
            }
        }
        Ok(None)
    }

    /// # Safety
    /// As [`Bits::pending`].
    #[inline(always)]
    unsafe fn ask(
        &self,
        object: &Bound<'_, PyAny>,
        which: impl FnOnce(&Inside) -> Ask,
        method: &Method,
    ) -> Result<bool> {
        // SAFETY: the caller's contract; every instance has its tensor in the same place.
        unsafe {
            match &self.inside {
                Some(inside) => Ok(inside.ask(object, which(inside))),
                None => Ok(method.is_true(object)?),
            }
        }
    }
}

impl Inside {
    fn of(torch: &Bound<'_, PyModule>, base: &Bound<'_, PyType>, library: &CStr) -> PyResult<Option<Self>> {
        if fast_paths_disabled() {
            return Ok(None);
        }
        let find = |name| {
            // SAFETY: null is no function, and the names say what the others take and give.
            unsafe { std::mem::transmute::<*mut c_void, Option<Ask>>(symbol(library, name)) }
        };
        let is_neg = find(c"_ZN2at6native6is_negERKNS_6TensorE");
        let is_conj = find(c"_ZN2at6native7is_conjERKNS_6TensorE");
        let (Some(is_neg), Some(is_conj)) = (is_neg, is_conj) else { return Ok(None) };
        super::quietly(torch, || {
            let plain = super::sample(torch, "float32")?;
            let negated = plain.call_method0("_neg_view")?;
            let conjugate = super::sample(torch, "complex64")?.call_method0("conj")?;
            let tensors = [&plain, &negated, &conjugate];
            let size: usize = base.getattr("__basicsize__")?.extract()?;
            let mut addresses = Vec::new();
            for tensor in tensors {
                addresses.push(tensor.getattr("_cdata")?.extract::<usize>()?);
            }
            let word = size_of::<usize>();
            let holds = |place: &usize| {
                tensors.iter().zip(&addresses).all(|(tensor, address)| {
                    // SAFETY: the place lies within the object, which has at least `size` bytes.
                    let found = unsafe { tensor.as_ptr().cast::<u8>().add(*place).cast::<usize>().read() };
                    found == *address
                })
            };
            let header = size_of::<pyo3::ffi::PyObject>();
            let mut places = (header..=size.saturating_sub(word)).step_by(word).filter(holds);
            let (Some(place), None) = (places.next(), places.next()) else { return Ok(None) };
            let inside = Self { place, is_neg, is_conj };
            // SAFETY: a C++ tensor is one pointer, to what `_cdata` names, and lies there in each of the three.
            let right = unsafe {
                tensors.map(|tensor| inside.ask(tensor, is_neg)) == [false, true, false]
                    && tensors.map(|tensor| inside.ask(tensor, is_conj)) == [false, false, true]
            };
            Ok(right.then_some(inside))
        })
    }

    /// # Safety
    /// The object is a torch tensor, and the function is one of ours.
    #[inline(always)]
    unsafe fn ask(&self, object: &Bound<'_, PyAny>, function: Ask) -> bool {
        // SAFETY: the caller's contract; the C++ tensor lies there, as was seen.
        unsafe { function(object.as_ptr().cast::<u8>().add(self.place).cast()) }
    }
}
