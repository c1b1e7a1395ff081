//! The lazy conjugate and negative bits of a torch tensor.
//!
//! `t.is_neg()` releases and reacquires the GIL. That costs more than everything else that is read from a tensor, and another
//! thread may run in between. The fast path `torch.lazy_bits` calls the C++ function instead, which reads one word.
//!
//! The functions must return the correct bits of samples. If the probe fails, the Python methods are called.

use super::cpp_object::CppObject;
use super::slots::Slots;
use crate::errors::Result;
use crate::fast_paths::{self, FastPath, Probed, Unusable, check};
use crate::interpreter::slots::{Method, symbol};
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use tensorferry_core::DType;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::Pending;

/// Reads the lazy bits through C++, or through Python methods without the fast path.
pub(super) struct Bits(Option<CppBits>);

/// `bool at::native::is_neg(const at::Tensor&)` or `is_conj`.
type TensorPredicate = unsafe extern "C" fn(*const c_void) -> bool;

/// The functions that read the bits, and where their argument is.
#[derive(Clone, Copy)]
struct CppBits {
    tensor: CppObject,
    is_neg: TensorPredicate,
    is_conj: TensorPredicate,
}

impl Bits {
    /// Runs the probe. `library` exports the C++ functions. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchLazyBits, || CppBits::of(torch, library)))
    }

    /// The operation that is pending on the values of a tensor, if any.
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
        // SAFETY: `read_bit` requires a torch tensor and a function of it: the contract of `pending` says the first, and the closures
        // select `is_conj` and `is_neg`.
        unsafe {
            if dtype.kind() == DTypeKind::Complex
                && self.read_bit(object, |inside| inside.is_conj, &slots.is_conj)?
            {
                return Ok(Some(Pending::Conjugate));
            }
            if dtype != DType::Bool && self.read_bit(object, |inside| inside.is_neg, &slots.is_neg)? {
                return Ok(Some(Pending::Negate));
            }
        }
        Ok(None)
    }

    /// # Safety
    /// The object is a torch tensor, and the method is one of its type.
    #[inline(always)]
    unsafe fn read_bit(
        &self,
        object: &Bound<'_, PyAny>,
        which: impl FnOnce(&CppBits) -> TensorPredicate,
        method: &Method,
    ) -> Result<bool> {
        // SAFETY: `CppBits::call` and `Method::is_true` require a torch tensor, and a function or method of its type: the contract
        // of `read_bit` says so.
        unsafe {
            match &self.0 {
                Some(inside) => Ok(inside.call(object, which(inside))),
                None => Ok(method.is_true(object)?),
            }
        }
    }
}

impl CppBits {
    fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Probed<Self> {
        let find = |name| {
            // SAFETY: an `Option` of a function pointer has the size of a pointer, and null is `None`. The mangled names say that
            // the functions take one `const at::Tensor &`; PyTorch declares both with the result `bool`.
            unsafe { std::mem::transmute::<*mut c_void, Option<TensorPredicate>>(symbol(library, name)) }
        };
        let is_neg = find(c"_ZN2at6native6is_negERKNS_6TensorE");
        let is_conj = find(c"_ZN2at6native7is_conjERKNS_6TensorE");
        let (Some(is_neg), Some(is_conj)) = (is_neg, is_conj) else {
            return Err(Unusable::missing("libtorch_cpu.so does not export is_neg and is_conj"));
        };
        let unflagged = super::sample::sample(torch, "float32")?;
        let conjugate = super::sample::sample(torch, "complex64")?.call_method0("conj")?;
        let negated = conjugate.getattr("imag")?;
        let tensors = [&unflagged, &negated, &conjugate];
        let inside = Self { tensor: CppObject::of(&tensors)?, is_neg, is_conj };
        // SAFETY: `call` requires a torch tensor, which each of the three is.
        let (negative, conjugated) = unsafe {
            (
                tensors.map(|tensor| inside.call(tensor, is_neg)),
                tensors.map(|tensor| inside.call(tensor, is_conj)),
            )
        };
        check((negative, conjugated) == ([false, true, false], [false, false, true]), || {
            format!(
                "is_neg is {negative:?} and is_conj is {conjugated:?} for an ordinary, a negated and a conjugated tensor"
            )
        })?;
        for (tensor, negative) in tensors.iter().zip(negative) {
            let expected = tensor.call_method0("is_neg")?.is_truthy()?;
            check(negative == expected, || format!("is_neg is {negative}, expected {expected}"))?;
        }
        Ok(inside)
    }

    /// # Safety
    /// The object is a torch tensor, and the function is one of `is_neg` and `is_conj`.
    #[inline(always)]
    unsafe fn call(&self, object: &Bound<'_, PyAny>, function: TensorPredicate) -> bool {
        // SAFETY: the function requires the address of a live C++ tensor, and `address` a torch tensor, which the object is by the
        // contract of `call`. The object is borrowed, and keeps the C++ tensor alive.
        unsafe { function(self.tensor.address(object)) }
    }
}
