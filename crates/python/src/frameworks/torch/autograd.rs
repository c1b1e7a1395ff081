//! Whether a torch tensor requires a gradient.
//!
//! `t.requires_grad` looks for `__torch_function__`, and replaces PyTorch's handler of warnings meanwhile. The fast path
//! `torch.requires_grad` calls the C++ function instead, which reads two words.

use super::cpp_object::CppObject;
use super::sample::sample;
use super::slots::Slots;
use crate::errors::Result;
use crate::fast_paths::{self, FastPath, Probed, Unusable, check};
use crate::interpreter::slots::symbol;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// Reads the flag through C++, or through the Python attribute without the fast path.
pub(super) struct Autograd(Option<CppFlag>);

/// `bool c10::TensorImpl::requires_grad() const`, and where its object is.
struct CppFlag {
    tensor: CppObject,
    function: unsafe extern "C" fn(*const c_void) -> bool,
}

impl Autograd {
    /// Runs the probe. `library` exports the C++ function. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchRequiresGrad, || CppFlag::of(torch, library)))
    }

    /// Whether the tensor requires a gradient.
    ///
    /// # Safety
    /// The object is a torch tensor, and so an instance of the type that the slots were found in.
    #[inline(always)]
    pub(super) unsafe fn is_required(&self, slots: &Slots, object: &Bound<'_, PyAny>) -> Result<bool> {
        // SAFETY: both require a torch tensor, and so does this function.
        unsafe {
            match &self.0 {
                Some(flag) => Ok(flag.read(object)),
                None => Ok(slots.requires_grad.is_true(object)?),
            }
        }
    }
}

impl CppFlag {
    fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Probed<Self> {
        let address = symbol(library, c"_ZNK3c1010TensorImpl13requires_gradEv");
        // SAFETY: an `Option` of a function pointer has the size of a pointer, and null is `None`. The mangled name is that of a
        // method without arguments, which PyTorch declares with the result `bool`; its object is the first argument.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_void) -> bool>>(address)
        };
        let function = function
            .ok_or_else(|| Unusable::missing("libc10.so does not export TensorImpl::requires_grad"))?;
        let ordinary = sample(torch, "float32")?;
        let leaf = sample(torch, "float32")?.call_method1("requires_grad_", (true,))?;
        let result = leaf.call_method0("clone")?;
        let detached = result.call_method0("detach")?;
        let samples = [&ordinary, &leaf, &result, &detached];
        let flag = Self { tensor: CppObject::of(&samples)?, function };
        for sample in samples {
            // SAFETY: `read` requires a torch tensor, which each sample is.
            let (found, expected) = (unsafe { flag.read(sample) }, sample.getattr("requires_grad")?);
            check(found == expected.is_truthy()?, || {
                format!("requires_grad is {found}, expected {expected}")
            })?;
        }
        Ok(flag)
    }

    /// # Safety
    /// The object is a torch tensor.
    #[inline(always)]
    unsafe fn read(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the function requires a live `c10::TensorImpl`, which the Python object keeps alive.
        unsafe { (self.function)(self.tensor.implementation(object)) }
    }
}
