//! Conversion to block formats on the host: finding the blocks, and gathering elements into them.

use super::super::arrays::{detach_if_large, with_index_type};
use super::reorder::pointer_count;
use super::{HostEngine, already_taken};
use crate::conversion::host_copy::{self, NewArray, SendPtr};
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::settings;
use tensorferry_core::plan::sparse::ArrayRole;
use tensorferry_core::sparse::blocks::Blocks;
use tensorferry_core::sparse::{Axis, compress, gather};
use tensorferry_core::{DType, Tensor};

impl HostEngine<'_> {
    pub(super) fn find_blocks(&mut self, [block_rows, block_columns]: [i64; 2]) -> Result<&Blocks> {
        if self.blocks.is_none() {
            self.expand()?;
            let (shape, size) =
                ([self.lengths[0], self.lengths[1]], [block_rows as usize, block_columns as usize]);
            let blocks = with_index_type!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(false)?;
                let axes = [axes[0], axes[1]];
                detach_if_large(self.py, self.count, || Blocks::of(&axes, shape, size, settings::threads()))?
            });
            self.blocks = Some(blocks);
        }
        self.blocks.as_ref().ok_or_else(already_taken)
    }

    pub(super) fn make_blocks(
        &mut self,
        block: [i64; 2],
        role: ArrayRole,
        dtype: DType,
    ) -> Result<Tensor<Owner>> {
        let block_count = self.find_blocks(block)?.count();
        let unpadded = if role == ArrayRole::Values { self.element_values()? } else { None };
        let blocks = self.blocks.as_ref().ok_or_else(already_taken)?;
        let rows = self.lengths[0] / block[0];
        with_index_type!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(false)?;
            let axes = [axes[0], axes[1]];
            if role == ArrayRole::Values {
                let values = match &unpadded {
                    Some(values) => values,
                    None => self.values()?.tensor()?,
                };
                let value_dtype = values.dtype();
                let gathered = NewArray::new(value_dtype, &[block_count as i64, block[0], block[1]])?;
                let (from, to) = (SendPtr::of(values), gathered.data());
                // SAFETY: `gather` requires an aligned value for each element: `prepare_values` made them contiguous and aligned. It
                // requires memory for all blocks: `gathered` was created with their number and size. It writes every element of
                // every block, as `tensor` requires.
                return unsafe {
                    detach_if_large(self.py, self.count, || {
                        blocks.gather(&axes, value_dtype, from.get(), to.get())
                    })?;
                    Ok(gathered.tensor()?)
                };
            }
            let column = usize::from(role == ArrayRole::Indices);
            let coordinates: Vec<i64> = blocks.coordinates().iter().map(|coordinate| coordinate[column]).collect();
            let length = if role == ArrayRole::Indices { block_count as i64 } else { pointer_count(rows as usize)? };
            let mut array = NewArray::new(DType::Int64, &[length])?;
            let (coordinates, numbers) = (Axis::from(&coordinates[..]), array.slots::<i64>());
            if role == ArrayRole::Indices {
                gather::write_axis(&coordinates, numbers, 1, settings::threads());
            } else {
                compress::pointers(&coordinates, numbers, settings::threads());
            }
            // SAFETY: `tensor` requires that every element is written: `write_axis` writes one per block, `pointers` every slot.
            let array = unsafe { array.tensor() }?;
            if dtype == DType::Int64 { Ok(array) } else { host_copy::copy_packed(self.py, &array, dtype) }
        })
    }
}
