//! Whether the arrays of a sparse tensor fit each other, and in which order its elements lie.
//!
//! Frameworks trust what they are given: an index that is out of bounds, or row pointers that decrease, make them read memory that
//! is not theirs. So each tensor is validated once before its memory is handed on. What a framework says about the order of its
//! elements is not believed either, but for batches.

use super::arrays::Array;
use super::components::Parts;
use super::engine::Engine;
use crate::errors::{Failure, Result, fail};
use tensorferry_core::ErrorKind;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::format_shape;
use tensorferry_core::plan::sparse::{CoordinateLayout, ElementOrder, SparseFormat, SparseStructure};
use tensorferry_core::sparse::validate::{CompressedSummary, IndexFault};

/// The error of a tensor that is not well formed.
fn invalid(parts: &Parts<'_>, fact: impl std::fmt::Display) -> Failure {
    fail(
        ErrorKind::InvalidTensor,
        format!("the {} {} tensor is broken: {fact}", parts.framework.name, parts.format.name()),
        "look at how it was made; its own framework may have trusted it unseen",
    )
}

/// Checks the types and shapes of the arrays, before an engine works on them.
pub(super) fn check_arrays(parts: &Parts<'_>, values: &Array<'_>, arrays: &[Array<'_>]) -> Result<()> {
    for (number, array) in arrays.iter().enumerate() {
        if !matches!(array.dtype().kind(), DTypeKind::Signed | DTypeKind::Unsigned) {
            let name = parts.role(number).name();
            return Err(invalid(parts, format_args!("{name} are {}, and not whole numbers", array.dtype())));
        }
    }
    match parts.format {
        SparseFormat::Coo if parts.batch_axes > 0 => Ok(()),
        SparseFormat::Coo => check_coordinate_shapes(parts, values, arrays),
        _ => check_compressed_shapes(parts, values, arrays),
    }
}

fn check_coordinate_shapes(parts: &Parts<'_>, values: &Array<'_>, arrays: &[Array<'_>]) -> Result<()> {
    let axes = parts.sparse_shape().len();
    let (count, rest) = match values.shape() {
        [count, rest @ ..] => (*count, rest),
        [] => (-1, &[][..]),
    };
    let fits = match parts.layout {
        CoordinateLayout::Axes => arrays.len() == 1 && arrays[0].shape() == [axes as i64, count],
        CoordinateLayout::Points => arrays.len() == 1 && arrays[0].shape() == [count, axes as i64],
        CoordinateLayout::Separate => {
            arrays.len() == axes && arrays.iter().all(|array| array.shape() == [count])
        }
    };
    if fits && rest == &parts.shape[axes..] {
        return Ok(());
    }
    let found: Vec<_> = arrays.iter().map(|array| format_shape(array.shape())).collect();
    let values = format_shape(values.shape());
    Err(invalid(
        parts,
        format_args!("coordinates of shapes [{}] do not fit values of shape {values}", found.join(", ")),
    ))
}

/// The numbers of rows and columns that pointers and indices count: of blocks, and with columns first for csc.
fn extent(parts: &Parts<'_>) -> Result<(i64, i64)> {
    let &[mut rows, mut columns] = parts.sparse_shape() else {
        return Err(invalid(parts, "compressed formats have two axes with indices"));
    };
    if parts.format == SparseFormat::Csc {
        (rows, columns) = (columns, rows);
    }
    if let Some([high, wide]) = parts.block {
        if high < 1 || wide < 1 || rows % high != 0 || columns % wide != 0 {
            let whole = format_shape(&parts.shape);
            return Err(invalid(
                parts,
                format_args!("blocks of ({high}, {wide}) do not fill the shape {whole}"),
            ));
        }
        (rows, columns) = (rows / high, columns / wide);
    }
    Ok((rows, columns))
}

fn check_compressed_shapes(parts: &Parts<'_>, values: &Array<'_>, arrays: &[Array<'_>]) -> Result<()> {
    let (rows, _) = extent(parts)?;
    let batches = &parts.shape[..parts.batch_axes];
    let block = parts.block.as_ref().map_or(&[][..], |block| &block[..]);
    let dense = &parts.shape[parts.batch_axes + 2..];
    let [pointers, indices] = arrays else {
        return Err(invalid(parts, "compressed formats have pointers and indices"));
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
        parts,
        format_args!(
            "indptr of shape {pointers}, indices of {indices} and values of {values} do not fit each other"
        ),
    ))
}

/// Validates the indices; the arrays were checked before.
pub(super) fn validate<'py>(parts: &Parts<'py>, engine: &mut dyn Engine<'py>) -> Result<SparseStructure> {
    match parts.format {
        SparseFormat::Coo if parts.batch_axes > 0 => {
            let order = ElementOrder {
                in_order: parts.says_in_order,
                unique: parts.says_unique,
                grouped: parts.says_in_order,
            };
            Ok(SparseStructure { count: 0, spare: 0, order })
        }
        SparseFormat::Coo => validate_coordinates(parts, engine),
        _ => validate_compressed(parts, engine),
    }
}

fn validate_coordinates<'py>(parts: &Parts<'py>, engine: &mut dyn Engine<'py>) -> Result<SparseStructure> {
    let lengths = parts.sparse_shape();
    if lengths.is_empty() {
        // A tensor without axes with coordinates becomes dense by its own framework, or is refused.
        let order = ElementOrder { in_order: false, unique: false, grouped: false };
        return Ok(SparseStructure { count: 0, spare: 0, order });
    }
    let range = engine.coordinate_range()?;
    let outside = |number: i64, axis: usize| {
        invalid(parts, format_args!("a coordinate is {number} on an axis of length {}", lengths[axis]))
    };
    let mut beyond = None;
    for (axis, &(least, greatest)) in range.ends.iter().enumerate() {
        if least < 0 {
            return Err(outside(least, axis));
        }
        if greatest >= lengths[axis] {
            beyond = Some((greatest, axis));
        }
    }
    let count = engine.count();
    match beyond {
        None => Ok(SparseStructure { count, spare: 0, order: range.order }),
        Some((number, axis)) if !parts.is_padded => Err(outside(number, axis)),
        Some(_) => {
            let (kept, order) = engine.drop_padding()?;
            Ok(SparseStructure { count: kept, spare: count - kept, order })
        }
    }
}

