//! New host memory for tensors, and copies within host memory. Large ones run without the GIL.

use super::tree_memory;
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use std::mem::MaybeUninit;
use tensorferry_core::host::HostBlock;
use tensorferry_core::sparse::Index;
use tensorferry_core::{Access, ByteOrder, DType, Device, Error, ErrorKind, Layout, Tensor, pack};

/// Copies of at least this many bytes release the GIL. Below it, releasing the GIL costs more than it gains.
pub(crate) const DETACH_THRESHOLD_BYTES: usize = 64 << 10;

/// New host memory for a dense tensor, which has as many bytes as its layout.
pub(crate) struct NewArray {
    block: HostBlock,
    dtype: DType,
    layout: Layout,
}

impl NewArray {
    /// Memory that is not written yet.
    pub(crate) fn new(dtype: DType, shape: &[i64]) -> tensorferry_core::Result<Self> {
        let layout = Layout::dense(dtype.size(), shape)?;
        Ok(Self { block: HostBlock::new(layout.bytes())?, dtype, layout })
    }

    /// Memory for a copy, which may share a block with other copies of a tree. It is not written yet.
    fn for_copy(dtype: DType, shape: &[i64]) -> tensorferry_core::Result<Self> {
        let layout = Layout::dense(dtype.size(), shape)?;
        Ok(Self { block: tree_memory::new_block(layout.bytes())?, dtype, layout })
    }

    /// Memory full of zeros.
    pub(crate) fn zeroed(dtype: DType, shape: &[i64]) -> tensorferry_core::Result<Self> {
        let layout = Layout::dense(dtype.size(), shape)?;
        Ok(Self { block: HostBlock::zeroed(layout.bytes())?, dtype, layout })
    }

    pub(crate) fn data<T>(&self) -> SendPtr<T> {
        SendPtr(self.block.data().cast())
    }

    /// The elements of an index array, to be written.
    pub(crate) fn slots<I: Index>(&mut self) -> &mut [MaybeUninit<I>] {
        assert_eq!(self.dtype.size(), size_of::<I>());
        // SAFETY: `from_raw_parts_mut` requires valid, aligned memory that nothing else uses while the slice lives. Every constructor
        // allocated the bytes of the layout, aligned to 64 bytes; the array owns the block alone, and is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.block.data().cast(), self.layout.count()) }
    }

    /// The array as a tensor.
    ///
    /// # Safety
    /// Every element is written.
    pub(crate) unsafe fn tensor(self) -> tensorferry_core::Result<Tensor<Owner>> {
        // SAFETY: `tensor_in_block` requires a block with as many bytes as the dense layout: every constructor allocated it so. It
        // requires that every element is written, and so does this function.
        unsafe { tensor_in_block(self.block, self.dtype, self.layout) }
    }
}

/// A dense tensor in a block.
///
/// # Safety
/// The layout is dense, the block has as many bytes, and every element is written.
pub(crate) unsafe fn tensor_in_block(
    block: HostBlock,
    dtype: DType,
    layout: Layout,
) -> tensorferry_core::Result<Tensor<Owner>> {
    let data = block.data();
    let owner = Owner::Block(block);
    // SAFETY: `Tensor::new` requires readable and writable memory of the layout while the owner lives: the owner is the block, which
    // has these bytes, all written, by the contract of this function.
    unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner) }
}

/// A dense tensor whose elements are undefined, for a user who fills it, as `numpy.empty` returns.
pub(crate) fn uninitialised(dtype: DType, shape: &[i64]) -> Result<Tensor<Owner>> {
    let array = NewArray::new(dtype, shape)?;
    // SAFETY: `tensor` requires that every element is written. The memory goes to a framework, which may write it where the compiler
    // cannot see it; only then does this crate read it.
    Ok(unsafe { array.tensor() }?)
}

/// A dense tensor of zeros.
pub(crate) fn zeros(dtype: DType, shape: &[i64]) -> Result<Tensor<Owner>> {
    let array = NewArray::zeroed(dtype, shape)?;
    // SAFETY: `tensor` requires that every element is written: `zeroed` has done so.
    Ok(unsafe { array.tensor() }?)
}

/// Copies a dense tensor into a new block. A tensor that is not dense is packed.
pub(crate) fn duplicate(py: Python<'_>, tensor: &Tensor<Owner>) -> Result<Tensor<Owner>> {
    if !(tensor.layout().is_dense() && tensor.device().is_host()) {
        return copy_packed(py, tensor, tensor.dtype());
    }
    let array = NewArray::for_copy(tensor.dtype(), tensor.layout().shape())?;
    // SAFETY: `CopyJob::new` requires memory of the layout that nothing else uses, without overlap: the array is new and dense.
    // `copy_nonoverlapping` requires readable and writable memory of `bytes` bytes: the source is dense host memory, as was
    // checked, of the array's shape and type. `tensor` requires that every element is written: the copy has done so.
    let mut copy = unsafe {
        match tensor.dtype() {
            DType::Bool => CopyJob::new(tensor, array.data().get(), DType::Bool, &array.layout)?.run(None)?,
            _ => std::ptr::copy_nonoverlapping(tensor.data(), array.data().get(), tensor.layout().bytes()),
        }
        array.tensor()
    }?;
    copy.set_cpu(tensor.device());
    Ok(copy)
}

/// Copies a host tensor into a new block, dense and as `dtype`.
pub(crate) fn copy_packed(py: Python<'_>, source: &Tensor<Owner>, dtype: DType) -> Result<Tensor<Owner>> {
    Ok(pack_into_block(Some(py), source, dtype)?)
}

