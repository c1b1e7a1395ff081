//! Imports DLPack tensors of other libraries, and validates them once.
//!
//! The checks run in a fixed order, each with its own message and test: version, device, rank, shape and strides pointers,
//! element type, packing, layout arithmetic, offset, null data. What cannot be checked, such as the size of the memory, is
//! part of the `unsafe` contract.

use super::abi::{
    FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, ManagedTensor, ManagedTensorVersioned, RawDType, RawTensor, VERSION,
};
use crate::device::{Device, DeviceKind};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::hints;
use crate::layout::Layout;
use crate::tensor::{Access, ByteOrder, Tensor};
use std::ptr::NonNull;

/// The maximum number of dimensions: more than any framework has.
const MAX_RANK: i32 = 1024;

/// The owner of an imported tensor: its deleter runs once, when this is dropped.
///
/// ```
/// # use std::ptr::NonNull;
/// # use tensorferry_core::dlpack::{ManagedOwner, abi::{ManagedTensor, ManagedTensorVersioned}};
/// /// # Safety
/// /// Both are valid, and nothing else releases them.
/// unsafe fn release(old: NonNull<ManagedTensor>, new: NonNull<ManagedTensorVersioned>) {
///     // SAFETY: the contract of `release` is that both are valid and that nothing else releases them.
///     drop(unsafe { (ManagedOwner::legacy(old), ManagedOwner::versioned(new)) });
/// }
/// ```
///
/// The pointer is private, because the drop calls a function of the struct:
///
/// ```compile_fail,E0423
/// # use tensorferry_core::dlpack::ManagedOwner;
/// drop(ManagedOwner(std::ptr::NonNull::dangling()));
/// ```
#[derive(Debug)]
pub struct ManagedOwner(ManagedPointer);

#[derive(Debug)]
enum ManagedPointer {
    /// From a capsule without a version.
    Legacy(NonNull<ManagedTensor>),
    /// From a capsule with a version, or from the C exchange API.
    Versioned(NonNull<ManagedTensorVersioned>),
}

impl ManagedOwner {
    /// Takes ownership of a struct without a version.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_core::dlpack::ManagedOwner;
    /// drop(ManagedOwner::legacy(std::ptr::NonNull::dangling()));
    /// ```
    ///
    /// # Safety
    /// `managed` is a valid struct that nothing else releases.
    pub unsafe fn legacy(managed: NonNull<ManagedTensor>) -> Self {
        Self(ManagedPointer::Legacy(managed))
    }

    /// Takes ownership of a struct with a version.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_core::dlpack::ManagedOwner;
    /// drop(ManagedOwner::versioned(std::ptr::NonNull::dangling()));
    /// ```
    ///
    /// # Safety
    /// `managed` is a valid struct that nothing else releases.
    pub unsafe fn versioned(managed: NonNull<ManagedTensorVersioned>) -> Self {
        Self(ManagedPointer::Versioned(managed))
    }
}

// SAFETY: the value owns its struct alone (the contracts of `legacy` and `versioned`). Its only access is the call of the
// deleter, which DLPack requires to be callable from any thread.
unsafe impl Send for ManagedOwner {}
// SAFETY: a shared reference gives no access to the struct: only the drop reads it.
unsafe impl Sync for ManagedOwner {}

