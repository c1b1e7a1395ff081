//! Views of tensors as arrays of `ndarray`, and tensors over its arrays.

use crate::element::{Element, check_dtype, check_values};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::{Tensor, lengths};
use ndarray::{
    Array, ArrayD, ArrayViewD, ArrayViewMutD, Axis, Dimension, IxDyn, ShapeBuilder, ShapeError, StrideShape,
};
use std::ptr::NonNull;
use tensorferry_core::{Access, ByteOrder, Device, ErrorKind, Layout, Tensor as CoreTensor};

impl Tensor {
    /// A view as an `ndarray`, of any strides.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let matrix = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let transposed = matrix.permute(&[1, 0])?;
    /// assert_eq!(transposed.as_ndarray::<f32>()?[[0, 1]], 3.0);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor has another element type, is on a GPU, not in native byte order, or not aligned for the type, when a
    /// stride is not a multiple of the element size, or when a `bool` is a byte other than 0 and 1.
    pub fn as_ndarray<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        check_dtype::<T>(self.dtype())?;
        self.check_host()?;
        self.check_order()?;
        if self.is_empty() {
            return ArrayViewD::from_shape(self.shape(), &[]).map_err(|error| invalid_shape(&error));
        }
        let frame = self.frame::<T>()?;
        if !T::ANY_BYTES {
            // SAFETY: as below, and all bytes are values of `u8`, which has the size of a bool.
            check_values::<T>(unsafe { frame.view::<u8>() }.into_iter().copied())?;
        }
        // SAFETY: `check_host` and `frame` checked that the elements are aligned host memory. `check_values` checked their
        // values, and nothing writes them while `self` is borrowed, by the invariant of `Tensor`.
        Ok(unsafe { frame.view::<T>() })
    }

    /// A view as an `ndarray` for writing.
    ///
    /// # Errors
    /// As [`as_ndarray`](Self::as_ndarray), and when the memory is read-only, has another handle, or elements overlap.
    pub fn as_ndarray_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        self.as_ndarray::<T>()?;
        self.check_exclusive()?;
        self.check_distinct()?;
        if self.is_empty() {
            return ArrayViewMutD::from_shape(self.shape(), &mut []).map_err(|error| invalid_shape(&error));
        }
        let frame = self.frame::<T>()?;
        // SAFETY: as in `as_ndarray`. `check_exclusive` found the memory writable and this handle the only one, which is
        // borrowed while the view exists, and `check_distinct` found that no two indices reach the same byte.
        let mut view = unsafe { ArrayViewMutD::from_shape_ptr(frame.shape(), frame.data.as_ptr()) };
        frame.reversed.iter().for_each(|&axis| view.invert_axis(Axis(axis)));
        Ok(view)
    }

    /// A tensor over the memory of an array, with its strides. The values are not copied.
    ///
    /// ```
    /// use ndarray::array;
    /// use tensorferry::Tensor;
    ///
    /// let tensor = Tensor::from_ndarray(array![[1i32, 2], [3, 4]].reversed_axes())?;
    /// assert_eq!(tensor.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the strides overflow as bytes.
    pub fn from_ndarray<T: Element, D: Dimension>(array: Array<T, D>) -> Result<Self> {
        let mut array: ArrayD<T> = array.into_dyn();
        let item = size_of::<T>() as i64;
        let strides: Vec<i64> =
            array.strides().iter().map(|&stride| (stride as i64).saturating_mul(item)).collect();
        let layout =
            Layout::strided(T::DTYPE.size(), &lengths(array.shape())?, &strides).map_err(Error::from_core)?;
        let data = array.as_mut_ptr().cast::<u8>();
        let owner = Memory::other(array);
        // SAFETY: the layout has the elements of the array: its shape, and its strides in bytes. Moving the array into its owner
        // does not move its values.
        let tensor = unsafe {
            CoreTensor::new(data, T::DTYPE, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner)
                .map_err(Error::from_core)?
        };
        // SAFETY: the elements of an array have values. The array owned them alone, and its owner is not accessed.
        Ok(unsafe { Self::from_parts(tensor) })
    }

    /// Checks that no two indices reach the same byte.
    pub(crate) fn check_distinct(&self) -> Result<()> {
        if !self.core().layout().may_overlap() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!("elements of shape {:?} with strides {:?} overlap", self.shape(), self.strides()),
            "write to a copy: pack()",
        ))
    }

    /// The address and the strides of a view, which has elements; see [`Frame`].
    fn frame<T: Element>(&self) -> Result<Frame<T>> {
        let layout = self.core().layout();
        let (lowest, _) = layout.extent();
        let data = self.core().data().wrapping_offset(lowest as isize).cast::<T>();
        let data = NonNull::new(data).filter(|data| data.is_aligned());
        let Some((data, numbers)) = data.zip(layout.in_elements()) else {
            return Err(Error::new(
                ErrorKind::UnsupportedLayout,
                format!("the address or a stride of the tensor is not a multiple of {}", size_of::<T>()),
                "copy it to aligned memory first: pack()",
            ));
        };
        let strides = &numbers[layout.rank()..];
        Ok(Frame {
            data,
            lengths: self.shape().to_vec(),
            strides: strides.iter().map(|stride| stride.unsigned_abs() as usize).collect(),
            reversed: (0..strides.len()).filter(|&axis| strides[axis] < 0).collect(),
        })
    }
}

/// The error for a tensor without elements whose lengths `ndarray` does not represent.
fn invalid_shape(error: &ShapeError) -> Error {
    Error::new(
        ErrorKind::UnsupportedLayout,
        format!("ndarray cannot represent the shape: {error}"),
        "reshape the tensor to shorter dimensions",
    )
}

/// The memory of a view as `ndarray` wants it: strides that are not negative, from the element with the lowest address.
struct Frame<T> {
    data: NonNull<T>,
    lengths: Vec<usize>,
    /// In elements. Those of dimensions of length one are those of row-major order.
    strides: Vec<usize>,
    /// The axes along which the addresses of the tensor descend.
    reversed: Vec<usize>,
}

impl<T> Frame<T> {
    fn shape(&self) -> StrideShape<IxDyn> {
        IxDyn(&self.lengths).strides(IxDyn(&self.strides))
    }

    /// A view of the elements as another type.
    ///
    /// # Safety
    /// The type has the size and no larger alignment than `T`. The elements are readable and values of the type, and nothing
    /// writes them while the view exists.
    unsafe fn view<'a, U>(&self) -> ArrayViewD<'a, U> {
        // SAFETY: the elements are readable and aligned, and nothing writes them (the contract of this function). `data` is the
        // element with the lowest address, the strides are not negative, and the extent of the shape fits the address space.
        let mut view = unsafe { ArrayViewD::from_shape_ptr(self.shape(), self.data.as_ptr().cast::<U>()) };
        self.reversed.iter().for_each(|&axis| view.invert_axis(Axis(axis)));
        view
    }
}
