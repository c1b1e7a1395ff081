//! The tensor: memory with a description, shared by its handles.

use crate::element::Element;
use crate::error::{Error, Result};
use crate::memory::Memory;
use smallvec::SmallVec;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{
    Access, ByteOrder, DType, Device, Error as CoreError, ErrorKind, Layout, Tensor as CoreTensor,
};

/// Memory with an element type, a shape and strides, and an owner that keeps it alive.
///
/// A clone is another handle on the same memory. Values are read through any handle, and written through a handle that is
/// the only one ([`as_mut_slice`](Self::as_mut_slice)).
///
/// ```
/// use tensorferry::{DType, Tensor};
///
/// let mut tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// assert_eq!((tensor.dtype(), tensor.shape()), (DType::Float32, &[2, 3][..]));
/// tensor.as_mut_slice::<f32>()?[0] = 7.0;
///
/// let column = tensor.select(1, 0)?;
/// assert_eq!(column.to_vec::<f32>()?, [7.0, 4.0]);
/// assert!(tensor.as_mut_slice::<f32>().is_err(), "`column` uses the same memory");
/// # Ok::<(), tensorferry::Error>(())
/// ```
//
// Invariants: as long as a handle exists, every element in host memory has a value, and nothing outside of this crate writes
// it. If the access is read-write, nothing outside of this crate reads it either. All constructors go through `from_parts`,
// whose callers uphold this.
pub struct Tensor {
    core: CoreTensor<Arc<Memory>>,
    /// The shape of `core` in the type that Rust counts with.
    shape: SmallVec<[usize; 4]>,
}

impl Tensor {
    /// A tensor over the memory of a core tensor.
    ///
    /// # Safety
    /// While the owner of `tensor` lives:
    ///
    /// - every element has a value, if it is in host memory;
    /// - nothing writes the elements, other than through the result and its clones;
    /// - if the access is read-write, nothing else reads them either.
    pub(crate) unsafe fn from_parts(tensor: CoreTensor<Memory>) -> Self {
        // SAFETY: the `Arc` holds the owner, so it keeps the memory valid as the owner did.
        Self::over(unsafe { tensor.map_owner(Arc::new) })
    }

    /// A handle on memory that another handle has been made for.
    fn over(core: CoreTensor<Arc<Memory>>) -> Self {
        // A layout has no negative lengths.
        let shape = core.layout().shape().iter().map(|&length| length as usize).collect();
        Self { core, shape }
    }

    /// Another handle, as a core tensor.
    fn share(&self) -> CoreTensor<Arc<Memory>> {
        // SAFETY: the clone of the `Arc` keeps the memory alive as the `Arc` does.
        unsafe { self.core.with_owner(self.core.owner().clone()) }
    }

