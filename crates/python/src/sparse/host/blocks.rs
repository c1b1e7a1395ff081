//! Elements of the host that go into dense blocks.

use super::super::arrays::{Address, Made, away, typed};
use super::reorder::pointer_count;
use super::{HostEngine, taken};
use crate::conversion::host_copy;
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use crate::settings;
use tensorferry_core::plan::sparse::ArrayRole;
use tensorferry_core::sparse::blocks::Blocks;
use tensorferry_core::sparse::{Axis, make};
use tensorferry_core::{DType, Tensor};

impl HostEngine<'_> {
    pub(super) fn find_blocks(&mut self, [high, wide]: [i64; 2]) -> Result<&Blocks> {
        if self.blocks.is_none() {
            self.expand()?;
            let (shape, size) = ([self.lengths[0], self.lengths[1]], [high as usize, wide as usize]);
            let blocks = typed!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(false)?;
                let axes = [axes[0], axes[1]];
                away(self.py, self.count, || Blocks::of(&axes, shape, size, settings::threads()))?
            });
            self.blocks = Some(blocks);
        }
        self.blocks.as_ref().ok_or_else(taken)
    }

    pub(super) fn make_blocks(
        &mut self,
        block: [i64; 2],
        role: ArrayRole,
        dtype: DType,
    ) -> Result<Tensor<Owner>> {
        let numbers = self.find_blocks(block)?.count();
        let kept = if role == ArrayRole::Values { self.element_values()? } else { None };
        let blocks = self.blocks.as_ref().ok_or_else(taken)?;
        let rows = self.lengths[0] / block[0];
        typed!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(false)?;
            let axes = [axes[0], axes[1]];
            if role == ArrayRole::Values {
                let values = match &kept {
                    Some(values) => values,
                    None => self.values()?.tensor()?,
                };
                let value_dtype = values.dtype();
                let gathered = Made::new(value_dtype, &[numbers as i64, block[0], block[1]])?;
                let (from, to) = (Address::of(values), gathered.data());
                // SAFETY: there is a dense and aligned value for each element, and room for all blocks.
                away(self.py, self.count, || unsafe {
                    blocks.gather(&axes, value_dtype, from.get(), to.get())
                })?;
                return gathered.tensor();
            }
            let column = usize::from(role == ArrayRole::Indices);
            let places: Vec<i64> = blocks.coordinates(&axes).map(|place| place[column]).collect();
            let length = if role == ArrayRole::Indices { numbers as i64 } else { pointer_count(rows as usize)? };
            let array = Made::new(DType::Int64, &[length])?;
            let (places, to) = (Axis::from(&places[..]), array.data::<i64>());
            // SAFETY: there is room for a column of each block, or for `rows + 1` pointers; blocks are in order.
            unsafe {
                if role == ArrayRole::Indices {
                    make::write_axis(&places, to.get(), 1, settings::threads());
                } else {
                    make::pointers(&places, rows as usize, to.get(), settings::threads());
                }
            }
            let array = array.tensor()?;
            if dtype == DType::Int64 { Ok(array) } else { host_copy::packed(self.py, &array, dtype) }
        })
    }
}
