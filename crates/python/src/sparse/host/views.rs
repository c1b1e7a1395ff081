//! Source arrays that become arrays of the result, directly or as views.

use super::super::arrays::map_tensor;
use super::{HostEngine, already_taken};
use crate::conversion::host_copy;
use crate::conversion::source::{Source, SourceMemory};
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use tensorferry_core::plan::sparse::{ArrayRole, CoordinateLayout, SparseConversion, SparseFormat};
use tensorferry_core::{ErrorKind, Tensor};

/// Which elements of a source array an array of the result consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// All elements.
    Full,
    /// The first elements.
    Prefix,
    /// A row or column of a matrix: its index, and the axis that it is selected on.
    Line(usize, usize),
    /// All elements of blocks, flattened.
    Flat,
}

impl<'py> HostEngine<'py> {
    /// The source array for a role of the result, and the view of it; None stands for the values.
    fn source_view(&self, conversion: &SparseConversion, role: ArrayRole) -> (Option<usize>, View) {
        let axis = match role {
            ArrayRole::Axis(number, _) => number,
            _ => 1 - conversion.format.leading_axis(),
        };
        match (self.format, self.layout, role) {
            (SparseFormat::Coo, _, ArrayRole::Values) => (None, View::Full),
            (SparseFormat::Coo, _, ArrayRole::Coordinates | ArrayRole::Pointers) => (Some(0), View::Full),
            (SparseFormat::Coo, CoordinateLayout::Separate, _) => (Some(axis), View::Full),
            (SparseFormat::Coo, CoordinateLayout::Axes, _) => (Some(0), View::Line(axis, 0)),
            (SparseFormat::Coo, CoordinateLayout::Points, _) => (Some(0), View::Line(axis, 1)),
            (_, _, ArrayRole::Pointers) => (Some(0), View::Full),
            (SparseFormat::Bsr, _, ArrayRole::Values) if conversion.format != SparseFormat::Bsr => {
                (None, View::Flat)
            }
            (_, _, ArrayRole::Values) => (None, if self.has_spare { View::Prefix } else { View::Full }),
            _ => (Some(1), if self.has_spare { View::Prefix } else { View::Full }),
        }
    }

    pub(super) fn is_source_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool> {
        let (number, view) = self.source_view(conversion, role);
        let array = match number {
            Some(number) => self.array(number)?,
            None => self.values()?,
        };
        Ok(match view {
            View::Line(_, across) => array.is_line_dense(1 - across),
            _ => array.is_dense(),
        })
    }

    /// Takes the source array for this role, or a view of it.
    pub(super) fn take_source(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<Source<'py>> {
        let (number, view) = self.source_view(conversion, role);
        if view != View::Full {
            return self.peek_source(conversion, role);
        }
        let array = match number {
            Some(number) => &mut self.arrays[number],
            None => &mut self.values,
        };
        Ok(array.take().ok_or_else(already_taken)?.into_source())
    }

    /// The same without taking the array.
    pub(super) fn peek_source(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<Source<'py>> {
        let (number, view) = self.source_view(conversion, role);
        let array = match number {
            Some(number) => self.array(number)?,
            None => self.values()?,
        };
        let count = self.count;
        match view {
            View::Full => array.reread(),
            View::Prefix => map_tensor(array.host_view()?, |tensor| tensor.first(count)),
            View::Line(line, across) => map_tensor(array.host_view()?, |tensor| tensor.select(across, line)),
            View::Flat => map_tensor(array.host_view()?, |tensor| {
                let total = tensor.layout().count() as i64;
                tensor.reshaped(&[total])?.first(count)
            }),
        }
    }

    /// A contiguous copy of the source array for this role.
    pub(super) fn pack_source(
        &mut self,
        conversion: &SparseConversion,
        role: ArrayRole,
    ) -> Result<Tensor<Owner>> {
        if role == ArrayRole::Values && self.source_view(conversion, role).1 == View::Flat {
            self.dense_values()?;
            let py = self.py;
            let values = host_copy::copy_packed(py, self.values()?.tensor()?, self.values()?.dtype())?;
            let total = values.layout().count() as i64;
            return Ok(values.reshaped(&[total])?.first(self.count)?);
        }
        let source = self.take_source(conversion, role)?;
        let dtype = if role == ArrayRole::Values { source.describe().dtype } else { conversion.index_dtype };
        match &source.memory {
            SourceMemory::InPlace(tensor) => host_copy::copy_packed(self.py, tensor, dtype),
            SourceMemory::Pending { .. } => {
                let hint = "report this";
                Err(crate::errors::fail(ErrorKind::InvalidTensor, "the array is not on the host", hint))
            }
        }
    }
}