impl Drop for ManagedOwner {
    fn drop(&mut self) {
        match self.0 {
            ManagedPointer::Legacy(managed) => {
                // SAFETY: the struct is valid and nothing else releases it (the contract of `ManagedOwner::legacy`). A value is
                // dropped once, so the deleter is called once, with its own struct.
                unsafe {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
            ManagedPointer::Versioned(managed) => {
                // SAFETY: the struct is valid and nothing else releases it (the contract of `ManagedOwner::versioned`). A value
                // is dropped once, so the deleter is called once, with its own struct.
                unsafe {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// Imports a managed tensor with a version.
///
/// # Errors
/// When a check fails; the tensor has then been released.
///
/// # Safety
/// `managed` is a valid struct that nothing else releases.
pub unsafe fn from_versioned(managed: NonNull<ManagedTensorVersioned>) -> Result<Tensor<ManagedOwner>> {
    // SAFETY: the contract of this function: `managed` is a valid struct that nothing else releases, so the new owner may.
    // `borrow_versioned` requires an owner that keeps the memory, as DLPack says of a struct whose deleter was not called.
    unsafe { borrow_versioned(managed, ManagedOwner::versioned(managed)) }
}

/// Validates a managed tensor with a version that `owner` keeps alive.
///
/// # Errors
/// When a check fails; `owner` is dropped.
///
/// # Safety
/// `managed` is a valid struct. It and its memory are valid while `owner` exists.
pub unsafe fn borrow_versioned<O>(managed: NonNull<ManagedTensorVersioned>, owner: O) -> Result<Tensor<O>> {
    // SAFETY: `managed` is a valid struct by the contract of this function. Version and flags have the same offsets in every
    // version of DLPack.
    let (version, flags) = unsafe { (managed.as_ref().version, managed.as_ref().flags) };
    if version.major != VERSION.major {
        return Err(Error::invalid_tensor(format!(
            "the tensor has DLPack version {}.{}",
            version.major, version.minor
        ))
        .with_hint_value(hints::UPDATE_DLPACK, VERSION.major.to_string()));
    }
    let access = if flags & FLAG_READ_ONLY != 0 { Access::ReadOnly } else { Access::ReadWrite };
    // SAFETY: the struct is valid by the contract of this function, with `ndim` numbers in its arrays, and its memory is valid
    // while `owner` exists. The producer sets the read-only flag if writes are not allowed.
    unsafe { borrow(managed.as_ref().dl_tensor, access, flags & FLAG_SUBBYTE_PADDED != 0, owner) }
}

/// Imports a managed tensor without a version. It cannot express that its memory is read-only: a caller who knows so calls
/// [`Tensor::set_read_only`].
///
/// # Errors
/// When a check fails; the tensor has then been released.
///
/// # Safety
/// `managed` is a valid struct that nothing else releases. Its memory is writable, or nothing writes it through the result.
pub unsafe fn from_legacy(managed: NonNull<ManagedTensor>) -> Result<Tensor<ManagedOwner>> {
    // SAFETY: the contract of this function: `managed` is a valid struct, with `ndim` numbers in its arrays, and nothing else
    // releases it, so the new owner may. DLPack keeps its memory valid until the owner calls the deleter, and nothing writes
    // it unless it is writable.
    unsafe {
        let owner = ManagedOwner::legacy(managed);
        borrow(managed.as_ref().dl_tensor, Access::ReadWrite, false, owner)
    }
}

/// Validates a DLPack tensor that `owner` keeps alive. Shape and strides are copied.
///
/// `raw` is a copy and not a reference: if a check fails, dropping `owner` frees the struct that it came from.
///
/// # Errors
/// When a check fails; `owner` is dropped.
///
/// # Safety
/// The shape and strides pointers, unless null, point to `ndim` numbers until `owner` is dropped. The memory of the tensor is
/// valid while `owner` exists, also for writing if `access` allows it.
#[inline(always)]
pub unsafe fn borrow<O>(raw: RawTensor, access: Access, padded: bool, owner: O) -> Result<Tensor<O>> {
    let Some(kind) = DeviceKind::from_code(raw.device.device_type) else {
        return Err(Error::invalid_tensor(format!(
            "the tensor is on a device of unknown kind {}",
            raw.device.device_type
        )));
    };
    let device = match kind {
        // Frameworks number their CPU devices differently, but all are host memory.
        DeviceKind::Cpu => Device::CPU,
        kind => Device { kind, index: raw.device.device_id },
    };
    if !(0..=MAX_RANK).contains(&raw.ndim) {
        return Err(Error::invalid_tensor(format!(
            "the tensor has an invalid number of dimensions: {}",
            raw.ndim
        )));
    }
    let rank = raw.ndim as usize;
    if rank > 0 && raw.shape.is_null() {
        return Err(Error::invalid_tensor(format!("the tensor has {rank} dimensions and no shape")));
    }
    // SAFETY: the contract of this function: a shape pointer that is not null, which was checked, points to `ndim` numbers.
    let shape = if rank == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(raw.shape, rank) } };
    let dtype = element_type(raw.dtype, padded)?;
    let layout = if rank == 0 || raw.strides.is_null() {
        Layout::dense(dtype.size(), shape)?
    } else {
        // SAFETY: the contract of this function: a strides pointer that is not null, which was checked, points to `ndim`
        // numbers.
        let strides = unsafe { std::slice::from_raw_parts(raw.strides, rank) };
        Layout::strided_by_element(dtype.size(), shape, strides)?
    };
    let data = raw.data.cast::<u8>();
    let data = match usize::try_from(raw.byte_offset).ok().and_then(|offset| data.addr().checked_add(offset))
    {
        _ if data.is_null() => data,
        Some(address) => data.with_addr(address),
        None => {
            return Err(Error::invalid_tensor(format!(
                "the byte offset of the tensor overflows: {}",
                raw.byte_offset
            )));
        }
    };
    // SAFETY: the contract of this function: the memory of the tensor is valid while `owner` exists, also for writing if
    // `access` allows it. `data` is the address that DLPack defines: the data pointer plus the byte offset.
    unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, access, owner) }
}

fn element_type(code: RawDType, padded: bool) -> Result<DType> {
    if code.lanes != 1 {
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!(
                "elements of {} lanes (DLPack type code {}, {} bits) are not supported",
                code.lanes, code.code, code.bits
            ),
        )
        .with_hint(hints::VIEW_AS_BYTES));
    }
    let Some(dtype) = DType::from_dlpack_code(code.code, code.bits) else {
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("DLPack type code {} with {} bits is not supported", code.code, code.bits),
        )
        .with_hint(hints::CAST_OR_VIEW_AS_BYTES));
    };
    if dtype.bits() < 8 && !padded {
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("{dtype} elements that are packed several per byte are not supported"),
        )
        .with_hint(hints::UNPACK_OR_VIEW_AS_BYTES));
    }
    Ok(dtype)
}