fn validate_compressed<'py>(parts: &Parts<'py>, engine: &mut dyn Engine<'py>) -> Result<SparseStructure> {
    let (rows, columns) = extent(parts)?;
    let stored = engine.count();
    let matrices: i64 = parts.shape[..parts.batch_axes].iter().product();
    let mut structure = SparseStructure {
        count: stored,
        spare: 0,
        order: ElementOrder { in_order: true, unique: true, grouped: true },
    };
    for matrix in 0..matrices as usize {
        let found = match engine.validate_matrix(matrix, rows as usize, columns)? {
            Ok(found) => found,
            Err(fault) => return Err(invalid_compressed(parts, fault, stored, columns)),
        };
        let CompressedSummary { used, in_order, unique } = found;
        structure.order.in_order &= in_order;
        structure.order.unique &= unique;
        if used == stored {
            continue;
        }
        if parts.framework.name == "torch" {
            return Err(invalid_compressed(parts, IndexFault::Ends(used as i64), stored, columns));
        }
        if parts.batch_axes > 0 {
            return Err(fail(
                ErrorKind::UnsupportedLayout,
                format!("one tensor of this batch has {used} elements and another has {stored}"),
                "use ferry.sparse.to_dense, or pass the tensors of the batch one by one",
            ));
        }
        (structure.count, structure.spare) = (used, stored - used);
        engine.truncate(used)?;
    }
    Ok(structure)
}

fn invalid_compressed(parts: &Parts<'_>, fault: IndexFault, stored: usize, columns: i64) -> Failure {
    match fault {
        IndexFault::Begins(number) => {
            invalid(parts, format_args!("indptr begins with {number}, and not with 0"))
        }
        IndexFault::GoesBack => invalid(parts, "indptr goes back"),
        IndexFault::Ends(number) => {
            invalid(parts, format_args!("indptr ends with {number}, and there are {stored} elements"))
        }
        IndexFault::Beyond(number) => {
            invalid(parts, format_args!("an index is {number} where {columns} are possible"))
        }
    }
}
