//! What `tensorferry.sparse` has done here: looking indices through, and making arrays of them.
//!
//! Functions give None where an array is not on the host, or not of a type that they know; the package then goes another way.

use super::arrays::{
    DENSE, GROUPED, IN_ORDER, Made, Places, UNIQUE, alike, as_given, as_index, away, axis, dense, here,
    index_type, numbers, same_type, slice, typed, wrong,
};
use super::dense::{_sparse_dense_compressed, _sparse_dense_coordinates};
use super::order::SparseOrder;
use crate::errors::Result;
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use tensorferry_core::dtype::Kind;
use tensorferry_core::sparse::look::{self, Fault};
use tensorferry_core::sparse::turn::{Elements, Pairs, Rows, turn};
use tensorferry_core::sparse::{Index, make};
use tensorferry_core::{DType, Tensor};

/// What is wrong, by number.
const FINE: u8 = 0;
const BEGINS: u8 = 1;
const GOES_BACK: u8 = 2;
const ENDS: u8 = 3;
const BEYOND: u8 = 4;
const DOES_NOT_FIT: u8 = 5;

pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SparseOrder>()?;
    module.add_function(wrap_pyfunction!(_sparse_look_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_look_coordinates, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_expand, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_pointers, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_lay, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_turn_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_turn_coordinates, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_dense_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_dense_coordinates, module)?)
}

/// The values, if they are on the host: how many there are, and whether they are dense.
fn extent(values: &Bound<'_, PyAny>) -> Result<Option<(i64, bool)>> {
    let Some(tensor) = here(values)? else { return Ok(None) };
    Ok(Some((tensor.layout().shape().first().copied().unwrap_or(-1), tensor.layout().is_dense())))
}

/// Looks a compressed format through: what is wrong, the number that is, how many elements are used, and bits.
#[pyfunction]
#[pyo3(signature = (values, indptr, indices, rows, columns, /))]
fn _sparse_look_compressed(
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
fn _sparse_look_coordinates(
    values: Option<&Bound<'_, PyAny>>,
    parts: &Bound<'_, PySequence>,
    laid: &str,
    lengths: Vec<i64>,
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

/// The row of each of so many elements.
#[pyfunction]
#[pyo3(signature = (indptr, count, /))]
fn _sparse_expand<'py>(indptr: &Bound<'py, PyAny>, count: usize) -> Result<Option<Bound<'py, PyAny>>> {
    let py = indptr.py();
    let Some(pointers) = numbers(py, indptr, None)? else { return Ok(None) };
    let pointers = dense(py, pointers)?;
    let made = Made::new(pointers.dtype(), &[count as i64])?;
    typed!(pointers.dtype(), I => {
        let (pointers, rows) = (slice::<I>(&pointers), made.data::<I>());
        // SAFETY: memory for as many.
        away(py, count, || unsafe { make::expand(pointers, count, rows, settings::threads()) });
    });
    made.array(py).map(Some)
}

/// Where each row begins, of rows that are in order.
#[pyfunction]
#[pyo3(signature = (places, rows, dtype, /))]
fn _sparse_pointers<'py>(
    places: &Bound<'py, PyAny>,
    rows: usize,
    dtype: &str,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = places.py();
    let dtype = index_type(dtype)?;
    let Some(places) = numbers(py, places, Some(dtype))? else { return Ok(None) };
    if places.layout().rank() != 1 {
        return Err(wrong("places are an array of one axis"));
    }
    let made = Made::new(dtype, &[rows as i64 + 1])?;
    typed!(dtype, I => {
        let (places, indptr) = (axis::<I>(&places), made.data::<I>());
        // SAFETY: memory for one more than there are rows.
        away(py, places.count().max(rows), || unsafe {
            make::pointers(&places, rows, indptr, settings::threads());
        });
    });
    made.array(py).map(Some)
}