#[cfg(test)]
mod tests {
    use super::super::abi::{RawDevice, Version};
    use super::*;
    use std::ptr;

    struct Foreign {
        memory: Vec<f32>,
        shape: Vec<i64>,
        strides: Vec<i64>,
    }

    impl Foreign {
        fn new() -> Self {
            Self { memory: vec![1.0; 6], shape: vec![2, 3], strides: vec![3, 1] }
        }

        fn raw(&mut self) -> RawTensor {
            RawTensor {
                data: self.memory.as_mut_ptr().cast(),
                device: RawDevice { device_type: 1, device_id: 0 },
                ndim: self.shape.len() as i32,
                dtype: RawDType { code: 2, bits: 32, lanes: 1 },
                shape: self.shape.as_mut_ptr(),
                strides: self.strides.as_mut_ptr(),
                byte_offset: 0,
            }
        }
    }

    fn check(change: impl FnOnce(&mut RawTensor)) -> Result<Tensor<()>> {
        check_foreign(Foreign::new(), false, change)
    }

    fn check_foreign(
        mut foreign: Foreign,
        padded: bool,
        change: impl FnOnce(&mut RawTensor),
    ) -> Result<Tensor<()>> {
        let mut raw = foreign.raw();
        change(&mut raw);
        // SAFETY: the vectors of `foreign` have `ndim` numbers and outlive the call, or the test has set a pointer to null or a
        // rank that is rejected before they are read. No test reads the memory of the result.
        unsafe { borrow(raw, Access::ReadWrite, padded, ()) }
    }

    #[test]
    fn a_good_tensor_passes() {
        let tensor = check(|_| ()).unwrap();
        assert_eq!((tensor.dtype(), tensor.layout().shape()), (DType::Float32, &[2, 3][..]));
        assert!(tensor.layout().is_dense());
    }

    #[test]
    fn null_strides_mean_dense() {
        assert!(check(|raw| raw.strides = ptr::null_mut()).unwrap().layout().is_dense());
    }

    #[test]
    fn the_offset_moves_the_data() {
        let mut start = 0;
        let tensor = check(|raw| {
            start = raw.data as usize;
            raw.byte_offset = 4;
            raw.ndim = 1;
        })
        .unwrap();
        assert_eq!(tensor.data() as usize, start + 4);
    }

    #[test]
    fn an_offset_that_overflows_is_refused() {
        assert_eq!(check(|raw| raw.byte_offset = u64::MAX).unwrap_err().kind(), ErrorKind::InvalidTensor);
    }

    #[test]
    fn an_unknown_device_is_refused() {
        assert!(check(|raw| raw.device.device_type = 77).unwrap_err().fact().contains("77"));
    }

    #[test]
    fn a_rank_that_is_garbage_is_refused() {
        assert!(check(|raw| raw.ndim = -1).is_err());
        assert!(check(|raw| raw.ndim = 1 << 20).is_err());
    }

    #[test]
    fn a_missing_shape_is_refused() {
        assert!(check(|raw| raw.shape = ptr::null_mut()).is_err());
    }

