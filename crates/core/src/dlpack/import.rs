//! Imports DLPack tensors of other libraries, and validates them once.
//!
//! The checks run in a fixed order, each with its own message and test: version, device, rank, shape and strides pointers,
//! element type, packing, layout arithmetic, offset, null data. What cannot be checked, such as the size of the memory, is
//! part of the `unsafe` contract.

use super::abi::{
    FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, ManagedTensor, ManagedTensorVersioned, RawTensor, VERSION,
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
///     // SAFETY: the caller's contract.
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

// SAFETY: DLPack requires that the deleter may be called from any thread; the struct has one owner.
unsafe impl Send for ManagedOwner {}

impl Drop for ManagedOwner {
    fn drop(&mut self) {
        match self.0 {
            ManagedPointer::Legacy(managed) => {
                // SAFETY: we own the struct (the contract of `ManagedOwner::legacy`) and drop it once.
                unsafe {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
            ManagedPointer::Versioned(managed) => {
                // SAFETY: we own the struct (the contract of `ManagedOwner::versioned`) and drop it once.
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
    // SAFETY: valid by contract; version, deleter and flags have the same offsets in every version.
    let (version, flags) = unsafe { (managed.as_ref().version, managed.as_ref().flags) };
    // SAFETY: the caller's contract.
    let owner = unsafe { ManagedOwner::versioned(managed) };
    if version.major != VERSION.major {
        return Err(Error::invalid_tensor(format!(
            "the tensor has DLPack version {}.{}",
            version.major, version.minor
        ))
        .with_hint_value(hints::UPDATE_DLPACK, VERSION.major.to_string()));
    }
    let access = if flags & FLAG_READ_ONLY != 0 { Access::ReadOnly } else { Access::ReadWrite };
    // SAFETY: valid by contract, and kept alive by `owner`, which the result holds.
    unsafe { borrow(&managed.as_ref().dl_tensor, access, flags & FLAG_SUBBYTE_PADDED != 0, owner) }
}

/// Imports a managed tensor without a version.
///
/// # Errors
/// When a check fails; the tensor has then been released.
///
/// # Safety
/// `managed` is a valid struct that nothing else releases.
pub unsafe fn from_legacy(managed: NonNull<ManagedTensor>) -> Result<Tensor<ManagedOwner>> {
    // SAFETY: the caller's contract.
    let owner = unsafe { ManagedOwner::legacy(managed) };
    // SAFETY: valid by contract, and kept alive by `owner`, which the result holds.
    unsafe { borrow(&managed.as_ref().dl_tensor, Access::ReadWrite, false, owner) }
}

/// Validates a DLPack tensor that `owner` keeps alive. Shape and strides are copied.
///
/// # Errors
/// When a check fails; `owner` is dropped.
///
/// # Safety
/// The shape and strides pointers, unless null, point to `ndim` numbers during this call. The memory of the tensor is valid
/// while `owner` exists, also for writing if `access` allows it.
#[inline(always)]
pub unsafe fn borrow<O>(raw: &RawTensor, access: Access, padded: bool, owner: O) -> Result<Tensor<O>> {
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
    // SAFETY: the caller vouches for `ndim` numbers at a shape pointer that is not null.
    let shape = if rank == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(raw.shape, rank) } };
    let dtype = element_type(raw, padded)?;
    let layout = if rank == 0 || raw.strides.is_null() {
        Layout::dense(dtype.size(), shape)?
    } else {
        // SAFETY: the caller vouches for `ndim` numbers at a strides pointer that is not null.
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
    // SAFETY: the caller vouches for the memory while `owner` exists.
    unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, access, owner) }
}

fn element_type(raw: &RawTensor, padded: bool) -> Result<DType> {
    let code = raw.dtype;
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
    use super::super::abi::{RawDType, RawDevice, Version};
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
        let mut foreign = Foreign::new();
        let mut raw = foreign.raw();
        change(&mut raw);
        // SAFETY: shape and strides are vectors of `ndim` numbers; the memory is not read.
        unsafe { borrow(&raw, Access::ReadWrite, false, ()) }
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
        let raw = foreign.raw();
        // SAFETY: as in `check`.
        let error = unsafe { borrow(&raw, Access::ReadWrite, false, ()) }.unwrap_err();
        assert_eq!(error.fact(), "shape dimension 1 is negative: -5");
    }

    #[test]
    fn null_data_is_refused_unless_empty() {
        assert_eq!(check(|raw| raw.data = ptr::null_mut()).unwrap_err().kind(), ErrorKind::NotATensor);
        let mut foreign = Foreign::new();
        foreign.shape[0] = 0;
        let mut raw = foreign.raw();
        raw.data = ptr::null_mut();
        // SAFETY: as in `check`.
        assert!(unsafe { borrow(&raw, Access::ReadWrite, false, ()) }.is_ok());
    }

    #[test]
    fn vector_types_and_unknown_types_are_refused() {
        assert_eq!(check(|raw| raw.dtype.lanes = 4).unwrap_err().kind(), ErrorKind::UnsupportedDType);
        assert_eq!(check(|raw| raw.dtype.code = 3).unwrap_err().kind(), ErrorKind::UnsupportedDType);
    }

    #[test]
    fn packed_elements_are_refused_and_padded_ones_taken() {
        assert!(check(|raw| raw.dtype = RawDType { code: 0, bits: 4, lanes: 1 }).is_err());
        let mut foreign = Foreign::new();
        let mut raw = foreign.raw();
        raw.dtype = RawDType { code: 0, bits: 4, lanes: 1 };
        // SAFETY: as in `check`.
        assert_eq!(unsafe { borrow(&raw, Access::ReadWrite, true, ()) }.unwrap().dtype(), DType::Int4);
    }

    #[test]
    fn another_major_version_is_refused_and_released() {
        unsafe extern "C" fn release(managed: *mut ManagedTensorVersioned) {
            // SAFETY: the context is the test's counter, alive for the whole test.
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
        // SAFETY: the struct is valid and released only here.
        let error = unsafe { from_versioned(NonNull::from(&mut managed)) }.unwrap_err();
        assert!(error.fact().contains("2.0"));
        assert_eq!(released, 1);
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
        // SAFETY: the struct is valid; without a deleter nothing is released.
        let tensor = unsafe { from_versioned(NonNull::from(&mut managed)) }.unwrap();
        assert_eq!(tensor.access(), Access::ReadOnly);
    }
}
