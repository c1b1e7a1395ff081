//! Tensors: memory with a type and a layout, and an owner that keeps it alive.
//!
//! New memory is a [`HostBlock`](crate::host::HostBlock), which is valid by construction. Memory of other libraries comes from
//! [`crate::dlpack::import`] or from a reader in a crate above. [`Tensor::new`] validates it: the layout then does not
//! overflow, and the data pointer is not null.
//!
//! The owner is a type parameter, so that a share allocates nothing for it: it is a Python reference, an imported DLPack
//! tensor or a host block.

use crate::device::{Device, DeviceKind};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::hints;
use crate::layout::Layout;
use smallvec::SmallVec;

/// The permitted accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Reads only: a write would break a guarantee to another owner, or crash.
    ReadOnly,
}

/// The byte order of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The byte order of the processor.
    Native,
    /// The opposite byte order.
    Swapped,
}

/// Memory with a layout, kept alive by `O`.
#[derive(Debug)]
pub struct Tensor<O> {
    data: *mut u8,
    dtype: DType,
    layout: Layout,
    device: Device,
    order: ByteOrder,
    access: Access,
    owner: O,
}

// SAFETY: no method of `Tensor` dereferences `data`, so the pointer moves between threads as a number. The owner is `Send` by
// the bound, and the other fields are plain numbers.
unsafe impl<O: Send> Send for Tensor<O> {}
// SAFETY: a shared reference gives the address of the memory, and no access to it. The owner is `Sync` by the bound.
unsafe impl<O: Sync> Sync for Tensor<O> {}

impl<O> Tensor<O> {
    /// A tensor over memory that `owner` keeps alive.
    ///
    /// # Errors
    /// When the data pointer is null although there are elements, or the layout has another item size.
    ///
    /// # Safety
    /// As long as `owner` lives, every byte of the layout's extent around `data` is readable on `device`,
    /// and writable too if `access` says so.
    #[inline(always)]
    pub unsafe fn new(
        data: *mut u8,
        dtype: DType,
        layout: Layout,
        device: Device,
        order: ByteOrder,
        access: Access,
        owner: O,
    ) -> Result<Self> {
        if data.is_null() && !layout.is_empty() {
            return Err(null_data(&layout));
        }
        if layout.item() != dtype.size() {
            return Err(Error::invalid_tensor(format!(
                "elements of {} bytes cannot be {dtype}",
                layout.item()
            )));
        }
        let order = if dtype.swap_unit() == 1 { ByteOrder::Native } else { order };
        Ok(Self { data, dtype, layout, device, order, access, owner })
    }

    /// The address of the element with index zero in every dimension; dangling if there are no elements.
    #[inline]
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device of the memory.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The byte order of the elements.
    #[inline]
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The permitted accesses to the memory.
    #[inline]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The owner, which keeps the memory alive.
    #[inline]
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// The owner, without the description of the memory.
    #[inline(always)]
    pub fn into_owner(self) -> O {
        self.owner
    }

    /// The same tensor with another owner, created from the first.
    ///
    /// ```
    /// # use tensorferry_core::{Tensor, host::HostBlock};
    /// fn boxed(tensor: Tensor<HostBlock>) -> Tensor<Box<HostBlock>> {
    ///     // SAFETY: the box holds the block.
    ///     unsafe { tensor.map_owner(Box::new) }
    /// }
    /// ```
    ///
    /// The function is unsafe, because safe code could drop the owner that keeps the memory alive:
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_core::{Tensor, host::HostBlock};
    /// fn dangling(tensor: Tensor<HostBlock>) -> Tensor<()> {
    ///     tensor.map_owner(drop)
    /// }
    /// ```
    ///
    /// # Safety
    /// The result of `change` keeps the memory valid for as long as it exists, as the first owner did.
    #[inline]
    pub unsafe fn map_owner<P>(self, change: impl FnOnce(O) -> P) -> Tensor<P> {
        Tensor {
            data: self.data,
            dtype: self.dtype,
            layout: self.layout,
            device: self.device,
            order: self.order,
            access: self.access,
            owner: change(self.owner),
        }
    }

    /// The same memory under another owner.
    ///
    /// # Safety
    /// The new owner keeps the memory alive as the first one does.
    pub unsafe fn with_owner<P>(&self, owner: P) -> Tensor<P> {
        let Self { data, dtype, ref layout, device, order, access, .. } = *self;
        Tensor { data, dtype, layout: layout.clone(), device, order, access, owner }
    }

    /// The owner, which the caller may change.
    ///
    /// # Safety
    /// The owner keeps the memory alive after the change as before.
    pub unsafe fn owner_mut(&mut self) -> &mut O {
        &mut self.owner
    }

    /// Makes the tensor read-only.
    #[inline]
    pub fn set_read_only(&mut self) {
        self.access = Access::ReadOnly;
    }

