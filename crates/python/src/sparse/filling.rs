//! Dense tensors of sparse ones.
//!
//! Functions give None where an array is not on the host, or not of a type that they know; the package then goes another way.

use super::arrays::{Made, alike, away, dense, here, slice, typed, wrong};
use super::places::Places;
use crate::errors::Result;
use crate::lengths::Lengths;
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use std::ptr;
use tensorferry_core::sparse::make;
use tensorferry_core::sparse::scatter::{self, Filling};
use tensorferry_core::{Access, ByteOrder, Tensor};

/// Where a dense tensor is made.
struct Wanted<'a, 'py> {
    shape: &'a [i64],
    /// How many of its axes have coordinates.
    sparse: usize,
    /// Zeros that are to be filled; new memory otherwise.
    into: Option<&'a Bound<'py, PyAny>>,
    /// Whether several elements may have the same place.
    add: bool,
}

impl<'py> Wanted<'_, 'py> {
    /// Fills it with so many values; `None` for types that are not added here.
    fn filled(
        self,
        py: Python<'py>,
        values: Tensor<Owner>,
        count: usize,
        fill: impl FnOnce(&Filling) + Send,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let Self { shape, sparse, into, add } = self;
        if add && !make::adds(values.dtype()) {
            return Ok(None);
        }
        let values = dense(py, values)?;
        let fits = values.layout().shape().split_first().is_some_and(|(&length, rest)| {
            length >= count as i64 && sparse <= shape.len() && rest == &shape[sparse..]
        });
        if !fits {
            return Err(wrong("values do not fit the shape"));
        }
        let given = into.map_or(Ok(None), here)?;
        if into.is_some() && !given.as_ref().is_some_and(|given| is_room_for(given, &values, shape)) {
            return Err(wrong("the zeros are of another shape, type or order"));
        }
        let made = if given.is_none() { Some(Made::new(values.dtype(), shape)?) } else { None };
        let count_of = |axes: &[i64]| axes.iter().product::<i64>() as usize;
        let is_empty = shape.contains(&0);
        let filling = Filling {
            values: values.data(),
            count,
            width: if is_empty { 0 } else { count_of(&shape[sparse..]) },
            dtype: values.dtype(),
            add,
            dense: made.as_ref().map_or_else(
                || given.as_ref().map_or(ptr::null_mut(), Tensor::data),
                |made| made.data().get(),
            ),
            room: if is_empty { 0 } else { count_of(&shape[..sparse]) },
            cleared: given.is_some(),
        };
        if !is_empty {
            away(py, count.max(filling.room), || fill(&filling));
        }
        match made {
            Some(made) => made.array(py).map(Some),
            None => Ok(into.cloned()),
        }
    }
}

/// Whether an array of somebody else's can take a dense tensor of this shape.
fn is_room_for(given: &Tensor<Owner>, values: &Tensor<Owner>, shape: &[i64]) -> bool {
    given.layout().shape() == shape
        && given.layout().is_dense()
        && given.dtype() == values.dtype()
        && given.order() == ByteOrder::Native
        && given.access() == Access::ReadWrite
        && (given.data() as usize).is_multiple_of(given.dtype().align())
}

/// The dense tensor of compressed rows, or of compressed columns where they are `turned`.
#[pyfunction]
#[pyo3(signature = (indptr, indices, values, shape, turned, add, into=None, /))]
pub(super) fn _sparse_dense_compressed<'py>(
    indptr: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    shape: Lengths,
    turned: bool,
    add: bool,
    into: Option<&Bound<'py, PyAny>>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = indptr.py();
    let Some([indptr, indices]) = alike(py, [indptr, indices], None)? else { return Ok(None) };
    let Some(values) = here(values)? else { return Ok(None) };
    let (indptr, indices) = (dense(py, indptr)?, dense(py, indices)?);
    let [rows, columns] = match shape[..] {
        [rows, columns, ..] if turned => [columns, rows],
        [rows, columns, ..] => [rows, columns],
        _ => return Err(wrong("compressed formats have two axes")),
    };
    if indptr.layout().count() as i64 != rows + 1 {
        return Err(wrong("pointers do not fit the shape"));
    }
    typed!(indptr.dtype(), I => {
        let (pointers, places) = (slice::<I>(&indptr), slice::<I>(&indices));
        // SAFETY: memory for the whole tensor, and as many values as indices.
        Wanted { shape: &shape, sparse: 2, into, add }.filled(py, values, places.len(), |filling| unsafe {
            scatter::compressed(filling, pointers, places, columns as usize, turned, settings::threads());
        })
    })
}

/// The dense tensor of elements with coordinates.
#[pyfunction]
#[pyo3(signature = (parts, laid, axes, values, shape, add, into=None, /))]
pub(super) fn _sparse_dense_coordinates<'py>(
    parts: &Bound<'py, PySequence>,
    laid: &str,
    axes: usize,
    values: &Bound<'py, PyAny>,
    shape: Lengths,
    add: bool,
    into: Option<&Bound<'py, PyAny>>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = parts.py();
    let Some((places, _, fits)) = Places::read(parts, laid, axes)? else { return Ok(None) };
    let Some(values) = here(values)? else { return Ok(None) };
    if !fits || axes > shape.len() {
        return Err(wrong("coordinates do not fit each other"));
    }
    typed!(places.dtype(), I => {
        let given = places.axes::<I>();
        // SAFETY: memory for the whole tensor, and as many values as places.
        Wanted { shape: &shape, sparse: axes, into, add }.filled(py, values, places.count, |filling| unsafe {
            scatter::coordinates(filling, &given, &shape[..axes], settings::threads());
        })
    })
}
