//! The components of a sparse tensor: its arrays and metadata, as the Python function `read` of its framework returns them.

use super::arrays::SourceArray;
use super::framework_functions;
use crate::errors::{Result, fail};
use crate::frameworks::builtin_frameworks::Entry;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;
use tensorferry_core::ErrorKind;
use tensorferry_core::plan::sparse::{ArrayRole, CoordinateLayout, SparseFormat};

/// Axis lengths.
pub(super) type Shape = SmallVec<[i64; 4]>;

/// The arrays of one sparse tensor, and what its framework declares about them. The fields follow the Python class `SparseComponents`.
pub(super) struct SparseComponents<'py> {
    pub(super) framework: &'static Entry,
    pub(super) format: SparseFormat,
    /// The name of the format in its framework.
    pub(super) name: Bound<'py, PyString>,
    /// The axis lengths, in the order batch, sparse, dense.
    pub(super) shape: Shape,
    pub(super) values: Bound<'py, PyAny>,
    /// Pointers and indices, or coordinates.
    pub(super) arrays: SmallVec<[Bound<'py, PyAny>; 2]>,
    pub(super) layout: CoordinateLayout,
    pub(super) block: Option<[i64; 2]>,
    pub(super) batch_axes: usize,
    pub(super) dense_axes: usize,
    /// Whether elements with coordinates outside the shape are padding.
    pub(super) is_padded: bool,
    /// Whether the arrays must not be written, although their framework allows it.
    pub(super) is_read_only: bool,
    /// Whether the tensor required a gradient.
    pub(super) is_detached: bool,
    /// The order that the framework declares for a batch, which is not validated.
    pub(super) is_declared_sorted: bool,
    pub(super) is_declared_unique: bool,
}

impl<'py> SparseComponents<'py> {
    /// Reads the components of a sparse tensor of a framework.
    pub(super) fn read(x: &Bound<'py, PyAny>, framework: &'static Entry) -> Result<Self> {
        let read = framework_functions::functions(x.py(), framework)?.read.bind(x.py());
        let fields = read.call1((x,))?.cast_into::<PyTuple>().map_err(PyErr::from)?;
        let item = |index: usize| fields.get_item(index);
        let format = item(0)?.cast_into::<PyString>().map_err(PyErr::from)?;
        let layout = item(5)?.cast_into::<PyString>().map_err(PyErr::from)?;
        let (Some(format), Some(layout)) =
            (SparseFormat::from_name(format.to_str()?), CoordinateLayout::from_name(layout.to_str()?))
        else {
            return Err(fail(
                ErrorKind::InvalidTensor,
                "the source framework returned an unknown sparse format",
                "report this",
            ));
        };
        let mut shape = Shape::new();
        for length in item(2)?.cast_into::<PyTuple>().map_err(PyErr::from)?.iter_borrowed() {
            shape.push(length.extract()?);
        }
        let arrays = item(4)?.cast_into::<PyTuple>().map_err(PyErr::from)?;
        let block: Option<(i64, i64)> = item(6)?.extract()?;
        Ok(Self {
            framework,
            format,
            name: item(1)?.cast_into().map_err(PyErr::from)?,
            shape,
            values: item(3)?,
            arrays: arrays.iter().collect(),
            layout,
            block: block.map(|(rows, columns)| [rows, columns]),
            batch_axes: item(7)?.extract()?,
            dense_axes: item(8)?.extract()?,
            is_padded: item(9)?.is_truthy()?,
            is_read_only: item(10)?.is_truthy()?,
            is_detached: item(11)?.is_truthy()?,
            is_declared_sorted: item(12)?.is_truthy()?,
            is_declared_unique: item(13)?.is_truthy()?,
        })
    }

    /// The lengths of the sparse axes.
    pub(super) fn sparse_shape(&self) -> &[i64] {
        &self.shape[self.batch_axes..self.shape.len() - self.dense_axes]
    }

    /// Reads the index arrays.
    pub(super) fn index_arrays(&self) -> Result<SmallVec<[SourceArray<'py>; 2]>> {
        let mut arrays = SmallVec::new();
        for array in &self.arrays {
            arrays.push(SourceArray::read(array, self.is_read_only)?);
        }
        Ok(arrays)
    }

    /// The role of an index array.
    pub(super) fn role(&self, array: usize) -> ArrayRole {
        match (self.format, self.layout) {
            (SparseFormat::Coo, CoordinateLayout::Separate) => {
                ArrayRole::Axis(array, self.sparse_shape().len())
            }
            (SparseFormat::Coo, _) => ArrayRole::Coordinates,
            _ if array == 0 => ArrayRole::Pointers,
            _ => ArrayRole::Indices,
        }
    }
}