    /// Makes the tensor writable, for a reader that knows more than the view through which it got the memory.
    ///
    /// # Safety
    /// The memory is writable as long as the owner lives.
    #[inline]
    pub unsafe fn set_writable(&mut self) {
        self.access = Access::ReadWrite;
    }

    /// Assigns host memory to one of a framework's CPU devices. Other memory stays where it is, and so does host memory
    /// if the device is not a CPU.
    #[inline]
    pub fn set_cpu(&mut self, device: Device) {
        if self.device.is_host() && device.kind == DeviceKind::Cpu {
            self.device = device;
        }
    }

    /// Replaces the owner, and returns the previous one.
    ///
    /// # Safety
    /// The new owner keeps the memory alive as the first one did.
    #[inline]
    pub unsafe fn replace_owner(&mut self, owner: O) -> O {
        std::mem::replace(&mut self.owner, owner)
    }

    /// The same tensor with the irrelevant strides of a row-major tensor; see [`Layout::normalised`].
    #[must_use]
    pub fn normalised(mut self) -> Self {
        self.layout = self.layout.normalised();
        self
    }

    /// The same tensor with its axes in reverse order.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.layout = self.layout.transposed();
        self
    }

    /// The first `count` elements along the first axis.
    ///
    /// # Errors
    /// When there are fewer, or the tensor has no axis.
    pub fn first(self, count: usize) -> Result<Self> {
        self.narrow(0, 0, count)
    }

    /// The `length` elements from `start` on along one axis.
    ///
    /// # Errors
    /// When the tensor does not have the axis or these elements.
    pub fn narrow(mut self, axis: usize, start: usize, length: usize) -> Result<Self> {
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        let end = start.checked_add(length).and_then(|end| i64::try_from(end).ok());
        if shape.get(axis).zip(end).is_none_or(|(&total, end)| end > total) {
            return Err(Error::invalid_tensor(format!(
                "shape {shape:?} has no {length} elements from {start} on along axis {axis}"
            )));
        }
        let mut narrowed: SmallVec<[i64; 4]> = shape.iter().copied().collect();
        narrowed[axis] = length as i64;
        let layout = Layout::strided(self.layout.item(), &narrowed, strides)?;
        if !layout.is_empty() {
            // The offset is that of an element, as in `select`.
            self.data = self.data.wrapping_offset((strides[axis] * start as i64) as isize);
        }
        self.layout = layout;
        Ok(self)
    }

    /// The elements with this index along one axis.
    ///
    /// # Errors
    /// When the tensor does not have the axis or the index.
    pub fn select(mut self, axis: usize, index: usize) -> Result<Self> {
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        let within = shape.get(axis).and_then(|&length| i64::try_from(index).ok().filter(|&at| at < length));
        let Some(index) = within else {
            return Err(Error::invalid_tensor(format!(
                "shape {shape:?} has no index {index} along axis {axis}"
            )));
        };
        let without = |numbers: &[i64]| -> SmallVec<[i64; 4]> {
            let others = numbers.iter().enumerate().filter(|&(number, _)| number != axis);
            others.map(|(_, &number)| number).collect()
        };
        let layout = Layout::strided(self.layout.item(), &without(shape), &without(strides))?;
        if !layout.is_empty() {
            // The tensor has elements and the index is below the length, so the offset is that of one of them and does not
            // overflow. The strides of an empty tensor may be any numbers.
            self.data = self.data.wrapping_offset((strides[axis] * index) as isize);
        }
        self.layout = layout;
        Ok(self)
    }

    /// The dimensions in another order: dimension `i` of the result is dimension `axes[i]` of the tensor.
    ///
    /// # Errors
    /// When `axes` does not name each dimension once.
    pub fn permuted(mut self, axes: &[usize]) -> Result<Self> {
        let mut named: SmallVec<[usize; 8]> = axes.iter().copied().collect();
        named.sort_unstable();
        if !named.iter().copied().eq(0..self.layout.rank()) {
            return Err(Error::invalid_tensor(format!(
                "the axes {axes:?} are not an order of {} dimensions",
                self.layout.rank()
            )));
        }
        let ordered =
            |numbers: &[i64]| -> SmallVec<[i64; 4]> { axes.iter().map(|&axis| numbers[axis]).collect() };
        let (shape, strides) = (ordered(self.layout.shape()), ordered(self.layout.strides()));
        self.layout = Layout::strided(self.layout.item(), &shape, &strides)?;
        Ok(self)
    }

    /// A dense tensor under another shape with as many elements.
    ///
    /// # Errors
    /// When the tensor is not dense, or the shape has another number of elements.
    pub fn reshaped(mut self, shape: &[i64]) -> Result<Self> {
        let layout = Layout::dense(self.layout.item(), shape)?;
        if !self.layout.is_dense() || layout.count() != self.layout.count() {
            let from = self.layout.shape();
            return Err(Error::invalid_tensor(format!("shape {from:?} cannot be viewed as {shape:?}")));
        }
        self.layout = layout;
        Ok(self)
    }

    /// The same bytes as another type of the same size.
    ///
    /// # Errors
    /// When the sizes differ.
    pub fn reinterpret(mut self, dtype: DType) -> Result<Self> {
        if dtype.size() != self.dtype.size() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} has {} bytes and {dtype} has {}", self.dtype, self.dtype.size(), dtype.size()),
            ));
        }
        self.dtype = dtype;
        Ok(self)
    }
}

