//! Exports tensors by DLPack: one heap block with the struct, the shape, the strides and the owner.
//!
//! Pinned memory is exported as host memory and managed memory as GPU memory, because consumers use them so, and no framework
//! imports the other device types of another library.
//!
//! DLPack does not say who releases a tensor when a consumer fails to import it, and consumers differ. PyTorch leaves the
//! tensor alone when it fails early, and releases it when it fails late (no memory for its storage object). A producer
//! that released it in both cases would free it twice, and one that never did would leak. An [`ExportOffer`] therefore owns
//! the block until the import is over: a release by the consumer drops the owner and sets the state of the block.

use super::abi::{
    FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, ManagedTensor, ManagedTensorVersioned, RawDType, RawDevice,
    RawTensor, VERSION,
};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{self, Numbers};
use crate::tensor::{Access, ByteOrder, Tensor};
use std::alloc;
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

/// The heap block of an exported tensor, which starts with the struct.
#[repr(C)]
struct Exported<M, O> {
    managed: M,
    /// Shape, then strides.
    numbers: Numbers,
    /// Dropped once, by the release.
    owner: ManuallyDrop<O>,
    /// `CONSUMED`, `OFFERED` or `RELEASED`.
    state: AtomicU8,
}

/// The consumer's release frees the block.
const CONSUMED: u8 = 0;
/// An [`ExportOffer`] frees the block.
const OFFERED: u8 = 1;
/// A [`ExportOffer`] frees the block, and the consumer has released it already.
const RELEASED: u8 = 2;

/// An exported tensor during its import by a consumer.
///
/// Its drop releases the tensor, unless the consumer has done that. After a successful import, [`ExportOffer::taken`] gives
/// the tensor to the consumer. A consumer whose import fails releases the tensor before the import returns, or never.
#[derive(Debug)]
pub struct ExportOffer<M, O>(NonNull<Exported<M, O>>);

impl<M, O> ExportOffer<M, O> {
    /// The struct for the consumer, which may release it once.
    #[inline]
    pub fn managed(&self) -> NonNull<M> {
        self.0.cast()
    }

    /// Whether the consumer has released the tensor.
    pub fn is_released(&self) -> bool {
        // SAFETY: the block is allocated: `release` does not free it in the state `OFFERED`, in which `offer_versioned` and
        // `offer_legacy` made it, and `taken` and `drop`, which free it, consume the offer. The field is initialised, and an
        // atomic.
        unsafe { (*self.0.as_ptr()).state.load(Ordering::Acquire) == RELEASED }
    }

    /// Gives the tensor to the consumer.
    #[inline]
    pub fn taken(self) {
        let block = self.0.as_ptr();
        mem::forget(self);
        // SAFETY: the block is allocated until the swap, because `release` does not free it in the state `OFFERED`. If the swap
        // reads `OFFERED`, `release` frees the block and this function does not touch it again. If it reads `RELEASED`,
        // `release` is over and has dropped the owner, and the block, which has the layout of a `Box`, is freed here once.
        unsafe {
            if (*block).state.swap(CONSUMED, Ordering::AcqRel) == RELEASED {
                drop(Box::from_raw(block));
            }
        }
    }
}

impl<M, O> Drop for ExportOffer<M, O> {
    fn drop(&mut self) {
        let block = self.0.as_ptr();
        // SAFETY: the block is allocated, because `release` does not free it in the state `OFFERED`, and has the layout of a
        // `Box`. A consumer releases before its import ends or never, so `release` does not run now. In the state `OFFERED` it
        // did not run before either: the owner is dropped once, and the block is freed once.
        unsafe {
            if (*block).state.load(Ordering::Acquire) == OFFERED {
                ManuallyDrop::drop(&mut (*block).owner);
            }
            drop(Box::from_raw(block));
        }
    }
}

// SAFETY: the offer is the only value that refers to the block, beside the consumer's pointer, whose accesses are ordered by
// the atomic state. The struct and the numbers are plain data, and the owner is `Send` by the bound.
unsafe impl<M, O: Send> Send for ExportOffer<M, O> {}

/// Exports with a version, with the read-only flag, and with the padding flag for types narrower than a byte.
///
/// # Errors
/// When DLPack cannot express the tensor: a stride that is not a multiple of the element size, or swapped bytes.
#[inline(always)]
pub fn to_versioned<O: Send + 'static>(tensor: Tensor<O>) -> Result<NonNull<ManagedTensorVersioned>> {
    versioned(tensor, CONSUMED).map(NonNull::cast)
}

