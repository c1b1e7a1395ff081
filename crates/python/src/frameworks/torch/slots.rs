//! The methods and attributes that are read from every tensor: as C functions (the fast path `torch.tensor_base`), or by name.

use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::slots::{Attribute, Method};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Methods and attributes of `torch.Tensor`.
pub(super) struct Slots {
    /// `untyped_storage`.
    pub(super) storage: Method,
    pub(super) requires_grad: Attribute,
    pub(super) is_leaf: Attribute,
    pub(super) dtype: Attribute,
    pub(super) is_neg: Method,
    pub(super) is_conj: Method,
}

impl Slots {
    /// Runs the probe. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>) -> Self {
        let py = torch.py();
        fast_paths::probe(py, FastPath::TorchTensorBase, || Self::direct(torch)).unwrap_or_else(|| Self {
            storage: Method::by_name(py, c"untyped_storage"),
            requires_grad: Attribute::by_name(py, c"requires_grad"),
            is_leaf: Attribute::by_name(py, c"is_leaf"),
            dtype: Attribute::by_name(py, c"dtype"),
            is_neg: Method::by_name(py, c"is_neg"),
            is_conj: Method::by_name(py, c"is_conj"),
        })
    }

    fn direct(torch: &Bound<'_, PyModule>) -> Probed<Self> {
        let base = present(torch.getattr("_C")?.getattr("TensorBase"))?;
        let base = base.cast_into::<PyType>().map_err(PyErr::from)?;
        let slots = Self {
            storage: Method::of(&base, c"untyped_storage"),
            requires_grad: Attribute::of(&base, c"requires_grad"),
            is_leaf: Attribute::of(&base, c"is_leaf"),
            dtype: Attribute::of(&base, c"dtype"),
            is_neg: Method::of(&base, c"is_neg"),
            is_conj: Method::of(&base, c"is_conj"),
        };
        let methods = [&slots.storage, &slots.is_neg, &slots.is_conj];
        let attributes = [&slots.requires_grad, &slots.is_leaf, &slots.dtype];
        if !methods.iter().any(|method| method.is_direct())
            && !attributes.iter().any(|attribute| attribute.is_direct())
        {
            return Err(Unusable::missing("torch._C.TensorBase has none of the C functions"));
        }
        let leaf = super::sample::sample(torch, "float32")?.call_method1("requires_grad_", (true,))?;
        let result = leaf.call_method0("clone")?;
        let complex = super::sample::sample(torch, "complex64")?;
        let conjugate = complex.call_method0("conj")?;
        let negative = conjugate.getattr("imag")?;
        for tensor in [leaf, result, complex, conjugate, negative] {
            if !objects::has_type(&tensor, &base) {
                return Err(Unusable::failed("a tensor is not an instance of TensorBase"));
            }
            // SAFETY: `check` requires an instance of `TensorBase`: the line above has compared the type.
            unsafe { slots.check(&tensor) }?;
        }
        Ok(slots)
    }

    /// Compares the results of the C functions with those of the methods and attributes by name.
    ///
    /// # Safety
    /// The tensor is an instance of `TensorBase`, in which the slots were found.
    unsafe fn check(&self, tensor: &Bound<'_, PyAny>) -> Probed<()> {
        let py = tensor.py();
        // SAFETY: the slots require an instance of `TensorBase`, and so does this function.
        let storage = unsafe { self.storage.call(tensor) }?;
        let attributes = [
            (&self.requires_grad, interned!(py, "requires_grad")),
            (&self.is_leaf, interned!(py, "is_leaf")),
            (&self.dtype, interned!(py, "dtype")),
        ];
        for (attribute, name) in attributes {
            // SAFETY: the slots require an instance of `TensorBase`, and so does this function.
            let (found, expected) = (unsafe { attribute.get(tensor) }?, tensor.getattr(name)?);
            check(found.is(&expected), || format!("{name} is {found}, expected {expected}"))?;
        }
        for (method, name) in
            [(&self.is_neg, interned!(py, "is_neg")), (&self.is_conj, interned!(py, "is_conj"))]
        {
            // SAFETY: the slots require an instance of `TensorBase`, and so does this function.
            let (found, expected) = (unsafe { method.call(tensor) }?, tensor.call_method0(name)?);
            check(found.is(&expected), || format!("{name} is {found}, expected {expected}"))?;
        }
        let address = |storage: Bound<'_, PyAny>| storage.call_method0("data_ptr")?.extract::<usize>();
        let found = address(storage)?;
        let expected = address(tensor.call_method0("untyped_storage")?)?;
        check(found == expected, || format!("the storage is at {found:#x}, expected {expected:#x}"))
    }
}
