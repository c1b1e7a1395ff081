//! Validation of sparse tensors: shapes and dtypes of the arrays, bounds of the indices, and the order of the elements.
//!
//! Frameworks do not check the arrays that they receive: an index that is out of bounds, or row pointers that decrease, make them
//! read memory outside the arrays. So each tensor is validated once before its memory is shared. The order flags of the source
//! framework are trusted only for batches, whose order is not validated.

use super::arrays::SourceArray;
use super::components::SparseComponents;
use super::engine::Engine;
use crate::errors::{Failure, Result, fail};
use tensorferry_core::ErrorKind;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::format_shape;
use tensorferry_core::plan::sparse::{CoordinateLayout, ElementOrder, SparseFormat, SparseStructure};
use tensorferry_core::sparse::validate::{CompressedSummary, IndexError};

/// The error of a tensor whose arrays are invalid.
fn invalid(components: &SparseComponents<'_>, fact: impl std::fmt::Display) -> Failure {
    fail(
        ErrorKind::InvalidTensor,
        format!("the {} {} tensor is invalid: {fact}", components.framework.name, components.format.name()),
        "check how the tensor was constructed: its framework may not have validated it",
    )
}

/// Checks the types and shapes of the arrays, before an engine works on them.
pub(super) fn check_arrays(
    components: &SparseComponents<'_>,
    values: &SourceArray<'_>,
    arrays: &[SourceArray<'_>],
) -> Result<()> {
    for (number, array) in arrays.iter().enumerate() {
        if !matches!(array.dtype().kind(), DTypeKind::Signed | DTypeKind::Unsigned) {
            let name = components.role(number).name();
            return Err(invalid(components, format_args!("{name} are {}, not integers", array.dtype())));
        }
    }
    match components.format {
        SparseFormat::Coo if components.batch_axes > 0 => Ok(()),
        SparseFormat::Coo => check_coordinate_shapes(components, values, arrays),
        _ => check_compressed_shapes(components, values, arrays),
    }
}

fn check_coordinate_shapes(
    components: &SparseComponents<'_>,
    values: &SourceArray<'_>,
    arrays: &[SourceArray<'_>],
) -> Result<()> {
    let axes = components.sparse_shape().len();
    let (count, rest) = match values.shape() {
        [count, rest @ ..] => (*count, rest),
        [] => (-1, &[][..]),
    };
    let fits = match components.layout {
        CoordinateLayout::Axes => arrays.len() == 1 && arrays[0].shape() == [axes as i64, count],
        CoordinateLayout::Points => arrays.len() == 1 && arrays[0].shape() == [count, axes as i64],
        CoordinateLayout::Separate => {
            arrays.len() == axes && arrays.iter().all(|array| array.shape() == [count])
        }
    };
    if fits && rest == &components.shape[axes..] {
        return Ok(());
    }
    let found: Vec<_> = arrays.iter().map(|array| format_shape(array.shape())).collect();
    let values = format_shape(values.shape());
    Err(invalid(
        components,
        format_args!("coordinates of shapes [{}] do not match values of shape {values}", found.join(", ")),
    ))
}

/// The row and column counts that pointers and indices refer to: counts of blocks for bsr, columns first for csc.
fn extent(components: &SparseComponents<'_>) -> Result<(i64, i64)> {
    let &[mut rows, mut columns] = components.sparse_shape() else {
        return Err(invalid(components, "a compressed format needs two sparse axes"));
    };
    if components.format == SparseFormat::Csc {
        (rows, columns) = (columns, rows);
    }
    if let Some([block_rows, block_columns]) = components.block {
        if block_rows < 1 || block_columns < 1 || rows % block_rows != 0 || columns % block_columns != 0 {
            let shape = format_shape(&components.shape);
            return Err(invalid(
                components,
                format_args!("blocks of ({block_rows}, {block_columns}) do not divide the shape {shape}"),
            ));
        }
        (rows, columns) = (rows / block_rows, columns / block_columns);
    }
    Ok((rows, columns))
}

fn check_compressed_shapes(
    components: &SparseComponents<'_>,
    values: &SourceArray<'_>,
    arrays: &[SourceArray<'_>],
) -> Result<()> {
    let (rows, _) = extent(components)?;
    let batches = &components.shape[..components.batch_axes];
    let block = components.block.as_ref().map_or(&[][..], |block| &block[..]);
    let dense = &components.shape[components.batch_axes + 2..];
    let [pointers, indices] = arrays else {
        return Err(invalid(components, "a compressed format needs indptr and indices"));
    };
    let stored = indices.shape().last().copied().unwrap_or(-1);
    let fits = pointers.shape() == [batches, &[rows + 1]].concat()
        && indices.shape() == [batches, &[stored]].concat()
        && values.shape() == [batches, &[stored], block, dense].concat();
    if fits {
        return Ok(());
    }
    let [pointers, indices, values] = [pointers, indices, values].map(|array| format_shape(array.shape()));
    Err(invalid(
        components,
        format_args!("indptr of shape {pointers}, indices of {indices} and values of {values} do not match"),
    ))
}

/// Validates the indices of arrays that `check_arrays` accepted.
pub(super) fn validate<'py>(
    components: &SparseComponents<'py>,
    engine: &mut dyn Engine<'py>,
) -> Result<SparseStructure> {
    match components.format {
        SparseFormat::Coo if components.batch_axes > 0 => {
            let order = ElementOrder {
                in_order: components.is_declared_sorted,
                unique: components.is_declared_unique,
                grouped: components.is_declared_sorted,
            };
            Ok(SparseStructure { count: 0, spare: 0, order })
        }
        SparseFormat::Coo => validate_coordinates(components, engine),
        _ => validate_compressed(components, engine),
    }
}

fn validate_coordinates<'py>(
    components: &SparseComponents<'py>,
    engine: &mut dyn Engine<'py>,
) -> Result<SparseStructure> {
    let lengths = components.sparse_shape();
    if lengths.is_empty() {
        // A tensor without sparse axes is made dense by its own framework, or rejected.
        let order = ElementOrder { in_order: false, unique: false, grouped: false };
        return Ok(SparseStructure { count: 0, spare: 0, order });
    }
    let range = engine.coordinate_range()?;
    let invalid_coordinate = |number: i64, axis: usize| {
        invalid(
            components,
            format_args!("coordinate {number} is out of bounds for an axis of length {}", lengths[axis]),
        )
    };
    let mut out_of_bounds = None;
    for (axis, &(min, max)) in range.bounds.iter().enumerate() {
        if min < 0 {
            return Err(invalid_coordinate(min, axis));
        }
        if max >= lengths[axis] {
            out_of_bounds = Some((max, axis));
        }
    }
    let count = engine.count();
    match out_of_bounds {
        None => Ok(SparseStructure { count, spare: 0, order: range.order }),
        Some((number, axis)) if !components.is_padded => Err(invalid_coordinate(number, axis)),
        Some(_) => {
            let (kept, order) = engine.drop_padding()?;
            Ok(SparseStructure { count: kept, spare: count - kept, order })
        }
    }
}

fn validate_compressed<'py>(
    components: &SparseComponents<'py>,
    engine: &mut dyn Engine<'py>,
) -> Result<SparseStructure> {
    let (rows, columns) = extent(components)?;
    let stored = engine.count();
    let matrices: i64 = components.shape[..components.batch_axes].iter().product();
    let mut structure = SparseStructure {
        count: stored,
        spare: 0,
        order: ElementOrder { in_order: true, unique: true, grouped: true },
    };
    for matrix in 0..matrices as usize {
        let found = match engine.validate_matrix(matrix, rows as usize, columns)? {
            Ok(found) => found,
            Err(error) => return Err(invalid_compressed(components, error, stored, columns)),
        };
        let CompressedSummary { used, in_order, unique } = found;
        structure.order.in_order &= in_order;
        structure.order.unique &= unique;
        if used == stored {
            continue;
        }
        if components.framework.name == "torch" {
            return Err(invalid_compressed(
                components,
                IndexError::LastPointer(used as i64),
                stored,
                columns,
            ));
        }
        if components.batch_axes > 0 {
            return Err(fail(
                ErrorKind::UnsupportedLayout,
                format!("one tensor of this batch has {used} elements and another has {stored}"),
                "use ferry.sparse.to_dense, or convert the tensors of the batch one by one",
            ));
        }
        (structure.count, structure.spare) = (used, stored - used);
        engine.truncate(used)?;
    }
    Ok(structure)
}

fn invalid_compressed(
    components: &SparseComponents<'_>,
    error: IndexError,
    stored: usize,
    columns: i64,
) -> Failure {
    match error {
        IndexError::FirstPointer(number) => {
            invalid(components, format_args!("indptr starts with {number}, not with 0"))
        }
        IndexError::DecreasingPointer => invalid(components, "indptr decreases"),
        IndexError::LastPointer(number) => invalid(
            components,
            format_args!("indptr ends with {number}, but the tensor stores {stored} elements"),
        ),
        IndexError::OutOfBounds(number) => invalid(
            components,
            format_args!("index {number} is out of bounds for an axis of length {columns}"),
        ),
    }
}
