//! The engine for arrays on a GPU: functions of PyTorch or CuPy, through the Python module `tensorferry.sparse.gpu`.

use super::components::SparseComponents;
use super::engine::{CoordinateRange, Engine, ResultArray};
use crate::errors::{Failure, Result, fail};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tensorferry_core::plan::sparse::{ArrayRole, ElementOrder, ElementWork, Inspect, SparseConversion};
use tensorferry_core::sparse::validate::{CompressedSummary, IndexError};
use tensorferry_core::{DType, Device, ErrorKind};

/// An object of the class `sparse.gpu.Elements`.
pub(super) struct GpuEngine<'py>(Bound<'py, PyAny>);

impl<'py> GpuEngine<'py> {
    /// The framework whose functions process arrays on a GPU: the target, the source, or another that is imported.
    pub(super) fn framework(
        py: Python<'py>,
        target: &'static str,
        source: &'static str,
    ) -> Result<Option<&'static str>> {
        let loaded = py.import("sys")?.getattr("modules")?;
        for name in [target, source, "torch", "cupy"] {
            if ["torch", "cupy"].contains(&name) && loaded.contains(name)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    pub(super) fn new(
        components: &SparseComponents<'py>,
        framework: &'static str,
        device: Device,
    ) -> Result<Self> {
        let py = components.values.py();
        let class = py.import("tensorferry.sparse.gpu")?.getattr("Elements")?;
        let arrays = PyTuple::new(py, &components.arrays)?;
        let lengths = PyTuple::new(py, components.sparse_shape())?;
        let block = components.block.map(|[rows, columns]| (rows, columns));
        let elements = class.call1((
            framework,
            device.to_string(),
            components.format.name(),
            components.layout.name(),
            lengths,
            block,
            &components.values,
            arrays,
        ))?;
        Ok(Self(elements))
    }

    fn call<T>(&self, method: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> Result<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        Ok(self.0.call_method1(method, arguments)?.extract::<T>()?)
    }
}

fn order((in_order, unique, grouped): (bool, bool, bool)) -> ElementOrder {
    ElementOrder { in_order, unique, grouped }
}

/// The name of a role, and the axis that it holds.
fn name(conversion: &SparseConversion, role: ArrayRole) -> (&'static str, usize) {
    match role {
        ArrayRole::Values => ("values", 0),
        ArrayRole::Pointers => ("indptr", 0),
        ArrayRole::Indices => ("indices", 1 - conversion.format.leading_axis()),
        ArrayRole::Coordinates => ("coordinates", 0),
        ArrayRole::Axis(number, _) => ("axis", number),
    }
}

impl Inspect for GpuEngine<'_> {
    type Error = Failure;

    fn order(&mut self, by_columns: bool) -> Result<ElementOrder> {
        self.call("order", (by_columns,)).map(order)
    }

    fn distinct(&mut self, by_columns: bool) -> Result<usize> {
        self.call("distinct", (by_columns,))
    }

    fn order_after_grouping(&mut self, by_columns: bool, index_dtype: DType) -> Result<ElementOrder> {
        self.call("order_after_grouping", (by_columns, index_dtype.name())).map(order)
    }
}

impl<'py> Engine<'py> for GpuEngine<'py> {
    fn validate_matrix(
        &mut self,
        matrix: usize,
        rows: usize,
        columns: i64,
    ) -> Result<std::result::Result<CompressedSummary, IndexError>> {
        let (error, number, used, in_order, unique): (String, i64, usize, bool, bool) =
            self.call("validate_matrix", (matrix, rows, columns))?;
        Ok(match error.as_str() {
            "" => Ok(CompressedSummary { used, in_order, unique }),
            "begins" => Err(IndexError::FirstPointer(number)),
            "goes back" => Err(IndexError::DecreasingPointer),
            "ends" => Err(IndexError::LastPointer(number)),
            "beyond" => Err(IndexError::OutOfBounds(number)),
            _ => {
                return Err(fail(
                    ErrorKind::InvalidTensor,
                    "the GPU engine returned an unknown validation error",
                    "report this",
                ));
            }
        })
    }

    fn coordinate_range(&mut self) -> Result<CoordinateRange> {
        let (bounds, found): (Vec<(i64, i64)>, (bool, bool, bool)) = self.call("coordinate_range", ())?;
        Ok(CoordinateRange { bounds: bounds.into(), order: order(found) })
    }

    fn drop_padding(&mut self) -> Result<(usize, ElementOrder)> {
        let (count, found): (usize, (bool, bool, bool)) = self.call("drop_padding", ())?;
        Ok((count, order(found)))
    }

    fn count(&self) -> usize {
        self.0.getattr("count").and_then(|count| count.extract()).unwrap_or(0)
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.0.call_method1("truncate", (count,))?;
        Ok(())
    }

    fn is_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool> {
        self.call("is_dense", name(conversion, role))
    }

    fn take_source_array(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<ResultArray<'py>> {
        self.peek_source_array(conversion, role)
    }

    fn peek_source_array(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        Ok(ResultArray::Object(self.0.call_method1("give", name(conversion, role))?))
    }

    fn pack_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        let (name, axis) = name(conversion, role);
        let dtype = (role != ArrayRole::Values).then(|| conversion.index_dtype.name());
        Ok(ResultArray::Object(self.0.call_method1("pack", (name, axis, dtype))?))
    }

    fn make_array(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<ResultArray<'py>> {
        let (name, axis) = name(conversion, role);
        let (format, dtype) = (conversion.format.name(), conversion.index_dtype.name());
        let made = match conversion.work {
            ElementWork::Blocks([rows, columns]) => {
                self.0.call_method1("make_blocks", (name, (rows, columns), dtype))?
            }
            ElementWork::Group => {
                self.0.call_method1("make_grouped", (name, conversion.by_columns(), dtype))?
            }
            ElementWork::Elements { sort, sum } => {
                let layout = conversion.layout.name();
                self.0.call_method1("make", (name, axis, format, layout, dtype, sort, sum))?
            }
            ElementWork::Keep => return self.take_source_array(conversion, role),
        };
        Ok(ResultArray::Object(made))
    }

    fn block_count(&mut self, [rows, columns]: [i64; 2]) -> Result<usize> {
        self.call("block_count", ((rows, columns),))
    }
}
