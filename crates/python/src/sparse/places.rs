//! Coordinates of elements, however a framework keeps them.

use super::arrays::{as_index, axis, here, line_of, same_type};
use super::looking::as_given;
use crate::errors::Result;
use crate::owner::Owner;
use pyo3::prelude::*;
use pyo3::types::PySequence;
use tensorferry_core::dtype::Kind;
use tensorferry_core::sparse::{Axis, Index};
use tensorferry_core::{DType, Tensor};

/// Coordinates as they were given: in one matrix, or an array for each axis.
pub(super) struct Places {
    arrays: Vec<Tensor<Owner>>,
    /// Which axis of a matrix the elements lie along; `None` for an array for each axis.
    along: Option<usize>,
    axes: usize,
    pub(super) count: usize,
}

impl Places {
    /// Reads them; `None` where they are elsewhere or no numbers. The last is whether they fit each other.
    pub(super) fn read(
        parts: &Bound<'_, PySequence>,
        laid: &str,
        axes: usize,
    ) -> Result<Option<(Self, u8, bool)>> {
        let py = parts.py();
        let mut given = Vec::new();
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
            // Without an axis all elements would be at one place, of which nothing here knows.
            _ if axes == 0 => false,
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

    pub(super) fn dtype(&self) -> DType {
        self.arrays.first().map_or(DType::Int64, Tensor::dtype)
    }

    pub(super) fn axes<I: Index>(&self) -> Vec<Axis<'_, I>> {
        match self.along {
            Some(along) => (0..self.axes).map(|number| line_of(&self.arrays[0], number, along)).collect(),
            None => self.arrays.iter().map(axis).collect(),
        }
    }
}
