//! The engine for arrays on the host: compiled kernels, which divide large arrays among threads.
//!
//! Memory that is made here begins at a multiple of 64 bytes, so that every framework can share it and nothing is copied twice.

mod blocks;
mod dense;
mod reorder;
mod views;

use super::arrays::{Array, Made, away, axis, line_of, made, slice, typed};
use super::components::{Parts, Shape};
use super::engine::{Arriving, CoordinateRange, Engine};
use crate::errors::{Failure, Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use tensorferry_core::plan::sparse::{
    ArrayRole, CoordinateLayout, ElementOrder, Inspect, SparseConversion, SparseFormat,
};
use tensorferry_core::sparse::blocks::{self as block_kernels, Blocks};
use tensorferry_core::sparse::order::SortedOrder;
use tensorferry_core::sparse::validate::{self, CompressedSummary, IndexFault};
use tensorferry_core::sparse::{Axis, Index, make as make_kernels};
use tensorferry_core::{DType, ErrorKind, Tensor};

/// The arrays of a sparse tensor on the host, and what was found out about them.
pub(super) struct HostEngine<'py> {
    py: Python<'py>,
    format: SparseFormat,
    layout: CoordinateLayout,
    /// The lengths of the axes that have coordinates.
    pub(super) lengths: Shape,
    /// The lengths of the dense axes.
    pub(super) dense_lengths: Shape,
    block: Option<[i64; 2]>,
    values: Option<Array<'py>>,
    arrays: SmallVec<[Option<Array<'py>>; 2]>,
    /// The type of the index arrays that kernels read.
    dtype: DType,
    /// The number of stored elements, or of blocks.
    count: usize,
    /// Whether the arrays have room for more.
    has_spare: bool,
    /// The coordinates of single elements, where the source has none, or padding was left out.
    coordinates: Option<SmallVec<[ElementAxis; 2]>>,
    /// The type of the coordinates of single elements.
    coordinate_dtype: DType,
    /// The elements that stay when padding is left out.
    kept: Option<Vec<usize>>,
    /// An order by all axes, with the last axis first or not.
    sorted: Option<(bool, SortedOrder)>,
    /// Elements grouped by rows, or by columns.
    grouped: Option<Grouped>,
    blocks: Option<Blocks>,
}

/// The coordinates of single elements along one axis.
enum ElementAxis {
    /// An index array of the source.
    Given(usize),
    /// Until the result takes it.
    Made(Option<Tensor<Owner>>),
}

/// Pointers, indices and values, until each is taken.
struct Grouped {
    by_columns: bool,
    arrays: [Option<Tensor<Owner>>; 3],
}

impl<'py> HostEngine<'py> {
    /// Prepares the index arrays, whose shapes and types were validated, for kernels.
    pub(super) fn new(
        parts: &Parts<'py>,
        values: Array<'py>,
        mut arrays: SmallVec<[Array<'py>; 2]>,
    ) -> Result<Self> {
        let is_compressed = parts.format != SparseFormat::Coo;
        for array in &mut arrays {
            array.prepare_index(None, is_compressed)?;
        }
        let mut dtype = DType::Int64;
        if let [first, others @ ..] = &arrays[..] {
            dtype = first.tensor()?.dtype();
            let mut is_mixed = false;
            for other in others {
                is_mixed |= other.tensor()?.dtype() != dtype;
            }
            if is_mixed {
                dtype = DType::Int64;
                for array in &mut arrays {
                    array.prepare_index(Some(dtype), is_compressed)?;
                }
            }
        }
        let shape = &parts.shape;
        let count = match (parts.format, parts.layout) {
            (SparseFormat::Coo, CoordinateLayout::Axes) => arrays[0].shape().get(1).copied(),
            (SparseFormat::Coo, _) => arrays.first().and_then(|array| array.shape().first().copied()),
            _ => arrays[1].shape().last().copied(),
        };
        Ok(Self {
            py: parts.values.py(),
            format: parts.format,
            layout: parts.layout,
            lengths: Shape::from_slice(parts.sparse_shape()),
            dense_lengths: Shape::from_slice(&shape[shape.len() - parts.dense_axes..]),
            block: parts.block,
            values: Some(values),
            arrays: arrays.into_iter().map(Some).collect(),
            dtype,
            count: count.unwrap_or(0) as usize,
            has_spare: false,
            coordinates: None,
            coordinate_dtype: dtype,
            kept: None,
            sorted: None,
            grouped: None,
            blocks: None,
        })
    }

    /// An index array of the source.
    fn array(&self, number: usize) -> Result<&Array<'py>> {
        self.arrays.get(number).and_then(Option::as_ref).ok_or_else(taken)
    }

    pub(super) fn index(&self, number: usize) -> Result<&Tensor<Owner>> {
        self.array(number)?.tensor()
    }

    pub(super) fn index_dtype(&self) -> DType {
        self.dtype
    }

    fn values(&self) -> Result<&Array<'py>> {
        self.values.as_ref().ok_or_else(taken)
    }

    /// The values that kernels read: dense, in this machine's byte order. Those of blocks lie one by one.
    pub(super) fn dense_values(&mut self) -> Result<&Tensor<Owner>> {
        self.values.as_mut().ok_or_else(taken)?.prepare_values()?;
        self.values()?.tensor()
    }

    /// The axis of single elements that holds the pointers of a compressed format.
    fn pointer_axis(&self) -> usize {
        self.format.leading_axis()
    }

    /// Gives each element coordinates, if the source has none for it.
    fn expand(&mut self) -> Result<()> {
        if self.format == SparseFormat::Coo || self.coordinates.is_some() {
            return Ok(());
        }
        let (pointers, count) = (self.index(0)?, self.count);
        let rows = Made::new(self.dtype, &[count as i64])?;
        typed!(self.dtype, I => {
            let (pointers, rows) = (slice::<I>(pointers), rows.data::<I>());
            // SAFETY: `rows` has room for `count` numbers.
            away(self.py, count, || unsafe { make_kernels::expand(pointers, count, rows.get(), settings::threads()) });
        });
        let rows = rows.tensor()?;
        if let (SparseFormat::Bsr, Some([high, wide])) = (self.format, self.block) {
            let size = [high as usize, wide as usize];
            let total = count as i64 * high * wide;
            let (down, right) = (Made::new(DType::Int64, &[total])?, Made::new(DType::Int64, &[total])?);
            let columns = self.index(1)?;
            typed!(self.dtype, I => {
                let (rows, columns) = (slice::<I>(&rows), &slice::<I>(columns)[..count]);
                let (down, right) = (down.data::<i64>(), right.data::<i64>());
                // SAFETY: both have room for the elements of `count` blocks.
                away(self.py, total as usize, || unsafe {
                    block_kernels::expand(rows, columns, size, down.get(), right.get());
                });
            });
            self.coordinates = Some(smallvec![
                ElementAxis::Made(Some(down.tensor()?)),
                ElementAxis::Made(Some(right.tensor()?))
            ]);
            self.coordinate_dtype = DType::Int64;
            self.count = total as usize;
            return Ok(());
        }
        let mut axes = smallvec![ElementAxis::Made(Some(rows)), ElementAxis::Given(1)];
        if self.pointer_axis() == 1 {
            axes.reverse();
        }
        self.coordinates = Some(axes);
        Ok(())
    }

    /// The coordinates of single elements along one axis.
    fn axis<I: Index>(&self, number: usize) -> Result<Axis<'_, I>> {
        match (&self.coordinates, self.layout) {
            (Some(made), _) => match &made[number] {
                ElementAxis::Given(array) => Ok(axis(self.index(*array)?).first(self.count)),
                ElementAxis::Made(tensor) => Ok(axis(tensor.as_ref().ok_or_else(taken)?)),
            },
            (None, CoordinateLayout::Separate) => Ok(axis(self.index(number)?)),
            (None, CoordinateLayout::Axes) => Ok(line_of(self.index(0)?, number, 1)),
            (None, CoordinateLayout::Points) => Ok(line_of(self.index(0)?, number, 0)),
        }
    }

    /// The coordinates of single elements along each axis, the last axis first if it is `by_columns`.
    fn axes<I: Index>(&self, by_columns: bool) -> Result<SmallVec<[Axis<'_, I>; 4]>> {
        let mut axes = SmallVec::new();
        for number in 0..self.lengths.len() {
            axes.push(self.axis(number)?);
        }
        if by_columns {
            axes.reverse();
        }
        Ok(axes)
    }

    /// The range and the order of the coordinates of single elements.
    fn range(&self, by_columns: bool) -> Result<CoordinateRange> {
        let found = typed!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(by_columns)?;
            away(self.py, self.count, || validate::summarise_coordinates(&axes, settings::threads()))
        });
        let validate::CoordinateSummary { ends, in_order, unique, grouped } = found;
        Ok(CoordinateRange { ends, order: ElementOrder { in_order, unique, grouped } })
    }
}