/// As [`to_versioned`], with another owner than the tensor's, so that the tensor is not moved.
///
/// # Errors
/// As [`to_versioned`].
///
/// # Safety
/// The owner keeps the memory valid, for the accesses that the tensor permits, as long as it exists.
#[inline(always)]
pub unsafe fn to_versioned_by<O, P: Send + 'static>(
    tensor: &Tensor<O>,
    owner: P,
) -> Result<NonNull<ManagedTensorVersioned>> {
    // SAFETY: `versioned_block` returned this block, and nothing has written an owner into it.
    versioned_block::<O, P>(tensor, CONSUMED).map(|block| unsafe { owned_by(block, owner) }.cast())
}

/// As [`to_versioned`], for a consumer whose import may fail.
///
/// # Errors
/// As [`to_versioned`].
#[inline(always)]
pub fn offer_versioned<O: Send + 'static>(
    tensor: Tensor<O>,
) -> Result<ExportOffer<ManagedTensorVersioned, O>> {
    versioned(tensor, OFFERED).map(ExportOffer)
}

#[inline(always)]
fn versioned<O: Send + 'static>(
    tensor: Tensor<O>,
    state: u8,
) -> Result<NonNull<Exported<ManagedTensorVersioned, O>>> {
    let block = versioned_block::<O, O>(&tensor, state)?;
    // SAFETY: `versioned_block` returned this block, and nothing has written an owner into it.
    Ok(unsafe { owned_by(block, tensor.into_owner()) })
}

/// A block without its owner.
#[inline(always)]
fn versioned_block<O, P: Send + 'static>(
    tensor: &Tensor<O>,
    state: u8,
) -> Result<NonNull<Exported<ManagedTensorVersioned, P>>> {
    let mut flags = if tensor.access() == Access::ReadOnly { FLAG_READ_ONLY } else { 0 };
    if tensor.dtype().bits() < 8 {
        flags |= FLAG_SUBBYTE_PADDED;
    }
    exported(tensor, state, |dl_tensor, block| ManagedTensorVersioned {
        version: VERSION,
        manager_ctx: block,
        deleter: Some(release_versioned::<P>),
        flags,
        dl_tensor,
    })
}

/// Whether [`to_versioned`] made the struct, from a tensor with this type of owner.
pub fn is_own_export<O: Send + 'static>(managed: &ManagedTensorVersioned) -> bool {
    managed.deleter.is_some_and(|deleter| {
        ptr::fn_addr_eq(deleter, release_versioned::<O> as unsafe extern "C" fn(*mut ManagedTensorVersioned))
    })
}

/// Exports without a version, for consumers that do not support versions. It has no read-only flag: the planner uses it
/// only for frameworks that do not write.
///
/// # Errors
/// As [`to_versioned`], and for types narrower than a byte, whose padding it cannot express.
pub fn to_legacy<O: Send + 'static>(tensor: Tensor<O>) -> Result<NonNull<ManagedTensor>> {
    legacy(tensor, CONSUMED).map(NonNull::cast)
}

/// As [`to_legacy`], for a consumer whose import may fail.
///
/// # Errors
/// As [`to_legacy`].
pub fn offer_legacy<O: Send + 'static>(tensor: Tensor<O>) -> Result<ExportOffer<ManagedTensor, O>> {
    legacy(tensor, OFFERED).map(ExportOffer)
}

fn legacy<O: Send + 'static>(tensor: Tensor<O>, state: u8) -> Result<NonNull<Exported<ManagedTensor, O>>> {
    if tensor.dtype().bits() < 8 {
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("a DLPack capsule without a version cannot contain {}", tensor.dtype()),
        ));
    }
    let block = exported(&tensor, state, |dl_tensor, block| ManagedTensor {
        dl_tensor,
        manager_ctx: block,
        deleter: Some(release_legacy::<O>),
    })?;
    // SAFETY: `exported` returned this block, and nothing has written an owner into it.
    Ok(unsafe { owned_by(block, tensor.into_owner()) })
}

