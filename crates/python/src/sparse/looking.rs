//! Looking indices through, before a framework is given them.
//!
//! Functions give None where an array is not on the host, or not of a type that they know; the package then goes another way.

use super::arrays::{as_index, away, dense, here, same_type, slice, typed};
use super::places::Places;
use crate::errors::Result;
use crate::lengths::Lengths;
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use tensorferry_core::dtype::Kind;
use tensorferry_core::sparse::look::{self, Fault};
use tensorferry_core::{DType, Tensor};

/// What is told of indices, in bits: in order; each place once; grouped by the first axis; all of them int32; all int64; every
/// array dense.
const IN_ORDER: u8 = 1;
const UNIQUE: u8 = 2;
const GROUPED: u8 = 4;
const INT32: u8 = 8;
const INT64: u8 = 16;
const DENSE: u8 = 32;

/// What is wrong, by number.
const FINE: u8 = 0;
const BEGINS: u8 = 1;
const GOES_BACK: u8 = 2;
const ENDS: u8 = 3;
const BEYOND: u8 = 4;
const DOES_NOT_FIT: u8 = 5;

/// The bits for the types and layouts of index arrays, as they were given.
pub(super) fn as_given(arrays: &[Tensor<Owner>]) -> u8 {
    let all = |dtype| arrays.iter().all(|array| array.dtype() == dtype);
    let types = if all(DType::Int32) { INT32 } else { 0 } | if all(DType::Int64) { INT64 } else { 0 };
    types | if arrays.iter().all(|array| array.layout().is_dense()) { DENSE } else { 0 }
}

/// The values, if they are on the host: how many there are, and whether they are dense. Those with more axes fit nothing.
fn extent(values: &Bound<'_, PyAny>) -> Result<Option<(i64, bool)>> {
    let Some(tensor) = here(values)? else { return Ok(None) };
    let count = if let &[count] = tensor.layout().shape() { count } else { -1 };
    Ok(Some((count, tensor.layout().is_dense())))
}

/// Looks a compressed format through: what is wrong, the number that is, how many elements are used, and bits.
#[pyfunction]
#[pyo3(signature = (values, indptr, indices, rows, columns, /))]
pub(super) fn _sparse_look_compressed(
    values: Option<&Bound<'_, PyAny>>,
    indptr: &Bound<'_, PyAny>,
    indices: &Bound<'_, PyAny>,
    rows: i64,
    columns: i64,
) -> Result<Option<(u8, i64, usize, u8)>> {
    let py = indptr.py();
    let (Some(pointers), Some(columns_of)) = (here(indptr)?, here(indices)?) else { return Ok(None) };
    let is_index = |tensor: &Tensor<Owner>| matches!(tensor.dtype().kind(), Kind::Signed | Kind::Unsigned);
    if !is_index(&pointers) || !is_index(&columns_of) {
        return Ok(None);
    }
    let extent = match values {
        None => None,
        Some(values) => match extent(values)? {
            None => return Ok(None),
            found => found,
        },
    };
    let given = [pointers, columns_of];
    let mut bits = as_given(&given);
    if given.iter().any(|array| array.layout().rank() != 1)
        || given[0].layout().shape()[0] != rows.saturating_add(1)
        || extent.is_some_and(|(count, _)| count != given[1].layout().shape()[0])
    {
        return Ok(Some((DOES_NOT_FIT, 0, 0, 0)));
    }
    if extent.is_some_and(|(_, is_dense)| !is_dense) {
        bits &= !DENSE;
    }
    let mut arrays = Vec::with_capacity(2);
    for array in given {
        arrays.push(dense(py, as_index(py, array, None)?)?);
    }
    let arrays = same_type(py, arrays)?;
    let count = arrays[1].layout().count().max(arrays[0].layout().count());
    let found = typed!(arrays[0].dtype(), I => {
        let (indptr, indices) = (slice::<I>(&arrays[0]), slice::<I>(&arrays[1]));
        away(py, count, || look::compressed(indptr, indices, columns, settings::threads()))
    });
    Ok(Some(match found {
        Ok(found) => {
            bits |= if found.in_order { IN_ORDER } else { 0 };
            bits |= if found.unique { UNIQUE } else { 0 };
            (FINE, 0, found.used, bits)
        }
        Err(Fault::Begins(number)) => (BEGINS, number, 0, 0),
        Err(Fault::GoesBack) => (GOES_BACK, 0, 0, 0),
        Err(Fault::Ends(number)) => (ENDS, number, 0, 0),
        Err(Fault::Beyond(number)) => (BEYOND, number, 0, 0),
    }))
}

/// What is wrong, the number that is, on which axis, how many elements there are, and bits.
type CoordinateLook = (u8, i64, usize, usize, u8);

/// Looks coordinates through: what is wrong, the number that is, on which axis, how many there are, and bits. `turned` has the
/// last axis first in what the bits say of order. Only what is below zero is wrong; what is beyond an axis is told as `BEYOND`.
#[pyfunction]
#[pyo3(signature = (values, parts, laid, lengths, turned, /))]
pub(super) fn _sparse_look_coordinates(
    values: Option<&Bound<'_, PyAny>>,
    parts: &Bound<'_, PySequence>,
    laid: &str,
    lengths: Lengths,
    turned: bool,
) -> Result<Option<CoordinateLook>> {
    let py = parts.py();
    let Some((places, mut bits, fits)) = Places::read(parts, laid, lengths.len())? else { return Ok(None) };
    let extent = match values {
        None => None,
        Some(values) => match extent(values)? {
            None => return Ok(None),
            found => found,
        },
    };
    if !fits || extent.is_some_and(|(count, _)| count != places.count as i64) {
        return Ok(Some((DOES_NOT_FIT, 0, 0, 0, 0)));
    }
    if extent.is_some_and(|(_, is_dense)| !is_dense) {
        bits &= !DENSE;
    }
    let found = typed!(places.dtype(), I => {
        let mut axes = places.axes::<I>();
        if turned {
            axes.reverse();
        }
        away(py, places.count, || look::coordinates(&axes, settings::threads()))
    });
    bits |= if found.in_order { IN_ORDER } else { 0 };
    bits |= if found.unique { UNIQUE } else { 0 };
    bits |= if found.grouped { GROUPED } else { 0 };
    let at = |number: usize| if turned { lengths.len() - 1 - number } else { number };
    let mut wrong = (FINE, 0, 0);
    for (number, &(least, most)) in found.ends.iter().enumerate() {
        if least < 0 {
            return Ok(Some((BEGINS, least, at(number), places.count, 0)));
        }
        if most >= lengths[at(number)] {
            wrong = (BEYOND, most, at(number));
        }
    }
    Ok(Some((wrong.0, wrong.1, wrong.2, places.count, bits)))
}
