//! A tensor in memory of another process.

use super::memory::unsupported_device;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::fmt;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Tensor as CoreTensor};

/// A tensor in memory of another process, and a lease on it.
///
/// It is not a [`Tensor`], because the other process may write the memory at any time. [`to_host`](Self::to_host) copies it.
/// [`share`](Self::share) makes a tensor over the memory, and is `unsafe`.
#[derive(Clone)]
pub struct AttachedTensor {
    tensor: tensorferry_share::AttachedTensor,
    shape: SmallVec<[usize; 4]>,
}

impl AttachedTensor {
    pub(super) fn new(tensor: tensorferry_share::AttachedTensor) -> Self {
        // A layout has no negative lengths.
        let shape = tensor.layout().shape().iter().map(|&length| length as usize).collect();
        Self { tensor, shape }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The distance between neighbours in each dimension, in bytes. It may be zero or negative.
    pub fn strides(&self) -> &[i64] {
        self.tensor.layout().strides()
    }

    /// The device, with the index that a GPU has in this process.
    pub fn device(&self) -> Device {
        self.tensor.device()
    }

    /// Whether the producer published it as writable.
    pub fn is_writable(&self) -> bool {
        self.tensor.access() == Access::ReadWrite
    }

    /// A dense copy in host memory.
    ///
    /// If another process writes the memory meanwhile, the copy has some of the old and some of the new bytes.
    ///
    /// # Errors
    /// When memory runs out, or the tensor is on a GPU that fails. A tensor on a GPU needs the feature `cuda`.
    pub fn to_host(&self) -> Result<Tensor> {
        let device = self.device();
        if !device.is_host() {
            return self.download();
        }
        let layout = self.tensor.layout();
        if layout.is_empty() {
            return Tensor::zeros(self.dtype(), self.shape());
        }
        let (low, high) = layout.extent();
        let bytes = (high - low) as usize;
        let block = HostBlock::new(bytes).map_err(Error::from_core)?;
        // SAFETY: `attach` accepts only layouts whose extent is in the mapping, which `self.tensor` keeps. The block is new and has
        // as many bytes.
        unsafe { copy_changing(self.tensor.data().wrapping_offset(low as isize), block.data(), bytes) };
        let data = block.data().wrapping_offset(low.wrapping_neg() as isize);
        let (dtype, layout, owner) = (self.dtype(), layout.clone(), Memory::Host(block));
        // SAFETY: the extent of the layout around `data` is the block, which is writable and lives as long as the owner.
        let copy = unsafe {
            CoreTensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner)
                .map_err(Error::from_core)?
        };
        // SAFETY: `copy_changing` has written every byte of the block, which nothing else uses.
        let copy = unsafe { Tensor::from_parts(copy) };
        if copy.is_dense() { Ok(copy) } else { copy.pack() }
    }

    /// A read-only tensor over the memory, without a copy. It holds the lease, as its clones and views do.
    ///
    /// # Errors
    /// When the description cannot be one of a tensor.
    ///
    /// # Safety
    /// While the result or a handle on its memory exists, nothing writes the elements, in this process or another.
    ///
    /// The memory of a Rust producer without [`publish_writable`](super::publish_writable) meets this. The
    /// memory of a Python producer meets it if no program writes the published tensor, whose memory is often still that of an
    /// array in Python.
    pub unsafe fn share(&self) -> Result<Tensor> {
        // SAFETY: the contract of this function.
        unsafe { self.over_memory(Access::ReadOnly) }
    }

    /// A writable tensor over the memory, without a copy. Other processes see what is written.
    ///
    /// # Errors
    /// When the producer published the memory as read-only.
    ///
    /// # Safety
    /// While the result or a handle on its memory exists, nothing else reads or writes the elements, in this process or
    /// another. Processes that take turns do that by agreement, and drop the tensor before another's turn.
    pub unsafe fn share_mut(&self) -> Result<Tensor> {
        if !self.is_writable() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the producer published the tensor as read-only",
                "write to a copy: to_host()",
            ));
        }
        // SAFETY: the contract of this function, and the mapping is writable, which was checked above.
        unsafe { self.over_memory(Access::ReadWrite) }
    }

    /// # Safety
    /// As [`Tensor::from_parts`] requires for this access. The mapping permits the access.
    unsafe fn over_memory(&self, access: Access) -> Result<Tensor> {
        let tensor = &self.tensor;
        let (data, dtype, layout, device) =
            (tensor.data(), tensor.dtype(), tensor.layout().clone(), tensor.device());
        let owner = Memory::other(tensor.clone());
        // SAFETY: `attach` accepts only layouts whose extent is in the mapping. The owner keeps the mapping, which permits the
        // access by the contract of this function.
        let shared = unsafe {
            CoreTensor::new(data, dtype, layout, device, ByteOrder::Native, access, owner)
                .map_err(Error::from_core)?
        };
        // SAFETY: mapped bytes have values, and the caller upholds the other clauses.
        Ok(unsafe { Tensor::from_parts(shared) })
    }

    #[cfg(feature = "cuda")]
    fn download(&self) -> Result<Tensor> {
        if !self.device().is_cuda() {
            return Err(unsupported_device(self.device()));
        }
        // SAFETY: only the driver reads the tensor, which does not escape from this function. If another process writes it
        // meanwhile, the driver transfers some of the old and some of the new bytes.
        unsafe { self.share()? }.to_host()
    }

    #[cfg(not(feature = "cuda"))]
    fn download(&self) -> Result<Tensor> {
        Err(unsupported_device(self.device()))
    }
}

impl fmt::Debug for AttachedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttachedTensor({} {:?} on {})", self.dtype(), self.shape, self.device())
    }
}

/// Copies memory that another process may write meanwhile. The reads are volatile: each byte is read once, and the compiler does
/// not assume that the memory is unchanged.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `bytes` bytes. They do not overlap, and nothing else uses `to`. Nothing in
/// this process writes `from`.
unsafe fn copy_changing(from: *const u8, to: *mut u8, bytes: usize) {
    const WORD_BYTES: usize = size_of::<u64>();
    let head = from.align_offset(WORD_BYTES).min(bytes);
    let words = (bytes - head) / WORD_BYTES;
    // SAFETY: every index is below `bytes`, for which the caller vouches. `from` is aligned for words after `head` bytes, and the
    // writes to `to` do not require alignment.
    unsafe {
        let copy_byte = |index: usize| to.add(index).write(from.add(index).read_volatile());
        (0..head).for_each(copy_byte);
        for index in 0..words {
            let offset = head + index * WORD_BYTES;
            to.add(offset).cast::<u64>().write_unaligned(from.add(offset).cast::<u64>().read_volatile());
        }
        (head + words * WORD_BYTES..bytes).for_each(copy_byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_from_any_offset() {
        let source: Vec<u8> = (1..=64).collect();
        for start in 0..17 {
            for length in 0..40 {
                let mut copied = vec![0u8; length + 1];
                // SAFETY: both are vectors with more bytes than `length` from these addresses on.
                unsafe { copy_changing(source[start..].as_ptr(), copied.as_mut_ptr(), length) };
                assert_eq!(copied[..length], source[start..start + length]);
                assert_eq!(copied[length], 0);
            }
        }
    }
}
