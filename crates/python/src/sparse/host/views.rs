//! Arrays of the source that are handed on, or views of them.

use super::super::arrays::changed;
use super::{HostEngine, taken};
use crate::conversion::host_copy;
use crate::conversion::source::{Memory, Source};
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use tensorferry_core::plan::sparse::{ArrayRole, CoordinateLayout, SparseConversion, SparseFormat};
use tensorferry_core::{ErrorKind, Tensor};

/// How an array of the result lies in an array of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// It is the array.
    Whole,
    /// It is the first elements.
    First,
    /// It is a line of a matrix: the number of the line, and the axis across.
    Line(usize, usize),
    /// It is all elements of blocks, one by one.
    Flat,
}

impl<'py> HostEngine<'py> {
    /// The index array of the source in which a role of the result lies, and how; None for the values.
    fn view_of(&self, conversion: &SparseConversion, role: ArrayRole) -> (Option<usize>, View) {
        let axis = match role {
            ArrayRole::Axis(number, _) => number,
            _ => 1 - conversion.format.leading_axis(),
        };
        match (self.format, self.layout, role) {
            (SparseFormat::Coo, _, ArrayRole::Values) => (None, View::Whole),
            (SparseFormat::Coo, _, ArrayRole::Coordinates | ArrayRole::Pointers) => (Some(0), View::Whole),
            (SparseFormat::Coo, CoordinateLayout::Separate, _) => (Some(axis), View::Whole),
            (SparseFormat::Coo, CoordinateLayout::Axes, _) => (Some(0), View::Line(axis, 0)),
            (SparseFormat::Coo, CoordinateLayout::Points, _) => (Some(0), View::Line(axis, 1)),
            (_, _, ArrayRole::Pointers) => (Some(0), View::Whole),
            (SparseFormat::Bsr, _, ArrayRole::Values) if conversion.format != SparseFormat::Bsr => {
                (None, View::Flat)
            }
            (_, _, ArrayRole::Values) => (None, if self.has_spare { View::First } else { View::Whole }),
            _ => (Some(1), if self.has_spare { View::First } else { View::Whole }),
        }
    }

    pub(super) fn is_given_dense(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<bool> {
        let (number, view) = self.view_of(conversion, role);
        let array = match number {
            Some(number) => self.array(number)?,
            None => self.values()?,
        };
        Ok(match view {
            View::Line(_, across) => array.is_line_dense(1 - across),
            _ => array.is_dense(),
        })
    }

    /// The view of an array of the source that has this role in the result.
    pub(super) fn given(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Source<'py>> {
        let (number, view) = self.view_of(conversion, role);
        if view != View::Whole {
            return self.peeked(conversion, role);
        }
        let array = match number {
            Some(number) => &mut self.arrays[number],
            None => &mut self.values,
        };
        Ok(array.take().ok_or_else(taken)?.into_source())
    }

    /// The same, and the array can still be handed on.
    pub(super) fn peeked(&self, conversion: &SparseConversion, role: ArrayRole) -> Result<Source<'py>> {
        let (number, view) = self.view_of(conversion, role);
        let array = match number {
            Some(number) => self.array(number)?,
            None => self.values()?,
        };
        let count = self.count;
        match view {
            View::Whole => array.again(),
            View::First => changed(array.view()?, |tensor| tensor.first(count)),
            View::Line(line, across) => changed(array.view()?, |tensor| tensor.select(across, line)),
            View::Flat => changed(array.view()?, |tensor| {
                let total = tensor.layout().count() as i64;
                tensor.reshaped(&[total])?.first(count)
            }),
        }
    }

    /// The same, packed.
    pub(super) fn packed(&mut self, conversion: &SparseConversion, role: ArrayRole) -> Result<Tensor<Owner>> {
        if role == ArrayRole::Values && self.view_of(conversion, role).1 == View::Flat {
            self.dense_values()?;
            let py = self.py;
            let values = host_copy::packed(py, self.values()?.tensor()?, self.values()?.dtype())?;
            let total = values.layout().count() as i64;
            return Ok(values.reshaped(&[total])?.first(self.count)?);
        }
        let source = self.given(conversion, role)?;
        let dtype = if role == ArrayRole::Values { source.facts().dtype } else { conversion.index_dtype };
        match &source.memory {
            Memory::Here(tensor) => host_copy::packed(self.py, tensor, dtype),
            Memory::Later { .. } => {
                let hint = "report this";
                Err(crate::errors::fail(ErrorKind::InvalidTensor, "the array is not on the host", hint))
            }
        }
    }
}
