//! The engine for arrays on the host: kernels of the core, which divide large arrays among threads.
//!
//! New arrays are aligned to 64 bytes, so that every framework can share them and nothing is copied twice.

mod blocks;
mod dense;
mod reorder;
mod views;

use super::arrays::{
    SourceArray, axis, detach_if_large, index_slice, matrix_line, new_array_source, with_index_type,
};
use super::components::{Shape, SparseComponents};
use super::engine::{CoordinateRange, Engine, ResultArray};
use crate::conversion::host_copy::NewArray;
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
use tensorferry_core::sparse::validate::{self, CompressedSummary, IndexError};
use tensorferry_core::sparse::{Axis, Index, compress, gather};
use tensorferry_core::{DType, ErrorKind, Tensor};

/// The arrays of a sparse tensor on the host, and intermediate results that several arrays of the result use.
pub(super) struct HostEngine<'py> {
    py: Python<'py>,
    format: SparseFormat,
    layout: CoordinateLayout,
    /// The lengths of the sparse axes.
    pub(super) lengths: Shape,
    /// The lengths of the dense axes.
    pub(super) dense_lengths: Shape,
    block: Option<[i64; 2]>,
    values: Option<SourceArray<'py>>,
    arrays: SmallVec<[Option<SourceArray<'py>>; 2]>,
    /// The dtype of the index arrays that kernels read.
    dtype: DType,
    /// The number of stored elements, or of blocks.
    count: usize,
    /// Whether the arrays are longer than `count`.
    has_spare: bool,
    /// The coordinates of single elements, where the source stores none, or padding was dropped.
    coordinates: Option<SmallVec<[ElementAxis; 2]>>,
    /// The dtype of the coordinates of single elements.
    coordinate_dtype: DType,
    /// The indices of the elements that are not padding.
    kept_elements: Option<Vec<usize>>,
    /// The elements sorted by all axes; true sorts by the last axis first.
    sorted: Option<(bool, SortedOrder)>,
    /// The elements grouped by rows, or by columns.
    grouped: Option<GroupedArrays>,
    blocks: Option<Blocks>,
}

/// The coordinates of single elements along one axis.
enum ElementAxis {
    /// An index array of the source.
    Source(usize),
    /// A new array, until the result takes it.
    New(Option<Tensor<Owner>>),
}

/// Pointers, indices and values, until the result takes each.
struct GroupedArrays {
    by_columns: bool,
    arrays: [Option<Tensor<Owner>>; 3],
}

impl<'py> HostEngine<'py> {
    /// Prepares the index arrays for kernels. `check_arrays` has accepted their shapes and dtypes.
    pub(super) fn new(
        components: &SparseComponents<'py>,
        values: SourceArray<'py>,
        mut arrays: SmallVec<[SourceArray<'py>; 2]>,
    ) -> Result<Self> {
        let is_compressed = components.format != SparseFormat::Coo;
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
        let shape = &components.shape;
        let count = match (components.format, components.layout) {
            (SparseFormat::Coo, CoordinateLayout::Axes) => arrays[0].shape().get(1).copied(),
            (SparseFormat::Coo, _) => arrays.first().and_then(|array| array.shape().first().copied()),
            _ => arrays[1].shape().last().copied(),
        };
        Ok(Self {
            py: components.values.py(),
            format: components.format,
            layout: components.layout,
            lengths: Shape::from_slice(components.sparse_shape()),
            dense_lengths: Shape::from_slice(&shape[shape.len() - components.dense_axes..]),
            block: components.block,
            values: Some(values),
            arrays: arrays.into_iter().map(Some).collect(),
            dtype,
            count: count.unwrap_or(0) as usize,
            has_spare: false,
            coordinates: None,
            coordinate_dtype: dtype,
            kept_elements: None,
            sorted: None,
            grouped: None,
            blocks: None,
        })
    }

    /// The index array `number` of the source.
    fn array(&self, number: usize) -> Result<&SourceArray<'py>> {
        self.arrays.get(number).and_then(Option::as_ref).ok_or_else(already_taken)
    }

    pub(super) fn index(&self, number: usize) -> Result<&Tensor<Owner>> {
        self.array(number)?.tensor()
    }

    pub(super) fn index_dtype(&self) -> DType {
        self.dtype
    }