/// As [`copy_packed`], on a thread without the GIL.
pub(crate) fn copy_packed_detached(
    source: &Tensor<Owner>,
    dtype: DType,
) -> tensorferry_core::Result<Tensor<Owner>> {
    pack_into_block(None, source, dtype)
}

fn pack_into_block(
    py: Option<Python<'_>>,
    source: &Tensor<Owner>,
    dtype: DType,
) -> tensorferry_core::Result<Tensor<Owner>> {
    let array = NewArray::for_copy(dtype, source.layout().shape())?;
    // SAFETY: `CopyJob::new` requires memory of the layout that nothing else uses, without overlap: the array is new and dense.
    // `tensor` requires that every element is written: `run` succeeds only for equal shapes, and then has written all.
    unsafe {
        CopyJob::new(source, array.data().get(), dtype, &array.layout)?.run(py)?;
        array.tensor()
    }
}

/// Copies a host tensor into the memory of another one of the same shape. With a token, a large copy releases the GIL.
pub(crate) fn copy_into(
    py: Option<Python<'_>>,
    source: &Tensor<Owner>,
    destination: &Tensor<Owner>,
) -> tensorferry_core::Result<()> {
    let is_usable = is_writable_without_overlap(destination)
        && destination.device().is_host()
        && !overlaps(source, destination);
    if !is_usable {
        return Err(internal_error("the destination of a copy cannot be written"));
    }
    let (data, dtype, layout) = (destination.data(), destination.dtype(), destination.layout());
    // SAFETY: `CopyJob::new` requires writable host memory of the layout, which `destination` keeps alive, without overlap with itself
    // or with the source: all were checked above.
    unsafe { CopyJob::new(source, data, dtype, layout) }?.run(py)
}

/// Whether the memory may be written, and no two elements overlap.
pub(crate) fn is_writable_without_overlap(tensor: &Tensor<Owner>) -> bool {
    tensor.access() == Access::ReadWrite
        && tensor.order() == ByteOrder::Native
        && !tensor.layout().may_overlap()
}

/// Whether the memory of two tensors on one device overlaps.
pub(crate) fn overlaps(one: &Tensor<Owner>, other: &Tensor<Owner>) -> bool {
    let range = |tensor: &Tensor<Owner>| {
        let (low, high) = tensor.layout().extent();
        let data = tensor.data() as i64;
        (data.wrapping_add(low), data.wrapping_add(high))
    };
    let ((a, b), (c, d)) = (range(one), range(other));
    a < d && c < b
}

/// A copy between host memory that has not run yet.
struct CopyJob<'a>(pack::CopySource<'a>, pack::CopyDestination<'a>);

// SAFETY: moving the job moves addresses, plain values and references to layouts, which are `Sync`. The contract of `new` does not
// depend on a thread.
unsafe impl Send for CopyJob<'_> {}

impl<'a> CopyJob<'a> {
    /// The copy of a host tensor to an address.
    ///
    /// # Safety
    /// For `'a`, every byte of the layout's extent around `data` is writable host memory, apart from the memory of the source, and
    /// no two indices of the layout reach the same byte.
    unsafe fn new(
        source: &'a Tensor<Owner>,
        data: *mut u8,
        dtype: DType,
        layout: &'a Layout,
    ) -> tensorferry_core::Result<Self> {
        if !source.device().is_host() {
            return Err(internal_error("the source of a copy is not on the host"));
        }
        let from = pack::CopySource {
            data: source.data(),
            dtype: source.dtype(),
            layout: source.layout(),
            order: source.order(),
        };
        Ok(Self(from, pack::CopyDestination { data, dtype, layout }))
    }

    /// Runs the copy. With a token, a large copy releases the GIL.
    fn run(self, py: Option<Python<'_>>) -> tensorferry_core::Result<()> {
        let bytes = self.0.layout.bytes().max(self.1.layout.bytes());
        match py {
            Some(py) if bytes >= DETACH_THRESHOLD_BYTES => py.detach(|| self.convert()),
            _ => self.convert(),
        }
    }

    fn convert(self) -> tensorferry_core::Result<()> {
        // SAFETY: `pack::convert` requires a readable source, which a `Tensor` on the host is while it is borrowed. It requires a
        // destination that is writable and overlaps neither itself nor the source, as the contract of `new` says. It requires that
        // nothing else writes either meanwhile: no safe code of this crate reads or writes through such addresses. A Python thread
        // that does during the call races with the copy, as with a copy by NumPy.
        unsafe { pack::convert(&self.0, &self.1, settings::threads()) }
    }
}

/// An error that no input of a user causes.
pub(crate) fn internal_error(fact: &'static str) -> Error {
    Error::new(ErrorKind::InvalidTensor, fact).with_advice("please report this")
}

/// A pointer that a closure may capture while the GIL is released.
pub(crate) struct SendPtr<T>(*mut T);

impl<T> Clone for SendPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SendPtr<T> {}

// SAFETY: the type is only an address. Every read and write through it is unsafe, and its contract covers other threads.
unsafe impl<T> Send for SendPtr<T> {}
// SAFETY: a shared reference gives a copy of the address. Every read and write through it is unsafe, and its contract covers
// other threads.
unsafe impl<T> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    /// The address of the first element of a tensor.
    pub(crate) fn of(tensor: &Tensor<Owner>) -> Self {
        Self(tensor.data().cast())
    }

    /// The same pointer, for another thread.
    pub(crate) fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// The pointer. A method, so that closures capture the `Send` type and not its field.
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}