fn null_data(layout: &Layout) -> Error {
    Error::new(
        ErrorKind::NotATensor,
        format!("the tensor of shape {:?} has a null data pointer", layout.shape()),
    )
    .with_hint(hints::MATERIALISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(data: *mut u8, shape: &[i64], dtype: DType) -> Result<Tensor<()>> {
        let layout = Layout::dense(4, shape)?;
        // SAFETY: `data` is an array of the size of the shape that outlives the tensor, or null. `new` rejects null if there
        // are elements, and a tensor without elements has an extent of zero bytes.
        unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, ()) }
    }

    #[test]
    fn views_stay_within_the_tensor() {
        let mut memory = [0i32, 1, 2, 3, 4, 5];
        let start = memory.as_mut_ptr().cast::<u8>();
        let made = || make(start, &[2, 3], DType::Int32).unwrap();
        let row = made().select(0, 1).unwrap();
        assert_eq!((row.data(), row.layout().shape()), (start.wrapping_add(12), &[3][..]));
        let column = made().select(1, 2).unwrap();
        assert_eq!((column.data(), column.layout().strides()), (start.wrapping_add(8), &[12][..]));
        assert!(made().select(0, 2).is_err() && made().select(2, 0).is_err());
        // As an `i64` this index is -1, an address before the tensor.
        assert!(made().select(0, usize::MAX).is_err());
        assert_eq!(made().first(1).unwrap().layout().shape(), [1, 3]);
        assert!(made().first(3).is_err() && made().first(usize::MAX).is_err());
        let columns = made().narrow(1, 1, 2).unwrap();
        assert_eq!((columns.data(), columns.layout().shape()), (start.wrapping_add(4), &[2, 2][..]));
        assert!(made().narrow(1, 2, 2).is_err() && made().narrow(2, 0, 1).is_err());
        assert!(made().narrow(1, usize::MAX, 1).is_err() && made().narrow(1, 1, usize::MAX).is_err());
        // Nothing is left, also at the end: the address stays.
        assert_eq!(made().narrow(0, 2, 0).unwrap().data(), start);
        let transposed = made().permuted(&[1, 0]).unwrap();
        assert_eq!((transposed.layout().shape(), transposed.layout().strides()), (&[3, 2][..], &[4, 12][..]));
        for invalid in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
            assert!(made().permuted(invalid).is_err(), "{invalid:?}");
        }
        assert_eq!(made().reshaped(&[6]).unwrap().layout().shape(), [6]);
        assert!(made().reshaped(&[5]).is_err());
        assert!(made().select(1, 0).unwrap().reshaped(&[2, 1]).is_err());
        let empty = make(std::ptr::null_mut(), &[2, 0], DType::Int32).unwrap();
        assert!(empty.select(0, 1).unwrap().data().is_null());
        let layout = Layout::strided(4, &[3, 0], &[i64::MAX, 4]).unwrap();
        // SAFETY: the extent of a tensor without elements is zero bytes.
        let empty = unsafe {
            Tensor::new(start, DType::Int32, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, ())
        };
        assert_eq!(empty.unwrap().select(0, 2).unwrap().data(), start);
    }

    #[test]
    fn null_data_is_rejected_unless_empty() {
        let error = make(std::ptr::null_mut(), &[2], DType::Float32).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotATensor);
        assert!(make(std::ptr::null_mut(), &[0, 2], DType::Float32).is_ok());
    }

    #[test]
    fn only_host_memory_is_assigned_to_cpu_devices() {
        let mut byte = [0u8; 4];
        let second = Device { kind: DeviceKind::Cpu, index: 1 };
        let mut tensor = make(byte.as_mut_ptr(), &[1], DType::Float32).unwrap();
        tensor.set_cpu(second);
        assert_eq!(tensor.device(), second);
        tensor.set_cpu(Device::cuda(0));
        assert_eq!(tensor.device(), second);
        tensor.device = Device::cuda(2);
        tensor.set_cpu(second);
        assert_eq!(tensor.device(), Device::cuda(2));
    }

    #[test]
    fn sizes_must_agree() {
        let mut bytes = [0u8; 8];
        assert!(make(bytes.as_mut_ptr(), &[2], DType::Float64).is_err());
        let tensor = make(bytes.as_mut_ptr(), &[2], DType::Float32).unwrap();
        assert!(tensor.reinterpret(DType::Int8).is_err());
    }
}
