//! The bits of a torch tensor that say "conjugate me" or "negate me" when the values are next used.
//!
//! `t.is_neg()` lets go of the GIL and takes it back, which costs more than all else that is read of a tensor, and
//! another thread may come in between. So the C++ function behind it is asked, which looks at one word. It takes the C++
//! tensor that every Python tensor has inside. Where that lies differs between versions and is not taken on trust: it is
//! the one place that holds the address which `t._cdata` gives, in tensors made for the purpose, and the functions must
//! give the right answers there (the fast path `torch.lazy_bits`). Otherwise the methods are called.

use super::slots::Slots;
use crate::errors::Result;
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::interpreter::slots::{Method, symbol};
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use tensorferry_core::DType;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::Pending;

pub(super) struct Bits(Option<Inside>);

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
    /// How to read them of torch tensors, with the library that has torch's functions. Called on a thread on which no mode
    /// is on.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchLazyBits, || Inside::of(torch, library)))
    }

    /// What must be done to the values of a tensor first.
    ///
    /// # Safety
    /// The object is a torch tensor, and so an instance of the type that the slots were found in.
    #[inline(always)]
    pub(super) unsafe fn pending(
        &self,
        slots: &Slots,
        object: &Bound<'_, PyAny>,
        dtype: DType,
    ) -> Result<Option<Pending>> {
        // SAFETY: the caller's contract.
        unsafe {
            if dtype.kind() == DTypeKind::Complex
                && self.ask(object, |inside| inside.is_conj, &slots.is_conj)?
            {
                return Ok(Some(Pending::Conjugate));
            }
            if dtype != DType::Bool && self.ask(object, |inside| inside.is_neg, &slots.is_neg)? {
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
            match &self.0 {
                Some(inside) => Ok(inside.ask(object, which(inside))),
                None => Ok(method.is_true(object)?),
            }
        }
    }
}

impl Inside {
    fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Probed<Self> {
        let find = |name| {
            // SAFETY: null is no function, and the names say what the others take and give.
            unsafe { std::mem::transmute::<*mut c_void, Option<Ask>>(symbol(library, name)) }
        };
        let is_neg = find(c"_ZN2at6native6is_negERKNS_6TensorE");
        let is_conj = find(c"_ZN2at6native7is_conjERKNS_6TensorE");
        let (Some(is_neg), Some(is_conj)) = (is_neg, is_conj) else {
            return Err(Unusable::missing("libtorch_cpu.so does not export the functions"));
        };
        let plain = super::sample::sample(torch, "float32")?;
        let conjugate = super::sample::sample(torch, "complex64")?.call_method0("conj")?;
        let negated = conjugate.getattr("imag")?;
        let tensors = [&plain, &negated, &conjugate];
        // Every tensor has at least this size: a subclass only adds to it.
        let size: usize =
            torch.getattr("Tensor")?.getattr("__base__")?.getattr("__basicsize__")?.extract()?;
        let mut addresses = Vec::new();
        for tensor in tensors {
            addresses.push(present(tensor.getattr("_cdata"))?.extract::<usize>()?);
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
        let (Some(place), None) = (places.next(), places.next()) else {
            return Err(Unusable::failed(
                "a tensor does not hold the address that _cdata gives in one place",
            ));
        };
        let inside = Self { place, is_neg, is_conj };
        // SAFETY: a C++ tensor is one pointer, to what `_cdata` names, and lies there in each of the three.
        let (negative, conjugated) = unsafe {
            (
                tensors.map(|tensor| inside.ask(tensor, is_neg)),
                tensors.map(|tensor| inside.ask(tensor, is_conj)),
            )
        };
        check((negative, conjugated) == ([false, true, false], [false, false, true]), || {
            format!(
                "of a plain, a negated and a conjugated tensor {negative:?} are negated and {conjugated:?} conjugated"
            )
        })?;
        for (tensor, negative) in tensors.iter().zip(negative) {
            let expected = tensor.call_method0("is_neg")?.is_truthy()?;
            check(negative == expected, || format!("is_neg is {negative} instead of {expected}"))?;
        }
        Ok(inside)
    }

    /// # Safety
    /// The object is a torch tensor, and the function is one of ours.
    #[inline(always)]
    unsafe fn ask(&self, object: &Bound<'_, PyAny>, function: Ask) -> bool {
        // SAFETY: the caller's contract; the C++ tensor lies there, as was seen.
        unsafe { function(object.as_ptr().cast::<u8>().add(self.place).cast()) }
    }
}
