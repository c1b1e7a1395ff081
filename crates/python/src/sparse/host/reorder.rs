//! Sorting, summing and grouping of elements on the host, and the arrays that result.

use super::super::arrays::{axis, detach_if_large, index_dtype, index_slice, with_index_type};
use super::{ElementAxis, GroupedArrays, HostEngine, already_taken};
use crate::conversion::host_copy::{NewArray, SendPtr};
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use smallvec::SmallVec;
use tensorferry_core::plan::sparse::{
    ArrayRole, CoordinateLayout, ElementWork, SparseConversion, SparseFormat,
};
use tensorferry_core::sparse::group::{Elements, Pairs, Rows, group_by_axis};
use tensorferry_core::sparse::order::{SortedOrder, sort_by_axes};
use tensorferry_core::sparse::{Axis, Index, compress, gather};
use tensorferry_core::{DType, ErrorKind, Tensor};

/// Whether the work sorts the elements, and whether it sums duplicates.
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
            let order = with_index_type!(self.coordinate_dtype, I => {
                let axes = self.axes::<I>(by_columns)?;
                detach_if_large(self.py, self.count, || sort_by_axes(&axes, &lengths, settings::threads()))?
            });
            self.sorted = Some((by_columns, order));
        }
        self.order()
    }

    fn order(&self) -> Result<&SortedOrder> {
        self.sorted.as_ref().map(|(_, order)| order).ok_or_else(already_taken)
    }

    /// The coordinates along one axis. The engine gives up its array where it can.
    pub(super) fn take_axis(
        &mut self,
        number: usize,
        work: ElementWork,
        dtype: DType,
    ) -> Result<Tensor<Owner>> {
        if !sorted_and_summed(work).0
            && self.coordinate_dtype == dtype
            && let Some(axes) = &mut self.coordinates
            && let ElementAxis::New(tensor) = &mut axes[number]
        {
            return tensor.take().ok_or_else(already_taken);
        }
        self.pick_axis(number, work, dtype)
    }

    /// The coordinates along one axis, sorted and without duplicates as the work demands.
    fn pick_axis(&self, number: usize, work: ElementWork, dtype: DType) -> Result<Tensor<Owner>> {
        let (sort, firsts) = sorted_and_summed(work);
        let dense = self.cast_axis(number, dtype)?;
        if sort { self.pick_elements(self.order()?, &dense, &[], firsts) } else { Ok(dense) }
    }

    /// The coordinates along one axis as a contiguous array of this dtype.
    fn cast_axis(&self, number: usize, dtype: DType) -> Result<Tensor<Owner>> {
        let mut array = NewArray::new(dtype, &[self.count as i64])?;
        with_index_type!(self.coordinate_dtype, I => with_index_type!(dtype, O => {
            let (axis, numbers) = (self.axis::<I>(number)?, array.slots::<O>());
            check_count(axis.count(), self.count)?;
            detach_if_large(self.py, self.count, || gather::write_axis(&axis, numbers, 1, settings::threads()));
        }));
        // SAFETY: `tensor` requires that every element is written: the axis has a number for each, as was compared.
        Ok(unsafe { array.tensor() }?)
    }

    /// The elements of a contiguous array in sorted order; with `firsts`, only the first of each coordinate.
    fn pick_elements(
        &self,
        order: &SortedOrder,
        array: &Tensor<Owner>,
        rest: &[i64],
        firsts: bool,
    ) -> Result<Tensor<Owner>> {
        let count = if firsts { order.starts().len() } else { order.order().len() };
        let picked = NewArray::new(array.dtype(), &[&[count as i64], rest].concat())?;
        let item = array.dtype().size() * rest.iter().product::<i64>() as usize;
        let (from, to) = (SendPtr::of(array), picked.data());
        // SAFETY: `pick` requires `item` readable bytes for each sorted element: the array is contiguous, with one row of `rest` for
        // each. It requires memory for the elements that are written: `picked` was created with `count` such rows. It writes every
        // one, as `tensor` requires.
        unsafe {
            detach_if_large(self.py, count, || {
                gather::pick(order, firsts, from.get(), item, to.get(), settings::threads());
            });
            Ok(picked.tensor()?)
        }
    }

    /// The values of the elements, without padding.
    pub(super) fn element_values(&mut self) -> Result<Option<Tensor<Owner>>> {
        self.dense_values()?;
        let Some(kept_elements) = &self.kept_elements else { return Ok(None) };
        let values = self.values()?.tensor()?;
        let rest = &self.dense_lengths[..];
        let item = values.dtype().size() * rest.iter().product::<i64>() as usize;
        let kept_values = NewArray::new(values.dtype(), &[&[kept_elements.len() as i64], rest].concat())?;
        let (from, to) = (SendPtr::of(values), kept_values.data());
        // SAFETY: `take` requires `item` readable bytes for each index: `drop_padding` kept indices of elements, and `check_arrays`
        // found a contiguous value for each. It requires memory for as many: `kept_values` was created with their count. It writes
        // every one, as `tensor` requires.
        unsafe {
            detach_if_large(self.py, kept_elements.len(), || {
                gather::take(kept_elements, from.get(), item, to.get(), settings::threads());
            });
            Ok(Some(kept_values.tensor()?))
        }
    }

    /// The values, sorted and summed.
    pub(super) fn make_values(&mut self, work: ElementWork) -> Result<Tensor<Owner>> {
        let unpadded = self.element_values()?;
        let rest = self.dense_lengths.clone();
        let (sort, sum) = sorted_and_summed(work);
        if !sort {
            return unpadded.ok_or_else(already_taken);
        }
        let values = match &unpadded {
            Some(values) => values,
            None => self.values()?.tensor()?,
        };
        let order = self.order()?;
        if !sum {
            return self.pick_elements(order, values, &rest, false);
        }
        let dtype = values.dtype();
        let summed = NewArray::new(dtype, &[&[order.starts().len() as i64], &rest[..]].concat())?;
        let (from, to) = (SendPtr::of(values), summed.data());
        let width = rest.iter().product::<i64>() as usize;
        // SAFETY: `sum` requires a readable and aligned value for each sorted element: `prepare_values` made them contiguous and
        // aligned. It requires memory for one value of each coordinate: `summed` was created with the number of starts. It writes
        // every one, as `tensor` requires.
        unsafe {
            detach_if_large(self.py, self.count, || {
                gather::sum(order, dtype, from.get(), width, to.get(), settings::threads());
            });
            Ok(summed.tensor()?)
        }
    }

    /// Groups the elements by rows, or by columns.
    pub(super) fn group(&mut self, by_columns: bool, dtype: DType) -> Result<&mut GroupedArrays> {
        if self.grouped.as_ref().is_none_or(|grouped| grouped.by_columns != by_columns) {
            let unpadded = self.element_values()?;
            let leading = usize::from(by_columns);
            let groups = self.lengths[leading] as usize;
            let is_compressed = matches!(self.format, SparseFormat::Csr | SparseFormat::Csc);
            let arrays = if is_compressed && self.coordinates.is_none() {
                for array in self.arrays.iter_mut().flatten() {
                    array.prepare_index(Some(dtype), true)?;
                }
                self.dtype = dtype;
                self.coordinate_dtype = dtype;
                with_index_type!(dtype, I => {
                    let (indptr, indices) = (index_slice::<I>(self.index(0)?)?, index_slice::<I>(self.index(1)?)?);
                    self.group_elements(&Rows { indptr, indices: &indices[..self.count] }, groups, None)?
                })
            } else {
                self.expand()?;
                let axes = match self.coordinate_dtype == dtype {
                    true => None,
                    false => Some([self.cast_axis(0, dtype)?, self.cast_axis(1, dtype)?]),
                };
                with_index_type!(dtype, I => {
                    let axes: SmallVec<[Axis<'_, I>; 4]> = match &axes {
                        Some(axes) => axes.iter().map(axis).collect::<Result<_>>()?,
                        None => self.axes(false)?,
                    };
                    let pairs = Pairs { groups: axes[leading], others: axes[1 - leading] };
                    self.group_elements(&pairs, groups, unpadded.as_ref())?
                })
            };
            self.grouped = Some(GroupedArrays { by_columns, arrays: arrays.map(Some) });
        }
        self.grouped.as_mut().ok_or_else(already_taken)
    }

    /// Groups elements; returns pointers, the other coordinates and the values.
    fn group_elements<I: Index>(
        &self,
        elements: &impl Elements<I>,
        groups: usize,
        unpadded: Option<&Tensor<Owner>>,
    ) -> Result<[Tensor<Owner>; 3]> {
        let count = elements.count();
        let values = match unpadded {
            Some(values) => values,
            None => self.values()?.tensor()?,
        };
        let dtype = index_dtype::<I>();
        let mut indptr = NewArray::new(dtype, &[pointer_count(groups)?])?;
        let mut others = NewArray::new(dtype, &[count as i64])?;
        let grouped = NewArray::new(values.dtype(), &[&[count as i64], &self.dense_lengths[..]].concat())?;
        let item = values.dtype().size() * self.dense_lengths.iter().product::<i64>() as usize;
        let (first, second) = (indptr.slots::<I>(), others.slots::<I>());
        let (from, to) = (SendPtr::of(values), grouped.data());
        // SAFETY: `group_by_axis` calls the copier only with numbers below the count: `values` has a value of `item` bytes for each
        // element, and `grouped` memory for as many. The planner chose a `dtype` that can represent their number.
        let total = detach_if_large(self.py, count, || unsafe {
            let copy_element = element_copier(from, to, item);
            group_by_axis(elements, first, second, settings::threads(), copy_element)
        })?;
        if total != count {
            // The indices were validated before, so another thread has written them since.
            let hint = "do not write the tensor during the conversion";
            return Err(fail(
                ErrorKind::InvalidTensor,
                "an index changed during the conversion and is out of bounds",
                hint,
            ));
        }
        // SAFETY: `tensor` requires that every element is written: the kernel writes all pointers, and one coordinate and value for
        // each of the `total` elements within bounds, which are all, as was compared.
        Ok(unsafe { [indptr.tensor()?, others.tensor()?, grouped.tensor()?] })
    }

    /// The pointers to the first element of each group, for grouped elements.
    pub(super) fn pointers(&mut self, conversion: &SparseConversion) -> Result<Tensor<Owner>> {
        let leading = conversion.format.leading_axis();
        let groups = self.lengths[leading] as usize;
        let dtype = conversion.index_dtype;
        let mut indptr = NewArray::new(dtype, &[pointer_count(groups)?])?;
        let (is_sorted, _) = sorted_and_summed(conversion.work);
        let picked = if is_sorted || self.coordinate_dtype != dtype {
            Some(self.pick_axis(leading, conversion.work, dtype)?)
        } else {
            None
        };
        with_index_type!(dtype, I => {
            let coordinates = match &picked {
                Some(picked) => axis::<I>(picked)?,
                None => self.axis::<I>(leading)?,
            };
            let pointers = indptr.slots::<I>();
            detach_if_large(self.py, coordinates.count().max(groups), || {
                compress::pointers(&coordinates, pointers, settings::threads());
            });
        });
        // SAFETY: `tensor` requires that every element is written: `pointers` writes every slot.
        Ok(unsafe { indptr.tensor() }?)
    }

    /// The matrix of all coordinates.
    pub(super) fn coordinate_matrix(&mut self, conversion: &SparseConversion) -> Result<Tensor<Owner>> {
        let dtype = conversion.index_dtype;
        let axes = self.lengths.len();
        let (is_sorted, _) = sorted_and_summed(conversion.work);
        let mut picked: SmallVec<[Tensor<Owner>; 4]> = SmallVec::new();
        if is_sorted {
            for number in 0..axes {
                picked.push(self.pick_axis(number, conversion.work, dtype)?);
            }
        }
        let count = picked.first().map_or(self.count, |axis| axis.layout().count());
        let by_axis = conversion.layout == CoordinateLayout::Axes;
        let shape = if by_axis { [axes as i64, count as i64] } else { [count as i64, axes as i64] };
        let mut matrix = NewArray::new(dtype, &shape)?;
        let from = if is_sorted { dtype } else { self.coordinate_dtype };
        with_index_type!(from, I => with_index_type!(dtype, O => {
            let axes_to_write: SmallVec<[Axis<'_, I>; 4]> =
                if is_sorted { picked.iter().map(axis).collect::<Result<_>>()? } else { self.axes(false)? };
            for axis in &axes_to_write {
                check_count(axis.count(), count)?;
            }
            let numbers = matrix.slots::<O>();
            detach_if_large(self.py, count, || for (number, axis) in axes_to_write.iter().enumerate() {
                let (offset, step) = if by_axis { (number * count, 1) } else { (number, axes) };
                // A matrix without elements has no column that could start at the offset.
                let numbers = numbers.get_mut(offset..).unwrap_or_default();
                gather::write_axis(axis, numbers, step, settings::threads());
            });
        }));
        // SAFETY: `tensor` requires that every element is written: each row or column has `count` elements, and so has each axis,
        // as was compared.
        Ok(unsafe { matrix.tensor() }?)
    }

    /// Makes an array by the steps of the conversion.
    pub(super) fn make_tensor(
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
                return grouped.arrays[number].take().ok_or_else(already_taken);
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
            ArrayRole::Values => self.make_values(work),
            ArrayRole::Pointers => self.pointers(conversion),
            ArrayRole::Indices => self.take_axis(1 - conversion.format.leading_axis(), work, dtype),
            ArrayRole::Axis(number, _) => self.take_axis(number, work, dtype),
            ArrayRole::Coordinates => self.coordinate_matrix(conversion),
        }
    }
}