/// Allocates the block and writes all fields but the owner, in place, so that the tensor is not moved.
#[inline(always)]
fn exported<M, O, P>(
    tensor: &Tensor<O>,
    state: u8,
    wrap: impl FnOnce(RawTensor, *mut std::ffi::c_void) -> M,
) -> Result<NonNull<Exported<M, P>>> {
    let layout = tensor.layout();
    if tensor.order() != ByteOrder::Native {
        return Err(Error::new(
            ErrorKind::UnsupportedLayout,
            "the tensor is byte-swapped, which DLPack cannot express",
        ));
    }
    let (code, bits) = tensor.dtype().dlpack_code();
    let rank = layout.rank();
    let device = tensor.device().physical();
    let mut raw = RawTensor {
        data: if layout.is_empty() { ptr::null_mut() } else { tensor.data().cast() },
        device: RawDevice { device_type: device.kind as i32, device_id: device.index },
        ndim: rank as i32,
        dtype: RawDType { code, bits, lanes: 1 },
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let size = alloc::Layout::new::<Exported<M, P>>();
    // SAFETY: `alloc` requires a size that is not zero: the block has an atomic. The block was checked for null, and is aligned
    // and large enough for its type, so its fields may be written and the numbers, once written, borrowed. Where the
    // block is not returned, the numbers are dropped and the block is freed, with the layout of its allocation. There are
    // `2 * rank` numbers, so the strides start within them; the numbers do not move before the block is freed.
    unsafe {
        let block = alloc::alloc(size).cast::<Exported<M, P>>();
        if block.is_null() {
            return Err(Error::out_of_memory(size.size()));
        }
        (&raw mut (*block).state).write(AtomicU8::new(state));
        (&raw mut (*block).numbers).write(layout::zeros(rank));
        if !layout.write_in_elements(&mut (*block).numbers) {
            ptr::drop_in_place(&raw mut (*block).numbers);
            alloc::dealloc(block.cast(), size);
            return Err(Error::new(
                ErrorKind::UnsupportedLayout,
                "a stride is not a multiple of the element size, which DLPack cannot express",
            ));
        }
        if rank > 0 {
            raw.shape = (*block).numbers.as_mut_ptr();
            raw.strides = raw.shape.add(rank);
        }
        (&raw mut (*block).managed).write(wrap(raw, block.cast()));
        Ok(NonNull::new_unchecked(block))
    }
}

/// Writes the owner into a block.
///
/// # Safety
/// The block is fresh from [`exported`], and has no owner yet.
#[inline(always)]
unsafe fn owned_by<M, O>(block: NonNull<Exported<M, O>>, owner: O) -> NonNull<Exported<M, O>> {
    // SAFETY: the contract of this function: `exported` allocated the block, and the field has no value that would be lost.
    unsafe { (&raw mut (*block.as_ptr()).owner).write(ManuallyDrop::new(owner)) };
    block
}

/// Drops the owner, and frees the block unless an [`ExportOffer`] does.
///
/// # Safety
/// The block comes from [`exported`], has an owner, and is released once.
#[inline(always)]
unsafe fn release<M, O>(block: *mut Exported<M, O>) {
    // SAFETY: the contract of this function: the block is allocated and has an owner, which only this call drops. In the state
    // `OFFERED` the block stays allocated, and after the swap to `RELEASED` the offer frees it. In any other state this is the
    // last access, and the block, which `exported` allocated with the layout of a `Box`, is freed here.
    unsafe {
        ManuallyDrop::drop(&mut (*block).owner);
        let state = &(*block).state;
        if state.load(Ordering::Acquire) == OFFERED && state.swap(RELEASED, Ordering::AcqRel) == OFFERED {
            return;
        }
        drop(Box::from_raw(block));
    }
}

unsafe extern "C" fn release_versioned<O>(managed: *mut ManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: DLPack requires the consumer to pass the struct that `versioned::<O>` made, once. The struct is the first
        // field of its block (`repr(C)`), and the pointer was made from that to the block, so it may access all of it.
        unsafe { release(managed.cast::<Exported<ManagedTensorVersioned, O>>()) };
    }
}