    #[test]
    fn a_negative_shape_is_refused() {
        let mut foreign = Foreign::new();
        foreign.shape[1] = -5;
        let error = check_foreign(foreign, false, |_| ()).unwrap_err();
        assert_eq!(error.fact(), "shape dimension 1 is negative: -5");
    }

    #[test]
    fn null_data_is_refused_unless_empty() {
        assert_eq!(check(|raw| raw.data = ptr::null_mut()).unwrap_err().kind(), ErrorKind::NotATensor);
        let mut foreign = Foreign::new();
        foreign.shape[0] = 0;
        assert!(check_foreign(foreign, false, |raw| raw.data = ptr::null_mut()).is_ok());
    }

    #[test]
    fn vector_types_and_unknown_types_are_refused() {
        assert_eq!(check(|raw| raw.dtype.lanes = 4).unwrap_err().kind(), ErrorKind::UnsupportedDType);
        assert_eq!(check(|raw| raw.dtype.code = 3).unwrap_err().kind(), ErrorKind::UnsupportedDType);
    }

    #[test]
    fn packed_elements_are_refused_and_padded_ones_taken() {
        let four_bits = |raw: &mut RawTensor| raw.dtype = RawDType { code: 0, bits: 4, lanes: 1 };
        assert!(check(four_bits).is_err());
        assert_eq!(check_foreign(Foreign::new(), true, four_bits).unwrap().dtype(), DType::Int4);
    }

    #[test]
    fn another_major_version_is_refused_and_released() {
        unsafe extern "C" fn release(managed: *mut ManagedTensorVersioned) {
            // SAFETY: `from_versioned` passes the valid struct below, whose context is the counter of the test, which outlives
            // it.
            unsafe { *(*managed).manager_ctx.cast::<u32>() += 1 };
        }
        let mut released = 0u32;
        let mut foreign = Foreign::new();
        let mut managed = ManagedTensorVersioned {
            version: Version { major: 2, minor: 0 },
            manager_ctx: ptr::from_mut(&mut released).cast(),
            deleter: Some(release),
            flags: 0,
            dl_tensor: foreign.raw(),
        };
        // SAFETY: the struct is valid, its vectors outlive the call, and nothing else releases it.
        let error = unsafe { from_versioned(NonNull::from(&mut managed)) }.unwrap_err();
        assert!(error.fact().contains("2.0"));
        assert_eq!(released, 1);
    }

    /// The deleter of a real producer frees the struct, also if the import fails after it has read parts of it.
    #[test]
    fn a_refused_struct_is_freed_by_its_deleter() {
        unsafe extern "C" fn free_versioned(managed: *mut ManagedTensorVersioned) {
            // SAFETY: the test made the struct with `Box::new`, and the deleter is called once.
            drop(unsafe { Box::from_raw(managed) });
        }
        unsafe extern "C" fn free_legacy(managed: *mut ManagedTensor) {
            // SAFETY: the test made the struct with `Box::new`, and the deleter is called once.
            drop(unsafe { Box::from_raw(managed) });
        }
        let mut foreign = Foreign::new();
        let vectors = RawDType { code: 2, bits: 32, lanes: 4 };
        let dl_tensor = RawTensor { dtype: vectors, ..foreign.raw() };
        let versioned = ManagedTensorVersioned {
            version: VERSION,
            manager_ctx: ptr::null_mut(),
            deleter: Some(free_versioned),
            flags: 0,
            dl_tensor,
        };
        let legacy = ManagedTensor { dl_tensor, manager_ctx: ptr::null_mut(), deleter: Some(free_legacy) };
        // SAFETY: both structs are valid, their vectors outlive the calls, and nothing else releases them.
        let errors = unsafe {
            [
                from_versioned(NonNull::from(Box::leak(Box::new(versioned)))).unwrap_err(),
                from_legacy(NonNull::from(Box::leak(Box::new(legacy)))).unwrap_err(),
            ]
        };
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::UnsupportedDType));
    }

    #[test]
    fn the_read_only_flag_is_kept() {
        let mut foreign = Foreign::new();
        let mut managed = ManagedTensorVersioned {
            version: VERSION,
            manager_ctx: ptr::null_mut(),
            deleter: None,
            flags: FLAG_READ_ONLY,
            dl_tensor: foreign.raw(),
        };
        // SAFETY: the struct is valid, and it and its vectors outlive the tensor. Without a deleter nothing is released.
        let tensor = unsafe { from_versioned(NonNull::from(&mut managed)) }.unwrap();
        assert_eq!(tensor.access(), Access::ReadOnly);
    }
}
