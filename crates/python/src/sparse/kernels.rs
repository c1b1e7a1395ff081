//! What `tensorferry.sparse` has done here: looking indices through, and making arrays of them.
//!
//! Functions give None where an array is not on the host, or not of a type that they know; the package then goes another way.

use super::arrays::{
    Made, alike, as_index, away, axis, dense, here, index_type, line_of, numbers, same_type, slice, typed,
    wrong,
};
use crate::errors::Result;
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use std::ptr;
use tensorferry_core::dtype::Kind;
use tensorferry_core::sparse::look::{self, Fault};
use tensorferry_core::sparse::order::{Order, order_by};
use tensorferry_core::sparse::scatter::{self, Filling};
use tensorferry_core::sparse::turn::{Elements, Pairs, Rows, turn};
use tensorferry_core::sparse::{Axis, Index, make};
use tensorferry_core::{Access, ByteOrder, DType, Tensor};

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

/// The bits for the types and layouts of index arrays, as they were given.
fn as_given(arrays: &[Tensor<Owner>]) -> u8 {
    let all = |dtype| arrays.iter().all(|array| array.dtype() == dtype);
    let types = if all(DType::Int32) { INT32 } else { 0 } | if all(DType::Int64) { INT64 } else { 0 };
    types | if arrays.iter().all(|array| array.layout().is_dense()) { DENSE } else { 0 }
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

/// Coordinates as they were given: in one matrix, or an array for each axis.
struct Places {
    arrays: Vec<Tensor<Owner>>,
    /// Which axis of a matrix the elements lie along; `None` for an array for each axis.
    along: Option<usize>,
    axes: usize,
    count: usize,
}

impl Places {
    /// Reads them; `None` where they are elsewhere or no numbers. The last is whether they fit each other.
    fn read(parts: &Bound<'_, PySequence>, laid: &str, axes: usize) -> Result<Option<(Self, u8, bool)>> {
        let py = parts.py();
        let mut given = Vec::with_capacity(parts.len()?);
        for part in parts.try_iter()? {
            let Some(tensor) = here(&part?)? else { return Ok(None) };
            if !matches!(tensor.dtype().kind(), Kind::Signed | Kind::Unsigned) {
                return Ok(None);
            }
            given.push(tensor);
        }
        let bits = as_given(&given);
        let along = match laid {
            "axes" => Some(1),
            "points" => Some(0),
            _ => None,
        };
        let fits = match along {
            Some(along) => {
                given.len() == 1
                    && given[0].layout().rank() == 2
                    && given[0].layout().shape()[1 - along] == axes as i64
            }
            None => {
                let mut shapes = given.iter().map(|array| array.layout().shape());
                let first = shapes.next().unwrap_or(&[]);
                given.len() == axes && first.len() == 1 && shapes.all(|shape| shape == first)
            }
        };
        let count =
            if fits { given[0].layout().shape()[along.unwrap_or(0)].try_into().unwrap_or(0) } else { 0 };
        let mut arrays = Vec::with_capacity(given.len());
        if fits {
            for array in given {
                arrays.push(as_index(py, array, None)?);
            }
            arrays = same_type(py, arrays)?;
        }
        Ok(Some((Self { arrays, along, axes, count }, bits, fits)))
    }

    fn dtype(&self) -> DType {
        self.arrays.first().map_or(DType::Int64, Tensor::dtype)
    }

    fn axes<I: Index>(&self) -> Vec<Axis<'_, I>> {
        match self.along {
            Some(along) => (0..self.axes).map(|number| line_of(&self.arrays[0], number, along)).collect(),
            None => self.arrays.iter().map(axis).collect(),
        }
    }
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
        fill: impl FnOnce(&Filling),
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
            dense: made
                .as_ref()
                .map_or_else(|| given.as_ref().map_or(ptr::null_mut(), Tensor::data), Made::data),
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
fn _sparse_dense_compressed<'py>(
    indptr: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    shape: Vec<i64>,
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
fn _sparse_dense_coordinates<'py>(
    parts: &Bound<'py, PySequence>,
    laid: &str,
    axes: usize,
    values: &Bound<'py, PyAny>,
    shape: Vec<i64>,
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

/// An order of elements by their coordinates.
#[pyclass(name = "_SparseOrder", module = "tensorferry._native", frozen)]
pub(crate) struct SparseOrder(Order);

#[pymethods]
impl SparseOrder {
    #[new]
    #[pyo3(signature = (parts, laid, lengths, /))]
    fn new(parts: &Bound<'_, PySequence>, laid: &str, lengths: Vec<i64>) -> Result<Self> {
        let py = parts.py();
        match Places::read(parts, laid, lengths.len())? {
            Some((places, _, true)) => typed!(places.dtype(), I => {
                let axes = places.axes::<I>();
                Ok(Self(away(py, places.count, || order_by(&axes, &lengths, settings::threads()))?))
            }),
            _ => Err(wrong("coordinates are numbers on the host, as many along each axis")),
        }
    }

    /// How many elements there are.
    #[getter]
    fn count(&self) -> usize {
        self.0.order().len()
    }

    /// How many places there are.
    #[getter]
    fn places(&self) -> usize {
        self.0.starts().len()
    }

    /// The elements of an array in this order, or the first of each place.
    #[pyo3(signature = (array, firsts=false, /))]
    fn pick<'py>(&self, array: &Bound<'py, PyAny>, firsts: bool) -> Result<Bound<'py, PyAny>> {
        let py = array.py();
        let (array, item, rest) = self.elements(array)?;
        let count = if firsts { self.places() } else { self.count() };
        let made = Made::new(array.dtype(), &[&[count as i64], &rest[..]].concat())?;
        let (from, to) = (array.data().cast_const(), made.data());
        // SAFETY: as many elements as were ordered, and memory for those that are picked.
        away(py, count, || unsafe { make::pick(&self.0, firsts, from, item, to, settings::threads()) });
        made.array(py)
    }

    /// The sum of what is at each place; None for types that are not added here.
    #[pyo3(signature = (array, /))]
    fn sum<'py>(&self, array: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
        let py = array.py();
        let (array, item, rest) = self.elements(array)?;
        if !make::adds(array.dtype()) {
            return Ok(None);
        }
        let made = Made::new(array.dtype(), &[&[self.places() as i64], &rest[..]].concat())?;
        let (from, to, dtype) = (array.data().cast_const(), made.data(), array.dtype());
        let width = item / dtype.size();
        // SAFETY: as many elements as were ordered, dense and aligned, and memory for one of each place.
        away(py, self.count(), || unsafe {
            make::sum(&self.0, dtype, from, width, to, settings::threads());
        });
        made.array(py).map(Some)
    }

    /// The number of the place of each element, in the order.
    fn groups<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let made = Made::new(DType::Int64, &[self.count() as i64])?;
        let starts = self.0.starts().iter().map(|&start| start as i64).chain([self.count() as i64]);
        let starts: Vec<i64> = starts.collect();
        // SAFETY: memory for as many.
        unsafe { make::expand(&starts, self.count(), made.data::<i64>(), settings::threads()) };
        made.array(py)
    }
}

impl SparseOrder {
    /// An array with as many elements as were ordered: its memory, the bytes of an element, and its other axes.
    fn elements(&self, array: &Bound<'_, PyAny>) -> Result<(Tensor<Owner>, usize, Vec<i64>)> {
        let Some(tensor) = here(array)? else { return Err(wrong("the array is not on the host")) };
        let tensor = dense(array.py(), tensor)?;
        match tensor.layout().shape() {
            [length, rest @ ..] if *length == self.count() as i64 => {
                let rest = rest.to_vec();
                let item = tensor.dtype().size() * rest.iter().product::<i64>() as usize;
                Ok((tensor, item, rest))
            }
            _ => Err(wrong("the array has not as many elements as were ordered")),
        }
    }
}
