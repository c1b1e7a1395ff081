//! The lazy conjugate and negative bits of a torch tensor.
//!
//! `t.is_neg()` releases and reacquires the GIL. That costs more than everything else that is read from a tensor, and another
//! thread may run in between. The fast path `torch.lazy_bits` calls the C++ function instead, which reads one word.
//!
//! The C++ function takes the C++ tensor inside the Python object. Its offset differs between versions, so a probe determines
//! it: exactly one word of each sample holds the address `t._cdata`, and the functions must return the correct bits of the
//! samples. If the probe fails, the Python methods are called.

use super::slots::Slots;
use crate::errors::Result;
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::interpreter::slots::{Method, symbol};
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use tensorferry_core::DType;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::Pending;

/// Reads the lazy bits through C++, or through Python methods without the fast path.
pub(super) struct Bits(Option<CppTensor>);

/// `bool at::native::is_neg(const at::Tensor&)` or `is_conj`.
type TensorPredicate = unsafe extern "C" fn(*const c_void) -> bool;

/// The C++ tensor inside a Python object, and the functions that read its bits.
#[derive(Clone, Copy)]
struct CppTensor {
    /// The offset in the Python object, in bytes.
    offset: usize,
    is_neg: TensorPredicate,
    is_conj: TensorPredicate,
}

impl Bits {
    /// Runs the probe. `library` exports the C++ functions. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchLazyBits, || CppTensor::of(torch, library)))
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
        which: impl FnOnce(&CppTensor) -> TensorPredicate,
        method: &Method,
    ) -> Result<bool> {
        // SAFETY: `CppTensor::call` and `Method::is_true` require a torch tensor, and a function or method of its type: the contract
        // of `read_bit` says so.
        unsafe {
            match &self.0 {
                Some(inside) => Ok(inside.call(object, which(inside))),
                None => Ok(method.is_true(object)?),
            }
        }
    }
}

impl CppTensor {
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
        // Every tensor has at least this size: a subclass only adds to it.
        let size: usize =
            torch.getattr("Tensor")?.getattr("__base__")?.getattr("__basicsize__")?.extract()?;
        let mut addresses = Vec::new();
        for tensor in tensors {
            addresses.push(present(tensor.getattr("_cdata"))?.extract::<usize>()?);
        }
        let word = size_of::<usize>();
        let holds_address = |offset: &usize| {
            tensors.iter().zip(&addresses).all(|(tensor, address)| {
                // SAFETY: the read requires an aligned word inside the object. An object has at least the `__basicsize__` of its
                // base, which is `size`, and the offsets are multiples of a word up to `size` minus a word. Integers have no
                // invalid values.
                let found = unsafe { tensor.as_ptr().cast::<u8>().add(*offset).cast::<usize>().read() };
                found == *address
            })
        };
        let header = size_of::<pyo3::ffi::PyObject>();
        let mut offsets = (header..=size.saturating_sub(word)).step_by(word).filter(holds_address);
        let (Some(offset), None) = (offsets.next(), offsets.next()) else {
            return Err(Unusable::failed("no word, or more than one, of a tensor holds the address _cdata"));
        };
        let inside = Self { offset, is_neg, is_conj };
        // SAFETY: `call` requires a torch tensor with its C++ tensor at the offset: a C++ tensor is one pointer with the value of
        // `_cdata`, which each of the three has at this offset.
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
    /// The object is a torch tensor with its C++ tensor at the offset, and the function is one of `is_neg` and `is_conj`.
    #[inline(always)]
    unsafe fn call(&self, object: &Bound<'_, PyAny>, function: TensorPredicate) -> bool {
        // SAFETY: the function requires the address of a live C++ tensor: the contract of `call` says that it is at the offset, and the
        // Python object, which is borrowed, keeps it alive.
        unsafe { function(object.as_ptr().cast::<u8>().add(self.offset).cast()) }
    }
}