unsafe extern "C" fn release_legacy<O>(managed: *mut ManagedTensor) {
    if !managed.is_null() {
        // SAFETY: DLPack requires the consumer to pass the struct that `legacy::<O>` made, once. The struct is the first field
        // of its block (`repr(C)`), and the pointer was made from that to the block, so it may access all of it.
        unsafe { release(managed.cast::<Exported<ManagedTensor, O>>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{from_legacy, from_versioned};
    use super::*;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::layout::Layout;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn tensor(dtype: DType, shape: &[i64], access: Access) -> (Tensor<Arc<Vec<u8>>>, Arc<Vec<u8>>) {
        let layout = Layout::dense(dtype.size(), shape).unwrap();
        let memory = Arc::new(vec![7u8; layout.bytes().max(1)]);
        let data = memory.as_ptr().cast_mut();
        // SAFETY: the vector has as many bytes as the layout, and the `Arc` keeps it while the tensor lives. No test writes.
        let tensor = unsafe {
            Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, access, Arc::clone(&memory))
        };
        (tensor.unwrap(), memory)
    }

    #[test]
    fn a_round_trip_preserves_the_tensor_and_frees_it() {
        for dtype in DType::all() {
            let (sent, memory) = tensor(dtype, &[2, 1, 3], Access::ReadOnly);
            let address = sent.data();
            let managed = to_versioned(sent).unwrap();
            // SAFETY: `to_versioned` made the struct, and nothing else releases it.
            let back = unsafe { from_versioned(managed) }.unwrap();
            assert_eq!((back.dtype(), back.data(), back.access()), (dtype, address, Access::ReadOnly));
            assert_eq!(back.layout().shape(), [2, 1, 3]);
            assert!(back.layout().is_dense());
            assert_eq!(Arc::strong_count(&memory), 2);
            drop(back);
            assert_eq!(Arc::strong_count(&memory), 1);
        }
    }

    #[test]
    fn a_legacy_round_trip_ends_on_another_thread() {
        let (sent, memory) = tensor(DType::Float64, &[5], Access::ReadWrite);
        let managed = to_legacy(sent).unwrap();
        // SAFETY: `to_legacy` made the struct, and nothing else releases it.
        let back = unsafe { from_legacy(managed) }.unwrap();
        std::thread::spawn(move || drop(back)).join().unwrap();
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    /// What a consumer does with an offered tensor.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Consumer {
        Takes,
        TakesAndReleases,
        FailsEarly,
        FailsLate,
    }

    #[test]
    fn an_offered_tensor_is_released_once() {
        use Consumer::{FailsEarly, FailsLate, Takes, TakesAndReleases};
        for consumer in [Takes, TakesAndReleases, FailsEarly, FailsLate] {
            let (sent, memory) = tensor(DType::Float32, &[2, 3], Access::ReadWrite);
            let offer = offer_versioned(sent).unwrap();
            let managed = offer.managed();
            if matches!(consumer, TakesAndReleases | FailsLate) {
                // SAFETY: `offer_versioned` made the struct; this drop is the only release by a consumer.
                drop(unsafe { from_versioned(managed) }.unwrap());
                assert_eq!(Arc::strong_count(&memory), 1, "{consumer:?}: the owner is dropped at once");
            }
            assert_eq!(offer.is_released(), matches!(consumer, TakesAndReleases | FailsLate));
            match consumer {
                Takes => {
                    offer.taken();
                    assert_eq!(Arc::strong_count(&memory), 2);
                    // SAFETY: `taken` gave the struct to this consumer, which releases it once.
                    drop(unsafe { from_versioned(managed) }.unwrap());
                }
                TakesAndReleases => offer.taken(),
                FailsEarly | FailsLate => drop(offer),
            }
            assert_eq!(Arc::strong_count(&memory), 1, "{consumer:?}");
        }
    }

    #[test]
    fn a_release_on_another_thread_races_with_the_end_of_the_offer() {
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let (sent, memory) = tensor(DType::Float32, &[2], Access::ReadWrite);
            let offer = offer_legacy(sent).unwrap();
            // SAFETY: `offer_legacy` made the struct; the drop on the other thread is the only release by a consumer.
            let theirs = unsafe { from_legacy(offer.managed()) }.unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(theirs));
                offer.taken();
            });
            assert_eq!(Arc::strong_count(&memory), 1);
        }
    }

    #[test]
    fn legacy_exports_reject_narrow_types() {
        assert!(to_legacy(tensor(DType::Int4, &[2], Access::ReadWrite).0).is_err());
    }

    #[test]
    fn empty_tensors_are_exported_with_null_data() {
        let managed = to_versioned(tensor(DType::Int16, &[0, 3], Access::ReadWrite).0).unwrap();
        // SAFETY: `to_versioned` made the struct, and nothing releases it before the drop of the import.
        let (data, imported) = unsafe { (managed.as_ref().dl_tensor.data, from_versioned(managed)) };
        assert!(data.is_null() && imported.unwrap().layout().is_empty());
    }

    #[test]
    fn a_stride_that_is_not_a_multiple_of_the_element_is_rejected() {
        let memory = [0u8; 14];
        let data = memory.as_ptr().cast_mut();
        // The numbers of five dimensions have an allocation of their own.
        for (shape, strides) in [(&[3][..], &[5][..]), (&[3, 1, 1, 1, 1], &[5, 4, 4, 4, 4])] {
            let layout = Layout::strided(4, shape, strides).unwrap();
            // SAFETY: three elements of four bytes with a stride of five have an extent of 14 bytes, the length of the array, which
            // outlives the tensor. Nothing writes.
            let tensor = unsafe {
                Tensor::new(data, DType::Int32, layout, Device::CPU, ByteOrder::Native, Access::ReadOnly, ())
            };
            assert_eq!(to_versioned(tensor.unwrap()).unwrap_err().kind(), ErrorKind::UnsupportedLayout);
        }
    }

    proptest! {
        #[test]
        fn any_rank_is_exported(shape in proptest::collection::vec(0i64..3, 0..12)) {
            let (sent, memory) = tensor(DType::Int16, &shape, Access::ReadWrite);
            // SAFETY: `to_versioned` made the struct, and nothing else releases it.
            let back = unsafe { from_versioned(to_versioned(sent).unwrap()) }.unwrap();
            prop_assert_eq!(back.layout().shape(), &shape[..]);
            drop(back);
            prop_assert_eq!(Arc::strong_count(&memory), 1);
        }
    }
}