/// Coordinates laid together, "axes" or "points".
#[pyfunction]
#[pyo3(signature = (parts, laid, axes, wanted, dtype, /))]
fn _sparse_lay<'py>(
    parts: &Bound<'py, PySequence>,
    laid: &str,
    axes: usize,
    wanted: &str,
    dtype: &str,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = parts.py();
    let Some((places, _, fits)) = Places::read(parts, laid, axes)? else { return Ok(None) };
    if !fits {
        return Err(wrong("coordinates do not fit each other"));
    }
    let (dtype, in_rows) = (index_type(dtype)?, wanted == "axes");
    let (count, many) = (places.count as i64, axes as i64);
    let made = Made::new(dtype, &if in_rows { [many, count] } else { [count, many] })?;
    typed!(places.dtype(), I => typed!(dtype, O => {
        let (given, start) = (places.axes::<I>(), made.data::<O>());
        away(py, places.count, || for (number, axis) in given.iter().enumerate() {
            let (ahead, step) = if in_rows { (number * places.count, 1) } else { (number, axes) };
            // SAFETY: a line of the matrix, which has room for all of them.
            unsafe { make::lay(axis, start.add(ahead), step, settings::threads()) };
        });
    }));
    made.array(py).map(Some)
}

/// A function that copies elements from one place to another, of memory that has room for them.
///
/// # Safety
/// It is called with places that both arrays have.
unsafe fn carrier(from: *const u8, to: *mut u8, item: usize) -> impl Fn(usize, usize) + Sync {
    struct Ends(*const u8, *mut u8);
    // SAFETY: pointers alone; whoever calls vouches for the places.
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

type Three<'py> = Option<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)>;

/// Groups elements; gives pointers, the other coordinates and the values.
fn grouped<'py, I: Index>(
    py: Python<'py>,
    elements: &impl Elements<I>,
    groups: usize,
    values: Tensor<Owner>,
    dtype: DType,
) -> Result<Three<'py>> {
    let count = elements.count();
    let shape = values.layout().shape().to_vec();
    if shape.first().is_none_or(|&length| length < count as i64) {
        return Err(wrong("there are fewer values than places"));
    }
    let values = dense(py, values)?;
    let shape = [&[count as i64], &shape[1..]].concat();
    let (indptr, others) = (Made::new(dtype, &[groups as i64 + 1])?, Made::new(dtype, &[count as i64])?);
    let made = Made::new(values.dtype(), &shape)?;
    let item = values.dtype().size() * shape[1..].iter().product::<i64>() as usize;
    let (first, second) = (indptr.data::<I>(), others.data::<I>());
    // SAFETY: memory for all that is written; there are as many values as elements.
    away(py, count, || unsafe {
        let carry = carrier(values.data(), made.data(), item);
        turn(elements, groups, first, second, settings::threads(), carry);
    });
    Ok(Some((indptr.array(py)?, others.array(py)?, made.array(py)?)))
}

/// Compressed columns of compressed rows, or the other way round.
#[pyfunction]
#[pyo3(signature = (indptr, indices, values, columns, dtype, /))]
fn _sparse_turn_compressed<'py>(
    indptr: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    columns: usize,
    dtype: &str,
) -> Result<Three<'py>> {
    let (py, dtype) = (indptr.py(), index_type(dtype)?);
    let Some([indptr, indices]) = alike(py, [indptr, indices], Some(dtype))? else { return Ok(None) };
    let Some(values) = here(values)? else { return Ok(None) };
    let (indptr, indices) = (dense(py, indptr)?, dense(py, indices)?);
    typed!(dtype, I => {
        let rows = Rows { indptr: slice::<I>(&indptr), indices: slice::<I>(&indices) };
        grouped(py, &rows, columns, values, dtype)
    })
}

/// Coordinates grouped by the first of two axes: pointers, the other axis and the values.
#[pyfunction]
#[pyo3(signature = (groups, others, values, length, dtype, /))]
fn _sparse_turn_coordinates<'py>(
    groups: &Bound<'py, PyAny>,
    others: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    length: usize,
    dtype: &str,
) -> Result<Three<'py>> {
    let (py, dtype) = (groups.py(), index_type(dtype)?);
    let Some([groups, others]) = alike(py, [groups, others], Some(dtype))? else { return Ok(None) };
    let Some(values) = here(values)? else { return Ok(None) };
    if groups.layout().shape() != others.layout().shape() || groups.layout().rank() != 1 {
        return Err(wrong("coordinates do not fit each other"));
    }
    typed!(dtype, I => {
        let pairs = Pairs { groups: axis::<I>(&groups), others: axis::<I>(&others) };
        grouped(py, &pairs, length, values, dtype)
    })
}
