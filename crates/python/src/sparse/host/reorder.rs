//! Sorting, summing, grouping and laying out elements on the host.

use super::super::arrays::{Address, Made, away, axis, slice, typed};
use super::{ElementAxis, Grouped, HostEngine, taken};
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use smallvec::SmallVec;
use tensorferry_core::plan::sparse::{
    ArrayRole, CoordinateLayout, ElementWork, SparseConversion, SparseFormat,
};
use tensorferry_core::sparse::group::{Elements, Pairs, Rows, group_by_axis};
use tensorferry_core::sparse::order::{SortedOrder, sort_by_axes};
use tensorferry_core::sparse::{Axis, Index, make};
use tensorferry_core::{DType, ErrorKind, Tensor};

/// Whether elements are sorted, and summed.
fn sorted_and_summed(work: ElementWork) -> (bool, bool) {
    match work {
        ElementWork::Elements { sort, sum } => (sort, sum),
        _ => (false, false),
    }
}

impl HostEngine<'_> {
    /// Sorts the elements by all axes.
    pub(super) fn sort(&mut self, by_columns: bool) -> Result<&SortedOrder> {
        if self.sorted.as_ref().is_none_or(|(known, _)| *known != by_columns) {
            self.expand()?;
            let mut lengths = self.lengths.clone();
            if by_columns {
                lengths.reverse();
            }
            let order = typed!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(by_columns)?;
                away(self.py, self.count, || sort_by_axes(&axes, &lengths, settings::threads()))?
            });
            self.sorted = Some((by_columns, order));
        }
        self.order()
    }

    fn order(&self) -> Result<&SortedOrder> {
        self.sorted.as_ref().map(|(_, order)| order).ok_or_else(taken)
    }

    /// The coordinates along one axis, for a role that nothing reads again.
    pub(super) fn take_axis(
        &mut self,
        number: usize,
        work: ElementWork,
        dtype: DType,
    ) -> Result<Tensor<Owner>> {
        if !sorted_and_summed(work).0
            && self.coordinate_dtype == dtype
            && let Some(axes) = &mut self.coordinates
            && let ElementAxis::Made(tensor) = &mut axes[number]
        {
            return tensor.take().ok_or_else(taken);
        }
        self.picked_axis(number, work, dtype)
    }

    /// The coordinates along one axis, sorted and without duplicates if that is the work.
    fn picked_axis(&self, number: usize, work: ElementWork, dtype: DType) -> Result<Tensor<Owner>> {
        let (sort, firsts) = sorted_and_summed(work);
        let dense = self.cast_axis(number, dtype)?;
        if sort { self.picked(self.order()?, &dense, &[], firsts) } else { Ok(dense) }
    }

    /// The coordinates along one axis as a dense array of this type.
    fn cast_axis(&self, number: usize, dtype: DType) -> Result<Tensor<Owner>> {
        let array = Made::new(dtype, &[self.count as i64])?;
        typed!(self.coordinate_dtype, I => typed!(dtype, O => {
            let (axis, to) = (self.axis::<I>(number)?, array.data::<O>());
            // SAFETY: `array` has room for `count` numbers, and the axis has no more.
            away(self.py, self.count, || unsafe { make::write_axis(&axis, to.get(), 1, settings::threads()) });
        }));
        array.tensor()
    }

    /// The elements of an array in order, or the first of each coordinate. The array is dense.
    fn picked(
        &self,
        order: &SortedOrder,
        array: &Tensor<Owner>,
        rest: &[i64],
        firsts: bool,
    ) -> Result<Tensor<Owner>> {
        let count = if firsts { order.starts().len() } else { order.order().len() };
        let picked = Made::new(array.dtype(), &[&[count as i64], rest].concat())?;
        let item = array.dtype().size() * rest.iter().product::<i64>() as usize;
        let (from, to) = (Address::of(array), picked.data());
        // SAFETY: the array has an element of `item` bytes for each that was ordered, and there is room for those that are picked.
        away(self.py, count, || unsafe {
            make::pick(order, firsts, from.get(), item, to.get(), settings::threads());
        });
        picked.tensor()
    }

    /// The values of the elements, without padding.
    pub(super) fn element_values(&mut self) -> Result<Option<Tensor<Owner>>> {
        self.dense_values()?;
        let Some(kept) = &self.kept else { return Ok(None) };
        let values = self.values()?.tensor()?;
        let rest = &self.dense_lengths[..];
        let item = values.dtype().size() * rest.iter().product::<i64>() as usize;
        let taken = Made::new(values.dtype(), &[&[kept.len() as i64], rest].concat())?;
        let (from, to) = (Address::of(values), taken.data());
        // SAFETY: `drop_padding` kept numbers of elements, and `validate` saw a value for each; there is room for all of them.
        away(self.py, kept.len(), || unsafe {
            make::take(kept, from.get(), item, to.get(), settings::threads());
        });
        taken.tensor().map(Some)
    }

    /// The values, sorted and summed.
    pub(super) fn made_values(&mut self, work: ElementWork) -> Result<Tensor<Owner>> {
        let kept = self.element_values()?;
        let rest = self.dense_lengths.clone();
        let (sort, sum) = sorted_and_summed(work);
        if !sort {
            return kept.ok_or_else(taken);
        }
        let values = match &kept {
            Some(values) => values,
            None => self.values()?.tensor()?,
        };
        let order = self.order()?;
        if !sum {
            return self.picked(order, values, &rest, false);
        }
        let dtype = values.dtype();
        let summed = Made::new(dtype, &[&[order.starts().len() as i64], &rest[..]].concat())?;
        let (from, to) = (Address::of(values), summed.data());
        let width = rest.iter().product::<i64>() as usize;
        // SAFETY: there are as many dense and aligned values as elements were ordered, and room for one of each coordinate.
        away(self.py, self.count, || unsafe {
            make::sum(order, dtype, from.get(), width, to.get(), settings::threads());
        });
        summed.tensor()
    }

    /// Groups the elements by rows, or by columns.
    pub(super) fn group(&mut self, by_columns: bool, dtype: DType) -> Result<&mut Grouped> {
        if self.grouped.as_ref().is_none_or(|grouped| grouped.by_columns != by_columns) {
            let kept = self.element_values()?;
            let leading = usize::from(by_columns);
            let groups = self.lengths[leading] as usize;
            let is_compressed = matches!(self.format, SparseFormat::Csr | SparseFormat::Csc);
            let arrays = if is_compressed && self.coordinates.is_none() {
                for array in self.arrays.iter_mut().flatten() {
                    array.prepare_index(Some(dtype), true)?;
                }
                self.dtype = dtype;
                self.coordinate_dtype = dtype;
                typed!(dtype, I => {
                    let (indptr, indices) = (slice::<I>(self.index(0)?), slice::<I>(self.index(1)?));
                    self.grouped_elements(&Rows { indptr, indices: &indices[..self.count] }, groups, None)?
                })
            } else {
                self.expand()?;
                let axes = match self.coordinate_dtype == dtype {
                    true => None,
                    false => Some([self.cast_axis(0, dtype)?, self.cast_axis(1, dtype)?]),
                };
                typed!(dtype, I => {
                    let axes: SmallVec<[Axis<'_, I>; 4]> = match &axes {
                        Some(axes) => axes.iter().map(axis).collect(),
                        None => self.axes(false)?,
                    };
                    let pairs = Pairs { groups: axes[leading], others: axes[1 - leading] };
                    self.grouped_elements(&pairs, groups, kept.as_ref())?
                })
            };
            self.grouped = Some(Grouped { by_columns, arrays: arrays.map(Some) });
        }
        self.grouped.as_mut().ok_or_else(taken)
    }

    /// Groups elements; gives pointers, the other coordinates and the values.
    fn grouped_elements<I: Index>(
        &self,
        elements: &impl Elements<I>,
        groups: usize,
        kept: Option<&Tensor<Owner>>,
    ) -> Result<[Tensor<Owner>; 3]> {
        let count = elements.count();
        let values = match kept {
            Some(values) => values,
            None => self.values()?.tensor()?,
        };
        let dtype = if size_of::<I>() == 4 { DType::Int32 } else { DType::Int64 };
        let indptr = Made::new(dtype, &[pointer_count(groups)?])?;
        let others = Made::new(dtype, &[count as i64])?;
        let grouped = Made::new(values.dtype(), &[&[count as i64], &self.dense_lengths[..]].concat())?;
        let item = values.dtype().size() * self.dense_lengths.iter().product::<i64>() as usize;
        let (first, second) = (indptr.data::<I>(), others.data::<I>());
        let (from, to) = (Address::of(values), grouped.data());
        // SAFETY: there is room for `groups + 1` pointers and for `count` others and values, and a value for each element.
        let total = away(self.py, count, || unsafe {
            let carry = carrier(from.get(), to.get(), item);
            group_by_axis(elements, groups, first.get(), second.get(), settings::threads(), carry)
        })?;
        if total != count {
            // They were validated, so that somebody has changed them meanwhile.
            let hint = "leave the tensor alone while it is carried";
            return Err(fail(ErrorKind::InvalidTensor, "an index is out of bounds", hint));
        }
        Ok([indptr.tensor()?, others.tensor()?, grouped.tensor()?])
    }

    /// Where each group begins, of elements that are grouped.
    pub(super) fn pointers(&mut self, conversion: &SparseConversion) -> Result<Tensor<Owner>> {
        let leading = conversion.format.leading_axis();
        let groups = self.lengths[leading] as usize;
        let dtype = conversion.index_dtype;
        let indptr = Made::new(dtype, &[pointer_count(groups)?])?;
        let (is_sorted, _) = sorted_and_summed(conversion.work);
        let picked = if is_sorted || self.coordinate_dtype != dtype {
            Some(self.picked_axis(leading, conversion.work, dtype)?)
        } else {
            None
        };
        typed!(dtype, I => {
            let places = match &picked {
                Some(picked) => axis::<I>(picked),
                None => self.axis::<I>(leading)?,
            };
            let to = indptr.data::<I>();
            // SAFETY: there is room for `groups + 1` pointers; the elements are in order along this axis, as the planner saw.
            away(self.py, places.count().max(groups), || unsafe {
                make::pointers(&places, groups, to.get(), settings::threads());
            });
        });
        indptr.tensor()
    }

    /// All coordinates in one matrix.
    pub(super) fn coordinate_matrix(&mut self, conversion: &SparseConversion) -> Result<Tensor<Owner>> {
        let dtype = conversion.index_dtype;
        let axes = self.lengths.len();
        let (is_sorted, _) = sorted_and_summed(conversion.work);
        let mut picked: SmallVec<[Tensor<Owner>; 4]> = SmallVec::new();
        if is_sorted {
            for number in 0..axes {
                picked.push(self.picked_axis(number, conversion.work, dtype)?);
            }
        }
        let count = picked.first().map_or(self.count, |axis| axis.layout().count());
        let by_axis = conversion.layout == CoordinateLayout::Axes;
        let shape = if by_axis { [axes as i64, count as i64] } else { [count as i64, axes as i64] };
        let matrix = Made::new(dtype, &shape)?;
        let from = if is_sorted { dtype } else { self.coordinate_dtype };
        typed!(from, I => typed!(dtype, O => {
            let given: SmallVec<[Axis<'_, I>; 4]> =
                if is_sorted { picked.iter().map(axis).collect() } else { self.axes(false)? };
            let start = matrix.data::<O>();
            away(self.py, count, || for (number, axis) in given.iter().enumerate() {
                let (ahead, step) = if by_axis { (number * count, 1) } else { (number, axes) };
                // SAFETY: a line of the matrix, which has room for `count` numbers.
                unsafe { make::write_axis(axis, start.get().add(ahead), step, settings::threads()) };
            });
        }));
        matrix.tensor()
    }

    /// Makes an array as the conversion says.
    pub(super) fn made_array(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<Tensor<Owner>> {
        let (work, dtype) = (conversion.work, conversion.index_dtype);
        match work {
            ElementWork::Blocks(block) => return self.make_blocks(block, role, dtype),
            ElementWork::Group => {
                let grouped = self.group(conversion.by_columns(), dtype)?;
                let number = match role {
                    ArrayRole::Pointers => 0,
                    ArrayRole::Values => 2,
                    _ => 1,
                };
                return grouped.arrays[number].take().ok_or_else(taken);
            }
            ElementWork::Elements { sort, .. } => {
                self.expand()?;
                if sort {
                    self.sort(conversion.by_columns())?;
                }
            }
            ElementWork::Keep => {}
        }
        match role {
            ArrayRole::Values => self.made_values(work),
            ArrayRole::Pointers => self.pointers(conversion),
            ArrayRole::Indices => self.take_axis(1 - conversion.format.leading_axis(), work, dtype),
            ArrayRole::Axis(number, _) => self.take_axis(number, work, dtype),
            ArrayRole::Coordinates => self.coordinate_matrix(conversion),
        }
    }
}

/// The number of pointers that this many groups have.
pub(super) fn pointer_count(groups: usize) -> Result<i64> {
    let groups = i64::try_from(groups).ok();
    groups.and_then(|groups| groups.checked_add(1)).ok_or_else(|| {
        fail(ErrorKind::OutOfMemory, "the shape has too many rows or columns", "take a part of the tensor")
    })
}

/// A function that copies elements of `item` bytes between two arrays.
///
/// # Safety
/// It is called with numbers of elements that both arrays have.
unsafe fn carrier(from: *const u8, to: *mut u8, item: usize) -> impl Fn(usize, usize) + Sync {
    struct Ends(*const u8, *mut u8);
    // SAFETY: these are addresses; whoever calls `copy` vouches for the elements.
    unsafe impl Sync for Ends {}
    impl Ends {
        #[inline(always)]
        fn copy(&self, item: usize, source: usize, target: usize) {
            // SAFETY: the contract of `carrier`.
            unsafe { self.1.add(target * item).copy_from_nonoverlapping(self.0.add(source * item), item) }
        }
    }
    let ends = Ends(from, to);
    move |source, target| match item {
        4 => ends.copy(4, source, target),
        8 => ends.copy(8, source, target),
        _ => ends.copy(item, source, target),
    }
}