impl Inspect for HostEngine<'_> {
    type Error = Failure;

    fn order(&mut self, by_columns: bool) -> Result<ElementOrder> {
        self.expand()?;
        Ok(self.range(by_columns)?.order)
    }

    fn distinct(&mut self, by_columns: bool) -> Result<usize> {
        self.expand()?;
        Ok(self.sort(by_columns)?.starts().len())
    }

    fn order_after_grouping(&mut self, by_columns: bool, index_dtype: DType) -> Result<ElementOrder> {
        let length = self.lengths[usize::from(!by_columns)];
        let py = self.py;
        let grouped = self.group(by_columns, index_dtype)?;
        let [Some(indptr), Some(indices), _] = &grouped.arrays else { return Err(taken()) };
        let found = typed!(index_dtype, I => {
            let (indptr, indices) = (slice::<I>(indptr), slice::<I>(indices));
            away(py, indices.len().max(indptr.len()), || {
                validate::validate_compressed(indptr, indices, length, settings::threads())
            })
        });
        match found {
            Ok(CompressedSummary { in_order, unique, .. }) => {
                Ok(ElementOrder { in_order, unique, grouped: true })
            }
            // They were validated, so that somebody has changed them meanwhile.
            Err(_) => Err(fail(
                ErrorKind::InvalidTensor,
                "an index is out of bounds",
                "leave the tensor alone while it is carried",
            )),
        }
    }
}