    /// A tensor over a block of initialised bytes.
    ///
    /// # Safety
    /// The layout has no negative strides, its extent is in the block, and its elements have values.
    pub(crate) unsafe fn from_block(
        block: HostBlock,
        dtype: DType,
        layout: Layout,
        order: ByteOrder,
    ) -> Result<Self> {
        // SAFETY: `Tensor::new` requires memory that is readable and writable while the owner lives. The block is the owner,
        // and the contract of this function says that the extent of the layout is in it.
        let tensor = unsafe {
            CoreTensor::new(
                block.data(),
                dtype,
                layout,
                Device::CPU,
                order,
                Access::ReadWrite,
                Memory::Host(block),
            )
            .map_err(Error::from_core)?
        };
        // SAFETY: the bytes have values by the contract of this function. The block is the only owner of its memory.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// A tensor over the values of a `Vec`, in row-major order. The values are not copied.
    ///
    /// # Errors
    /// When the shape has another number of elements.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: &[usize]) -> Result<Self> {
        let layout = dense_layout(T::DTYPE, shape)?;
        check_count(layout.count(), values.len(), shape)?;
        let mut values = values;
        let data = values.as_mut_ptr().cast::<u8>();
        let owner = Memory::other(values);
        // SAFETY: the vector has as many values as the layout has elements, which `check_count` compared, and the size of an
        // element is that of `T`. Moving the vector into its owner does not move its values.
        let tensor = unsafe {
            CoreTensor::new(data, T::DTYPE, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner)
                .map_err(Error::from_core)?
        };
        // SAFETY: the values are initialised and have no padding. The vector owned them alone, and its owner is not accessed.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// A tensor with a copy of these bytes, in row-major order and in the byte order of this machine, for element types that
    /// Rust does not have.
    ///
    /// ```
    /// use tensorferry::{DType, Tensor};
    ///
    /// let tensor = Tensor::from_bytes(&[0x38, 0xb8], DType::Float8E4M3Fn, &[2])?;
    /// assert_eq!(tensor.cast(DType::Float32)?.as_slice::<f32>()?, [1.0, -1.0]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shape takes another number of bytes, or memory runs out.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = dense_layout(dtype, shape)?;
        if layout.bytes() != bytes.len() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{dtype} of shape {shape:?} takes {} bytes, found {}", layout.bytes(), bytes.len()),
                "pass the shape and the type of the bytes",
            ));
        }
        let block = HostBlock::new(bytes.len()).map_err(Error::from_core)?;
        // SAFETY: the block is new and has as many bytes as the slice, so that the two do not overlap. All of its bytes have
        // values afterwards, and they are those of the layout, which was compared above.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), block.data(), bytes.len());
            Self::from_block(block, dtype, layout, ByteOrder::Native)
        }
    }

    /// A tensor whose bytes are all zero.
    ///
    /// ```
    /// use tensorferry::{DType, Tensor};
    ///
    /// let tensor = Tensor::zeros(DType::Int64, &[2, 2])?;
    /// assert_eq!(tensor.as_slice::<i64>()?, [0; 4]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the size overflows or memory runs out.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = dense_layout(dtype, shape)?;
        let block = HostBlock::zeroed(layout.bytes()).map_err(Error::from_core)?;
        // SAFETY: `zeroed` gave every byte of the block a value, and the block has the size of the layout.
        unsafe { Self::from_block(block, dtype, layout, ByteOrder::Native) }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.core.dtype()
    }

    /// The device of the memory.
    pub fn device(&self) -> Device {
        self.core.device()
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The distance between neighbours in each dimension, in bytes. It may be zero or negative.
    pub fn strides(&self) -> &[i64] {
        self.core.layout().strides()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.core.layout().count()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.core.layout().is_empty()
    }

    /// The number of bytes of the elements. Elements of a broadcast dimension count repeatedly.
    pub fn bytes(&self) -> usize {
        self.core.layout().bytes()
    }

    /// Whether the elements are contiguous in row-major order.
    pub fn is_dense(&self) -> bool {
        self.core.layout().is_dense()
    }

    /// The byte order of the elements. Only tensors of files can have another one than this machine.
    pub fn byte_order(&self) -> ByteOrder {
        self.core.order()
    }

    /// Whether the memory may be written. Writing also needs the only handle on the memory; see
    /// [`as_mut_slice`](Self::as_mut_slice).
    pub fn is_writable(&self) -> bool {
        self.core.access() == Access::ReadWrite
    }

    /// The description of the memory.
    pub(crate) fn core(&self) -> &CoreTensor<Arc<Memory>> {
        &self.core
    }

    /// Whether other handles use the memory at present.
    pub(crate) fn has_other_handles(&self) -> bool {
        Arc::strong_count(self.core.owner()) > 1
    }

    /// Whether this is the only handle on the memory. Nobody can make another one while this one is borrowed.
    pub(crate) fn is_only_handle(&mut self) -> bool {
        // SAFETY: the owner is not changed. `get_mut` orders the accesses through a handle that another thread has dropped
        // before those of this one.
        Arc::get_mut(unsafe { self.core.owner_mut() }).is_some()
    }

    /// The tensor with its owner, for an exporter. It is read-only if there are other handles.
    pub(crate) fn into_parts(mut self) -> CoreTensor<Arc<Memory>> {
        if !self.is_only_handle() {
            self.core.set_read_only();
        }
        self.core
    }

    /// Makes the memory read-only for this handle.
    pub fn set_read_only(&mut self) {
        self.core.set_read_only();
    }

    /// A handle on the elements with this index along one axis. The result has one dimension less.
    ///
    /// # Errors
    /// When the tensor does not have the axis or the index.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self> {
        let selected = self.share().select(axis, index);
        Ok(Self::over(selected.map_err(|error| {
            invalid_argument(error, "pass an axis of the tensor, and an index below its length")
        })?))
    }

    /// A handle on the `length` elements from `start` on along one axis.
    ///
    /// # Errors
    /// When the tensor does not have the axis or these elements.
    pub fn narrow(&self, axis: usize, start: usize, length: usize) -> Result<Self> {
        let narrowed = self.share().narrow(axis, start, length);
        Ok(Self::over(narrowed.map_err(|error| {
            invalid_argument(error, "pass an axis of the tensor, and a range within its length")
        })?))
    }

    /// A handle on a dense tensor under another shape with as many elements.
    ///
    /// # Errors
    /// When the tensor is not dense, or the shape has another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let layout = dense_layout(self.dtype(), shape)?;
        if layout.count() != self.len() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} elements of shape {:?} cannot have shape {shape:?}", self.len(), self.shape()),
                "pass a shape with as many elements as the tensor has",
            ));
        }
        self.check_dense()?;
        Ok(Self::over(self.share().reshaped(layout.shape()).map_err(Error::from_core)?))
    }

    /// A handle whose dimensions are those of this tensor in another order: dimension `i` of the result is dimension
    /// `axes[i]` of the tensor.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let matrix = Tensor::from_vec(vec![1i32, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let transposed = matrix.permute(&[1, 0])?;
    /// assert_eq!(transposed.shape(), [3, 2]);
    /// assert_eq!(transposed.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When `axes` does not name each dimension once.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        let permuted = self.share().permuted(axes);
        Ok(Self::over(permuted.map_err(|error| {
            invalid_argument(error, "name each dimension of the tensor once, counting from zero")
        })?))
    }
}