    fn values(&self) -> Result<&SourceArray<'py>> {
        self.values.as_ref().ok_or_else(already_taken)
    }

    /// The values that kernels read: contiguous, in native byte order. Values of blocks follow each other.
    pub(super) fn dense_values(&mut self) -> Result<&Tensor<Owner>> {
        self.values.as_mut().ok_or_else(already_taken)?.prepare_values()?;
        self.values()?.tensor()
    }

    /// The axis that the pointers of a compressed format count.
    fn pointer_axis(&self) -> usize {
        self.format.leading_axis()
    }

    /// Computes the coordinates of each element, if the source stores none.
    fn expand(&mut self) -> Result<()> {
        if self.format == SparseFormat::Coo || self.coordinates.is_some() {
            return Ok(());
        }
        let (pointers, count) = (self.index(0)?, self.count);
        let mut rows = NewArray::new(self.dtype, &[count as i64])?;
        with_index_type!(self.dtype, I => {
            let (pointers, rows) = (index_slice::<I>(pointers)?, rows.slots::<I>());
            detach_if_large(self.py, count, || compress::expand(pointers, rows, settings::threads()));
        });
        // SAFETY: `tensor` requires that every element is written: `expand` writes every slot.
        let rows = unsafe { rows.tensor() }?;
        if let (SparseFormat::Bsr, Some([block_rows, block_columns])) = (self.format, self.block) {
            let size = [block_rows as usize, block_columns as usize];
            let total = count as i64 * block_rows * block_columns;
            let (mut element_rows, mut element_columns) =
                (NewArray::new(DType::Int64, &[total])?, NewArray::new(DType::Int64, &[total])?);
            let columns = self.index(1)?;
            with_index_type!(self.dtype, I => {
                let (rows, columns) = (index_slice::<I>(&rows)?, &index_slice::<I>(columns)?[..count]);
                let (element_rows, element_columns) = (element_rows.slots(), element_columns.slots());
                detach_if_large(self.py, total as usize, || {
                    block_kernels::expand(rows, columns, size, element_rows, element_columns);
                });
            });
            // SAFETY: `tensor` requires that every element is written: `expand` writes every slot of both.
            let (element_rows, element_columns) =
                unsafe { (element_rows.tensor()?, element_columns.tensor()?) };
            self.coordinates = Some(smallvec![
                ElementAxis::New(Some(element_rows)),
                ElementAxis::New(Some(element_columns))
            ]);
            self.coordinate_dtype = DType::Int64;
            self.count = total as usize;
            return Ok(());
        }
        let mut axes = smallvec![ElementAxis::New(Some(rows)), ElementAxis::Source(1)];
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
                ElementAxis::Source(array) => Ok(axis(self.index(*array)?)?.first(self.count)),
                ElementAxis::New(tensor) => axis(tensor.as_ref().ok_or_else(already_taken)?),
            },
            (None, CoordinateLayout::Separate) => axis(self.index(number)?),
            (None, CoordinateLayout::Axes) => matrix_line(self.index(0)?, number, 1),
            (None, CoordinateLayout::Points) => matrix_line(self.index(0)?, number, 0),
        }
    }

    /// The coordinates of single elements along each axis; the last axis comes first if `by_columns`.
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

    /// The bounds and the order of the coordinates of single elements.
    fn range(&self, by_columns: bool) -> Result<CoordinateRange> {
        let found = with_index_type!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(by_columns)?;
            detach_if_large(self.py, self.count, || validate::summarise_coordinates(&axes, settings::threads()))
        });
        let validate::CoordinateSummary { ends, in_order, unique, grouped } = found;
        Ok(CoordinateRange { bounds: ends, order: ElementOrder { in_order, unique, grouped } })
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
        let [Some(indptr), Some(indices), _] = &grouped.arrays else { return Err(already_taken()) };
        let found = with_index_type!(index_dtype, I => {
            let (indptr, indices) = (index_slice::<I>(indptr)?, index_slice::<I>(indices)?);
            detach_if_large(py, indices.len().max(indptr.len()), || {
                validate::validate_compressed(indptr, indices, length, settings::threads())
            })
        });
        match found {
            Ok(CompressedSummary { in_order, unique, .. }) => {
                Ok(ElementOrder { in_order, unique, grouped: true })
            }
            // The indices were validated before, so another thread has written them since.
            Err(_) => Err(fail(
                ErrorKind::InvalidTensor,
                "an index changed during the conversion and is out of bounds",
                "do not write the tensor during the conversion",
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
    ) -> Result<std::result::Result<CompressedSummary, IndexError>> {
        let (indptr, indices, stored) = (self.index(0)?, self.index(1)?, self.count);
        Ok(with_index_type!(self.dtype, I => {
            let indptr = &index_slice::<I>(indptr)?[matrix * (rows + 1)..][..rows + 1];
            let indices = &index_slice::<I>(indices)?[matrix * stored..][..stored];
            detach_if_large(self.py, stored.max(rows), || {
                validate::validate_compressed(indptr, indices, columns, settings::threads())
            })
        }))
    }

    fn coordinate_range(&mut self) -> Result<CoordinateRange> {
        self.range(false)
    }

    fn drop_padding(&mut self) -> Result<(usize, ElementOrder)> {
        let lengths = self.lengths.clone();
        let (kept, axes) = with_index_type!(self.coordinate_dtype, I => {
            let axes = self.axes::<I>(false)?;
            let kept = validate::validate_coordinates(&axes, &lengths)?;
            let mut made = SmallVec::new();
            for axis in &axes {
                let mut array = NewArray::new(self.coordinate_dtype, &[kept.len() as i64])?;
                gather::take_axis(&kept, axis, array.slots::<I>());
                // SAFETY: `tensor` requires that every element is written: `take_axis` writes every slot.
                made.push(ElementAxis::New(Some(unsafe { array.tensor() }?)));
            }
            (kept, made)
        });
        self.count = kept.len();
        self.kept_elements = Some(kept);
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
        self.is_source_dense(conversion, role)
    }

    fn take_source_array(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<ResultArray<'py>> {
        self.take_source(conversion, role).map(ResultArray::Source)
    }

    fn peek_source_array(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        self.peek_source(conversion, role).map(ResultArray::Source)
    }

    fn pack_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        let tensor = self.pack_source(conversion, role)?;
        Ok(ResultArray::Source(new_array_source(self.py, tensor)))
    }

    fn make_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        let tensor = self.make_tensor(conversion, role)?;
        Ok(ResultArray::Source(new_array_source(self.py, tensor)))
    }

    fn block_count(&mut self, block: [i64; 2]) -> Result<usize> {
        Ok(self.find_blocks(block)?.count())
    }
}

/// The internal error of an array that is taken a second time.
fn already_taken() -> Failure {
    fail(ErrorKind::InvalidTensor, "an array was used twice", "report this")
}
