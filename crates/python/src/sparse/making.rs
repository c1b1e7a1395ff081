//! Making the arrays of one format of those of another.
//!
//! Functions give None where an array is not on the host, or not of a type that they know; the package then goes another way.

use super::arrays::{
    Address, Made, alike, away, axis, dense, here, index_type, numbers, pointers_of, slice, typed, wrong,
};
use super::places::Places;
use crate::errors::{Result, fail};
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use tensorferry_core::sparse::turn::{Elements, Pairs, Rows, turn};
use tensorferry_core::sparse::{Index, make};
use tensorferry_core::{DType, ErrorKind, Tensor};

/// The row of each of so many elements.
#[pyfunction]
#[pyo3(signature = (indptr, count, /))]
pub(super) fn _sparse_expand<'py>(
    indptr: &Bound<'py, PyAny>,
    count: usize,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = indptr.py();
    let Some(pointers) = numbers(py, indptr, None)? else { return Ok(None) };
    let pointers = dense(py, pointers)?;
    let made = Made::new(pointers.dtype(), &[count as i64])?;
    typed!(pointers.dtype(), I => {
        let (pointers, rows) = (slice::<I>(&pointers), made.data::<I>());
        // SAFETY: memory for as many.
        away(py, count, || unsafe { make::expand(pointers, count, rows.get(), settings::threads()) });
    });
    made.array(py).map(Some)
}

/// Where each row begins, of rows that are in order.
#[pyfunction]
#[pyo3(signature = (places, rows, dtype, /))]
pub(super) fn _sparse_pointers<'py>(
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
    let made = Made::new(dtype, &[pointers_of(rows)?])?;
    typed!(dtype, I => {
        let (places, indptr) = (axis::<I>(&places), made.data::<I>());
        // SAFETY: memory for one more than there are rows; the package has seen that they are in order.
        away(py, places.count().max(rows), || unsafe {
            make::pointers(&places, rows, indptr.get(), settings::threads());
        });
    });
    made.array(py).map(Some)
}

/// Coordinates laid together, "axes" or "points".
#[pyfunction]
#[pyo3(signature = (parts, laid, axes, wanted, dtype, /))]
pub(super) fn _sparse_lay<'py>(
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
            unsafe { make::lay(axis, start.get().add(ahead), step, settings::threads()) };
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
    let (indptr, others) = (Made::new(dtype, &[pointers_of(groups)?])?, Made::new(dtype, &[count as i64])?);
    let made = Made::new(values.dtype(), &shape)?;
    let item = values.dtype().size() * shape[1..].iter().product::<i64>() as usize;
    let (first, second) = (indptr.data::<I>(), others.data::<I>());
    let (from, to) = (Address::of(&values), made.data());
    // SAFETY: memory for all that is written; there are as many values as elements.
    let total = away(py, count, || unsafe {
        let carry = carrier(from.get(), to.get(), item);
        turn(elements, groups, first.get(), second.get(), settings::threads(), carry)
    })?;
    if total != count {
        // It has been looked through before, so that somebody has changed it meanwhile.
        let hint = "leave the tensor alone while it is carried";
        return Err(fail(ErrorKind::InvalidTensor, "an index is out of bounds", hint));
    }
    Ok(Some((indptr.array(py)?, others.array(py)?, made.array(py)?)))
}

/// Compressed columns of compressed rows, or the other way round.
#[pyfunction]
#[pyo3(signature = (indptr, indices, values, columns, dtype, /))]
pub(super) fn _sparse_turn_compressed<'py>(
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
pub(super) fn _sparse_turn_coordinates<'py>(
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