impl<'py> Engine<'py> for HostEngine<'py> {
    fn validate_matrix(
        &mut self,
        matrix: usize,
        rows: usize,
        columns: i64,
    ) -> Result<std::result::Result<CompressedSummary, IndexFault>> {
        let (indptr, indices, stored) = (self.index(0)?, self.index(1)?, self.count);
        Ok(typed!(self.dtype, I => {
            let indptr = &slice::<I>(indptr)[matrix * (rows + 1)..][..rows + 1];
            let indices = &slice::<I>(indices)[matrix * stored..][..stored];
            away(self.py, stored.max(rows), || {
                validate::validate_compressed(indptr, indices, columns, settings::threads())
            })
        }))
    }

    fn coordinate_range(&mut self) -> Result<CoordinateRange> {
        self.range(false)
    }

    fn drop_padding(&mut self) -> Result<(usize, ElementOrder)> {
        let lengths = self.lengths.clone();
        let (kept, axes) = typed!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(false)?;
            let kept = validate::validate_coordinates(&axes, &lengths)?;
            let mut made = SmallVec::new();
            for axis in &axes {
                let array = Made::new(self.coordinate_dtype, &[kept.len() as i64])?;
                // SAFETY: `array` has room for a number of each element that stays, and those are numbers of elements.
                unsafe { make_kernels::take_axis(&kept, axis, array.data::<I>().get()) };
                made.push(ElementAxis::Made(Some(array.tensor()?)));
            }
            (kept, made)
        });
        self.count = kept.len();
        self.kept = Some(kept);
        self.coordinates = Some(axes);
        Ok((self.count, self.range(false)?.order))
    }

    fn count(&self) -> usize {
        self.count
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.has_spare |= count < self.count;
        self.count = self.count.min(count);
        Ok(())
    }

    fn is_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool> {
        self.is_given_dense(conversion, role)
    }

    fn give(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>> {
        self.given(conversion, role).map(Arriving::Source)
    }

    fn peek(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>> {
        self.peeked(conversion, role).map(Arriving::Source)
    }

    fn pack(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>> {
        let tensor = self.packed(conversion, role)?;
        Ok(Arriving::Source(made(self.py, tensor)))
    }

    fn make(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Arriving<'py>> {
        let tensor = self.made_array(conversion, role)?;
        Ok(Arriving::Source(made(self.py, tensor)))
    }

    fn block_count(&mut self, block: [i64; 2]) -> Result<usize> {
        Ok(self.find_blocks(block)?.count())
    }
}

/// An array of the source was handed on, and is asked for again: a mistake of ours.
fn taken() -> Failure {
    fail(ErrorKind::InvalidTensor, "an array was handed on twice", "report this")
}