/// Another handle on the same memory.
impl Clone for Tensor {
    fn clone(&self) -> Self {
        Self::over(self.share())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?} on {})", self.dtype(), self.shape, self.device())
    }
}

/// The lengths of a shape in the core's type.
pub(crate) fn lengths(shape: &[usize]) -> Result<SmallVec<[i64; 4]>> {
    let length = |&length: &usize| {
        i64::try_from(length).map_err(|_| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("the length {length} of shape {shape:?} overflows"),
                "pass a smaller shape",
            )
        })
    };
    shape.iter().map(length).collect()
}

/// The dense layout of a shape.
pub(crate) fn dense_layout(dtype: DType, shape: &[usize]) -> Result<Layout> {
    dense_layout_of_lengths(dtype, &lengths(shape)?)
}

/// The dense layout of a shape in the core's type.
pub(crate) fn dense_layout_of_lengths(dtype: DType, lengths: &[i64]) -> Result<Layout> {
    Layout::dense(dtype.size(), lengths)
        .map_err(|error| invalid_argument(error, "pass a shape whose size in bytes is at most 2^63 - 1"))
}

/// The core's error about a tensor as one about an argument of the caller, which the core cannot tell apart.
fn invalid_argument(error: CoreError, advice: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, error.fact().to_owned(), advice)
}

fn check_count(elements: usize, values: usize, shape: &[usize]) -> Result<()> {
    if elements == values {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("{values} values cannot have shape {shape:?}, which has {elements} elements"),
        "pass a shape with as many elements as there are values",
    ))
}
