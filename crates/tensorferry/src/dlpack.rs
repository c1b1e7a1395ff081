//! Import and export by DLPack.
//!
//! The structs are those of the C header `dlpack.h`, version 1.3.

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::Tensor;
use std::ptr::NonNull;
use tensorferry_core::ErrorKind;
use tensorferry_core::dlpack;
pub use tensorferry_core::dlpack::abi::{
    FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, ManagedTensor, ManagedTensorVersioned, RawDType,
    RawDevice, RawTensor, VERSION, Version,
};

impl Tensor {
    /// Imports a tensor of another library. The last handle on the memory calls its deleter.
    ///
    /// ```compile_fail,E0133
    /// # use std::ptr::NonNull;
    /// # use tensorferry::{Tensor, dlpack::ManagedTensorVersioned};
    /// fn import(managed: NonNull<ManagedTensorVersioned>) -> tensorferry::Result<Tensor> {
    ///     Tensor::from_dlpack(managed)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the struct contradicts itself, or has an element type or device that this crate does not have. The deleter has
    /// then been called.
    ///
    /// # Safety
    /// - `managed` is a valid `DLManagedTensorVersioned`, and nothing else releases it.
    /// - Every element in host memory has a value, and the work that writes them is complete.
    /// - Until the deleter is called, nothing else writes the elements. If the struct does not have [`FLAG_READ_ONLY`],
    ///   nothing else reads them either.
    pub unsafe fn from_dlpack(managed: NonNull<ManagedTensorVersioned>) -> Result<Self> {
        // SAFETY: the first clause of the contract of this function.
        let tensor = unsafe { dlpack::from_versioned(managed).map_err(Error::from_core)? };
        // SAFETY: `Memory::Dlpack` holds the owner.
        let tensor = unsafe { tensor.map_owner(Memory::Dlpack) };
        // SAFETY: the second and the third clause of the contract of this function.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// As [`from_dlpack`](Self::from_dlpack), for the struct without a version, `DLManagedTensor`, as libraries before DLPack 1.0 export
    /// it. It does not say whether its memory may be written, so that the result is read-only.
    ///
    /// ```compile_fail,E0133
    /// # use std::ptr::NonNull;
    /// # use tensorferry::{Tensor, dlpack::ManagedTensor};
    /// fn import(managed: NonNull<ManagedTensor>) -> tensorferry::Result<Tensor> {
    ///     Tensor::from_dlpack_unversioned(managed)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`from_dlpack`](Self::from_dlpack).
    ///
    /// # Safety
    /// - `managed` is a valid `DLManagedTensor`, and nothing else releases it.
    /// - Every element in host memory has a value, and the work that writes them is complete.
    /// - Until the deleter is called, nothing writes the elements.
    pub unsafe fn from_dlpack_unversioned(managed: NonNull<ManagedTensor>) -> Result<Self> {
        // SAFETY: the first clause of the contract of this function. `set_read_only` below makes sure that nothing writes the
        // memory through the result.
        let mut tensor = unsafe { dlpack::from_legacy(managed).map_err(Error::from_core)? };
        tensor.set_read_only();
        // SAFETY: `Memory::Dlpack` holds the owner.
        let tensor = unsafe { tensor.map_owner(Memory::Dlpack) };
        // SAFETY: the second and the third clause of the contract of this function. The access is read-only.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// Exports the tensor for another library, which calls the deleter when it does not need it any more.
    ///
    /// The struct has [`FLAG_READ_ONLY`] if the memory is read-only or another handle uses it. Handles that remain see
    /// writable memory as shared until the deleter is called, so that neither side can write under the other.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1.0f32, 2.0], &[2])?;
    /// let managed = tensor.into_dlpack()?;
    /// // SAFETY: `into_dlpack` returned a valid struct. Nothing else has it or its memory.
    /// let imported = unsafe { Tensor::from_dlpack(managed)? };
    /// assert_eq!(imported.as_slice::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When DLPack cannot express the tensor: it is not in native byte order, or a stride is not a multiple of the element
    /// size.
    pub fn into_dlpack(self) -> Result<NonNull<ManagedTensorVersioned>> {
        dlpack::to_versioned(self.into_parts()).map_err(|error| match error.kind() {
            ErrorKind::UnsupportedLayout => {
                Error::from_core(error.with_advice("export a dense copy: pack()"))
            }
            _ => Error::from_core(error),
        })
    }
}
