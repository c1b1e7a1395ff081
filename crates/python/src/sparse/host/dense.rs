//! Conversion to dense tensors on the host: allocating the tensor, and scattering the elements into it.

use super::super::arrays::{detach_if_large, index_slice, with_index_type};
use super::{HostEngine, already_taken};
use crate::conversion::host_copy::{self, NewArray};
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use tensorferry_core::plan::sparse::{FillMethod, SparseFormat};
use tensorferry_core::sparse::scatter::{self, DenseFill};
use tensorferry_core::{DType, ErrorKind, Layout, Tensor};

/// The approximate number of elements in a memory page. Most pages of a tensor with fewer stored elements than pages stay zero.
const PAGE_ELEMENTS: usize = 1024;

/// A lower bound on the stored elements in the comparison with pages.
const MIN_ELEMENTS: usize = 16;

impl HostEngine<'_> {
    /// Fills a dense tensor of this shape. Values with equal coordinates are summed, unless `is_unique`.
    pub(crate) fn fill_dense(
        &mut self,
        fill: FillMethod,
        shape: &[i64],
        is_unique: bool,
    ) -> Result<Tensor<Owner>> {
        let unpadded = self.element_values()?;
        if fill == FillMethod::Grouped {
            let dtype = self.index_dtype();
            self.group(false, dtype)?;
        } else if self.format == SparseFormat::Bsr {
            self.expand()?;
        }
        let dtype = self.values()?.dtype();
        let (dense, is_cleared) = allocate_dense(dtype, shape, self.count)?;
        let is_empty = shape.contains(&0);
        let count_of = |axes: &[i64]| if is_empty { 0 } else { axes.iter().product::<i64>() as usize };
        let mut filling = DenseFill {
            values: match &unpadded {
                Some(values) => values.data(),
                None => self.values()?.tensor()?.data(),
            },
            count: self.count,
            width: count_of(&self.dense_lengths),
            dtype,
            add: !is_unique,
            dense: dense.data().get(),
            room: count_of(&self.lengths),
            cleared: is_cleared,
        };
        if is_empty {
            return host_copy::zeros(dtype, shape);
        }
        let (py, work, threads) = (self.py, self.count.max(filling.room), settings::threads());
        match fill {
            FillMethod::Compressed => with_index_type!(self.index_dtype(), I => {
                let (pointers, indices) = (index_slice::<I>(self.index(0)?)?, index_slice::<I>(self.index(1)?)?);
                let by_columns = self.format == SparseFormat::Csc;
                let columns = self.lengths[usize::from(!by_columns)] as usize;
                let indices = &indices[..self.count];
                // SAFETY: `compressed` requires an aligned value for each index: `prepare_values` made them contiguous and aligned,
                // and `check_arrays` compared the counts. It requires a writable tensor for `room` elements, which is rows times
                // columns: `dense` was created with this shape.
                detach_if_large(py, work, || unsafe {
                    scatter::compressed(&filling, pointers, indices, columns, by_columns, threads);
                });
            }),
            FillMethod::Grouped => {
                let Some([Some(pointers), Some(indices), Some(values)]) =
                    self.grouped.as_ref().map(|grouped| &grouped.arrays)
                else {
                    return Err(already_taken());
                };
                filling.values = values.data();
                let columns = self.lengths[1] as usize;
                with_index_type!(pointers.dtype(), I => {
                    let (pointers, indices) = (index_slice::<I>(pointers)?, index_slice::<I>(indices)?);
                    // SAFETY: `compressed` requires an aligned value for each index: `group` made both, in new arrays of the same
                    // length. It requires a writable tensor for `room` elements, which is rows times columns: `dense` was created
                    // with this shape.
                    detach_if_large(py, work, || unsafe {
                        scatter::compressed(&filling, pointers, indices, columns, false, threads);
                    });
                });
            }
            FillMethod::Coordinates => with_index_type!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(false)?;
                let lengths = &self.lengths[..];
                // SAFETY: `coordinates` requires an aligned value and a coordinate on each axis for every element: `prepare_values` made
                // the values contiguous and aligned, and `check_arrays` compared the counts. It requires a writable tensor for
                // `room` elements, the product of the lengths: `dense` was created with this shape. Elements that are not unique
                // are added.
                detach_if_large(py, work, || unsafe { scatter::coordinates(&filling, &axes, lengths, threads) });
            }),
        }
        drop(unpadded);
        // SAFETY: `tensor` requires that every element is written: the memory was zeroed, or the kernel has cleared it first.
        Ok(unsafe { dense.tensor() }?)
    }
}

/// Memory for a dense tensor, and whether it is zeroed. Where most pages stay zero, zero pages of the system need no memory.
fn allocate_dense(dtype: DType, shape: &[i64], count: usize) -> Result<(NewArray, bool)> {
    let bytes =
        shape.iter().fold(dtype.size() as u128, |bytes, &length| bytes.saturating_mul(length as u128));
    let too_large = || {
        let lengths: Vec<_> = shape.iter().map(i64::to_string).collect();
        let fact = format!(
            "a dense tensor of shape ({}) needs {bytes} bytes, which cannot be allocated",
            lengths.join(", ")
        );
        fail(ErrorKind::OutOfMemory, fact, "keep the tensor sparse, or convert a slice of it")
    };
    let layout = Layout::dense(dtype.size(), shape).map_err(|_| too_large())?;
    let is_mostly_empty = layout.count() > PAGE_ELEMENTS.saturating_mul(count.max(MIN_ELEMENTS));
    let dense = if is_mostly_empty { NewArray::zeroed(dtype, shape) } else { NewArray::new(dtype, shape) };
    Ok((dense.map_err(|_| too_large())?, is_mostly_empty))
}