/// The length of the pointer array for this many groups.
pub(super) fn pointer_count(groups: usize) -> Result<i64> {
    let groups = i64::try_from(groups).ok();
    groups.and_then(|groups| groups.checked_add(1)).ok_or_else(|| {
        fail(
            ErrorKind::OutOfMemory,
            "the shape has too many rows or columns",
            "convert a slice of the tensor",
        )
    })
}

/// Fails unless an axis has as many coordinates as there are elements.
fn check_count(found: usize, count: usize) -> Result<()> {
    if found == count {
        return Ok(());
    }
    let fact = format!("an axis has {found} coordinates for {count} elements");
    Err(fail(ErrorKind::InvalidTensor, fact, "report this"))
}

/// A function that copies elements of `item` bytes between two arrays.
///
/// # Safety
/// The function is called only with indices of elements that both arrays have, and on several threads only with different targets.
unsafe fn element_copier(from: SendPtr<u8>, to: SendPtr<u8>, item: usize) -> impl Fn(usize, usize) + Sync {
    // SAFETY: the copy requires `item` readable bytes at the source and writable bytes at the target, which do not overlap. The
    // contract of `element_copier` says that both arrays have the elements, and the arrays are different.
    let copy = move |item: usize, source: usize, target: usize| unsafe {
        to.get().add(target * item).copy_from_nonoverlapping(from.get().add(source * item), item);
    };
    move |source, target| match item {
        4 => copy(4, source, target),
        8 => copy(8, source, target),
        _ => copy(item, source, target),
    }
}
