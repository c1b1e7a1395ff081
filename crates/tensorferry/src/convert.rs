//! Copies on the host, over the copy engine of the core.

use crate::error::{Error, Result};
use crate::tensor::{Tensor, dense_layout};
use std::num::NonZero;
use std::thread;
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::{self, CopyDestination, CopySource};
use tensorferry_core::{ByteOrder, DType, Layout};

impl Tensor {
    /// A copy in dense row-major memory, aligned and in native byte order.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let matrix = Tensor::from_vec(vec![1i16, 2, 3, 4], &[2, 2])?;
    /// let transposed = matrix.permute(&[1, 0])?.pack()?;
    /// assert_eq!(transposed.as_slice::<i16>()?, [1, 3, 2, 4]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor is on a GPU, or memory runs out.
    pub fn pack(&self) -> Result<Self> {
        self.cast(self.dtype())
    }

    /// A copy with another element type, in dense row-major memory.
    ///
    /// Floats are rounded once to the nearest value, ties to even. A float becomes an integer by truncation, and the nearest
    /// bound where it is out of range; NaN becomes 0. Integers wrap. A value is true if it is not zero. A complex number
    /// becomes its real part. The result depends only on the value, not on layout, threads or instructions.
    ///
    /// ```
    /// use tensorferry::{DType, Tensor};
    ///
    /// let floats = Tensor::from_vec(vec![1.5f32, -300.0, f32::NAN], &[3])?;
    /// assert_eq!(floats.cast(DType::Int8)?.as_slice::<i8>()?, [1, -128, 0]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        self.check_host()?;
        let layout = dense_layout(dtype, self.shape())?;
        let block = HostBlock::new(layout.bytes()).map_err(Error::from_core)?;
        // SAFETY: the block is new, so that nothing else uses it, and has the size of the dense layout. `check_host` found the
        // memory of this tensor on the host.
        unsafe { self.convert_into(block.data(), dtype, &layout)? };
        // SAFETY: `convert_into` has written every element, and the block has the size of the layout.
        unsafe { Self::from_block(block, dtype, layout, ByteOrder::Native) }
    }

    /// Writes all elements to other memory, cast to a type.
    ///
    /// # Safety
    /// - This tensor is in host memory.
    /// - `data` is writable for the bytes of `layout`, which is dense, and nothing else uses that memory.
    pub(crate) unsafe fn convert_into(&self, data: *mut u8, dtype: DType, layout: &Layout) -> Result<()> {
        let core = self.core();
        let source =
            CopySource { data: core.data(), dtype: core.dtype(), layout: core.layout(), order: core.order() };
        let destination = CopyDestination { data, dtype, layout };
        // SAFETY: the source is host memory by the first clause, readable over its extent, and nothing writes it while `self` is
        // borrowed, by the invariant of `Tensor`. The destination is writable and used by nothing else by the second clause, and
        // no two indices of a dense layout overlap.
        unsafe { pack::convert(&source, &destination, threads()).map_err(Error::from_core)? };
        Ok(())
    }
}

/// The number of threads that a copy may use.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
