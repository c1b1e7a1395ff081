//! Dense tensors of the host, filled with the elements of a sparse one.

use super::super::arrays::{away, slice, typed};
use super::{HostEngine, taken};
use crate::conversion::host_copy;
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::sparse::{FillMethod, SparseFormat};
use tensorferry_core::sparse::scatter::{self, DenseFill};
use tensorferry_core::{DType, ErrorKind, Layout, Tensor};

/// The number of elements of a memory page, about. A dense tensor with fewer stored elements than pages stays mostly untouched.
const PAGE_ELEMENTS: usize = 1024;

/// The fewest elements that a tensor is taken to have when its pages are counted.
const MIN_ELEMENTS: usize = 16;

impl HostEngine<'_> {
    /// Fills a dense tensor of this shape. Values with the same coordinates are summed, unless each is there once.
    pub(crate) fn filled(
        &mut self,
        fill: FillMethod,
        shape: &[i64],
        is_unique: bool,
    ) -> Result<Tensor<Owner>> {
        let kept = self.element_values()?;
        if fill == FillMethod::Grouped {
            let dtype = self.index_dtype();
            self.group(false, dtype)?;
        } else if self.format == SparseFormat::Bsr {
            self.expand()?;
        }
        let dtype = self.values()?.dtype();
        let (block, layout, is_cleared) = room(dtype, shape, self.count)?;
        let is_empty = layout.is_empty();
        let count_of = |axes: &[i64]| if is_empty { 0 } else { axes.iter().product::<i64>() as usize };
        let mut filling = DenseFill {
            values: match &kept {
                Some(values) => values.data(),
                None => self.values()?.tensor()?.data(),
            },
            count: self.count,
            width: count_of(&self.dense_lengths),
            dtype,
            add: !is_unique,
            dense: block.data(),
            room: count_of(&self.lengths),
            cleared: is_cleared,
        };
        if is_empty {
            return host_copy::of_block(block, dtype, layout);
        }
        let (py, work, threads) = (self.py, self.count.max(filling.room), settings::threads());
        match fill {
            FillMethod::Compressed => typed!(self.index_dtype(), I => {
                let (pointers, indices) = (slice::<I>(self.index(0)?), slice::<I>(self.index(1)?));
                let by_columns = self.format == SparseFormat::Csc;
                let columns = self.lengths[usize::from(!by_columns)] as usize;
                let indices = &indices[..self.count];
                // SAFETY: there is a dense, aligned value for each index, and the tensor is new and has room for its shape.
                away(py, work, || unsafe {
                    scatter::compressed(&filling, pointers, indices, columns, by_columns, threads);
                });
            }),
            FillMethod::Grouped => {
                let Some([Some(pointers), Some(indices), Some(values)]) =
                    self.grouped.as_ref().map(|grouped| &grouped.arrays)
                else {
                    return Err(taken());
                };
                filling.values = values.data();
                let columns = self.lengths[1] as usize;
                typed!(pointers.dtype(), I => {
                    let (pointers, indices) = (slice::<I>(pointers), slice::<I>(indices));
                    // SAFETY: there is a dense, aligned value for each index, and the tensor is new and has room for its shape.
                    away(py, work, || unsafe {
                        scatter::compressed(&filling, pointers, indices, columns, false, threads);
                    });
                });
            }
            FillMethod::Coordinates => typed!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(false)?;
                let lengths = &self.lengths[..];
                // SAFETY: each axis has as many numbers as there are values, and the tensor is new and has room for its shape.
                away(py, work, || unsafe { scatter::coordinates(&filling, &axes, lengths, threads) });
            }),
        }
        drop(kept);
        host_copy::of_block(block, dtype, layout)
    }
}

/// Memory for a dense tensor, and whether it is zero. Where most pages stay untouched, the system's pages of zeros need no memory.
fn room(dtype: DType, shape: &[i64], count: usize) -> Result<(HostBlock, Layout, bool)> {
    let bytes =
        shape.iter().fold(dtype.size() as u128, |bytes, &length| bytes.saturating_mul(length as u128));
    let too_large = || {
        let lengths: Vec<_> = shape.iter().map(i64::to_string).collect();
        let fact = format!(
            "a tensor of shape ({}) takes {bytes} bytes, which are not to be had",
            lengths.join(", ")
        );
        fail(ErrorKind::OutOfMemory, fact, "leave it sparse, or take a part of it")
    };
    let layout = Layout::dense(dtype.size(), shape).map_err(|_| too_large())?;
    let is_mostly_empty = layout.count() > PAGE_ELEMENTS.saturating_mul(count.max(MIN_ELEMENTS));
    let block =
        if is_mostly_empty { HostBlock::zeroed(layout.bytes()) } else { HostBlock::new(layout.bytes()) };
    Ok((block.map_err(|_| too_large())?, layout, is_mostly_empty))
}
