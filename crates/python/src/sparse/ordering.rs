//! Putting elements in order, and adding what is at the same place.

use super::arrays::{Address, Made, away, dense, here, typed, wrong};
use super::places::Places;
use crate::errors::Result;
use crate::lengths::Lengths;
use crate::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use tensorferry_core::sparse::make;
use tensorferry_core::sparse::order::{Order, order_by};
use tensorferry_core::{DType, Tensor};

/// An order of elements by their coordinates.
#[pyclass(name = "_SparseOrder", module = "tensorferry._native", frozen)]
pub(crate) struct SparseOrder(Order);

#[pymethods]
impl SparseOrder {
    #[new]
    #[pyo3(signature = (parts, laid, lengths, /))]
    fn new(parts: &Bound<'_, PySequence>, laid: &str, lengths: Lengths) -> Result<Self> {
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
        let (from, to) = (Address::of(&array), made.data());
        // SAFETY: as many elements as were ordered, and memory for those that are picked.
        away(py, count, || unsafe {
            make::pick(&self.0, firsts, from.get(), item, to.get(), settings::threads());
        });
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
        let (from, to, dtype) = (Address::of(&array), made.data(), array.dtype());
        let width = item / dtype.size();
        // SAFETY: as many elements as were ordered, dense and aligned, and memory for one of each place.
        away(py, self.count(), || unsafe {
            make::sum(&self.0, dtype, from.get(), width, to.get(), settings::threads());
        });
        made.array(py).map(Some)
    }

    /// The number of the place of each element, in the order.
    fn groups<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let made = Made::new(DType::Int64, &[self.count() as i64])?;
        let starts = self.0.starts().iter().map(|&start| start as i64).chain([self.count() as i64]);
        let starts: Vec<i64> = starts.collect();
        // SAFETY: memory for as many.
        unsafe { make::expand(&starts, self.count(), made.data::<i64>().get(), settings::threads()) };
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
