//! Typed access to the elements of a tensor.

use crate::element::{Element, check_dtype, check_values};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, dense_layout};
use std::ptr::NonNull;
use std::slice;
use tensorferry_core::{ByteOrder, Error as CoreError, ErrorKind};

impl Tensor {
    /// The elements of a dense tensor, in row-major order.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(tensor.as_slice::<u8>()?, [1, 2, 3, 4]);
    /// let error = tensor.permute(&[1, 0])?.as_slice::<u8>().unwrap_err();
    /// assert!(error.hint().unwrap().contains("pack()"));
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// A slice borrows the tensor, so that it cannot outlive the memory:
    ///
    /// ```compile_fail,E0505
    /// # use tensorferry::Tensor;
    /// let tensor = Tensor::from_vec(vec![1u8], &[1])?;
    /// let values = tensor.as_slice::<u8>()?;
    /// drop(tensor);
    /// assert_eq!(values, [1]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor has another element type, is on a GPU, is not dense, not aligned for the type or not in native byte
    /// order, or when a `bool` is a byte other than 0 and 1.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype())?;
        let data = self.typed_data::<T>()?;
        check_values::<T>(self.as_bytes()?.iter().copied())?;
        // SAFETY: `typed_data` checked that the elements are dense, aligned and in host memory, so that `len` elements of the
        // size of `T` follow. They have values and nothing writes them while `self` is borrowed, by the invariant of
        // `Tensor`. `check_values` has refused bytes that are no values of `T`.
        Ok(unsafe { slice::from_raw_parts(data.as_ptr(), self.len()) })
    }

    /// The elements of a dense tensor, for writing.
    ///
    /// Neither a view nor an export can be made while the slice exists:
    ///
    /// ```compile_fail,E0502
    /// # use tensorferry::Tensor;
    /// let mut tensor = Tensor::from_vec(vec![1u8], &[1])?;
    /// let values = tensor.as_mut_slice::<u8>()?;
    /// let view = tensor.clone();
    /// values[0] = 2;
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice), and when the memory is read-only or has another handle.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype())?;
        let data = self.typed_data::<T>()?;
        check_values::<T>(self.as_bytes()?.iter().copied())?;
        self.check_exclusive()?;
        // SAFETY: as in `as_slice`. `check_exclusive` found the memory writable and this handle the only one, which is
        // borrowed while the slice exists, and by the invariant of `Tensor` nothing else reads or writes writable memory.
        Ok(unsafe { slice::from_raw_parts_mut(data.as_ptr(), self.len()) })
    }

    /// The bytes of a dense tensor, whatever its element type and byte order.
    ///
    /// # Errors
    /// When the tensor is on a GPU or not dense.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        let data = self.dense_data()?;
        // SAFETY: `dense_data` checked that `bytes` bytes of host memory follow. They have values and nothing writes them
        // while `self` is borrowed, by the invariant of `Tensor`.
        Ok(unsafe { slice::from_raw_parts(data.as_ptr(), self.bytes()) })
    }

    /// The bytes of a dense tensor, for writing.
    ///
    /// # Errors
    /// As [`as_bytes`](Self::as_bytes), and when the memory is read-only or has another handle.
    pub fn as_bytes_mut(&mut self) -> Result<&mut [u8]> {
        let data = self.dense_data()?;
        self.check_exclusive()?;
        // SAFETY: as in `as_bytes`, and in `as_mut_slice` for the exclusive access. Any byte may be written: `as_slice` checks
        // the values of types that do not have all of them.
        Ok(unsafe { slice::from_raw_parts_mut(data.as_ptr(), self.bytes()) })
    }

    /// A copy of the elements in row-major order, from any strides and byte order. A `bool` is true if its byte is not 0. The
    /// vector has no spare capacity.
    ///
    /// # Errors
    /// When the tensor has another element type or is on a GPU, or memory runs out.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype::<T>(self.dtype())?;
        self.check_host()?;
        let (count, bytes) = (self.len(), self.bytes());
        let mut values = Vec::<T>::new();
        values.try_reserve_exact(count).map_err(|_| Error::from_core(CoreError::out_of_memory(bytes)))?;
        if let Ok(own) = self.as_slice::<T>() {
            values.extend_from_slice(own);
            return Ok(values);
        }
        let layout = dense_layout(T::DTYPE, self.shape())?;
        // SAFETY: the spare capacity is new, so that nothing else uses it, and has `count` elements, which are those of the dense
        // layout. `check_host` found the memory of this tensor on the host.
        unsafe { self.convert_into(values.as_mut_ptr().cast(), T::DTYPE, &layout)? };
        // SAFETY: the capacity was reserved above, and `convert_into` has written all elements, bools as 0 or 1.
        unsafe { values.set_len(count) };
        Ok(values)
    }

    /// Checks that the memory may be written through this handle.
    pub(crate) fn check_exclusive(&mut self) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the memory of the tensor is read-only",
                "write to a copy: pack()",
            ));
        }
        if !self.is_only_handle() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "another tensor uses the same memory, which would change with a write",
                "drop the clones and views of the tensor first, or write to a copy: pack()",
            ));
        }
        Ok(())
    }

    /// Checks that the memory is readable on the host.
    pub(crate) fn check_host(&self) -> Result<()> {
        if self.device().is_host() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the tensor is on {}, and the host cannot read it", self.device()),
            "download it first: to_host(), with the feature `cuda`",
        ))
    }

    /// Checks that the elements are contiguous in row-major order.
    pub(crate) fn check_dense(&self) -> Result<()> {
        if self.is_dense() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!(
                "the tensor of shape {:?} has strides {:?} and is not dense",
                self.shape(),
                self.strides()
            ),
            "copy it to dense memory first: pack()",
        ))
    }

    /// The address of a dense tensor in host memory; dangling if it is empty.
    fn dense_data(&self) -> Result<NonNull<u8>> {
        self.check_host()?;
        self.check_dense()?;
        let data = NonNull::new(self.core().data()).filter(|_| !self.is_empty());
        Ok(data.unwrap_or(NonNull::dangling()))
    }

    /// The address of a dense tensor in host memory, native byte order and aligned for its type; dangling if it is empty.
    fn typed_data<T: Element>(&self) -> Result<NonNull<T>> {
        let data = self.dense_data()?;
        if self.is_empty() {
            return Ok(NonNull::dangling());
        }
        self.check_order()?;
        if !data.cast::<T>().is_aligned() {
            return Err(Error::new(
                ErrorKind::UnsupportedLayout,
                format!("the address of the tensor is not a multiple of {}", align_of::<T>()),
                "copy it to aligned memory first: pack()",
            ));
        }
        Ok(data.cast())
    }

    /// Checks that the elements are in native byte order.
    pub(crate) fn check_order(&self) -> Result<()> {
        if self.core().order() == ByteOrder::Native || self.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::UnsupportedLayout,
            "the tensor is not in the byte order of this machine",
            "copy it to native byte order first: pack()",
        ))
    }
}
