//! The description of a tensor in a file: name, element type, shape and order.

use crate::errors::{invalid_argument, invalid_file, quoted};
use crate::hints;
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result};

/// The limit on the dimensions of a tensor in a file, which is NumPy's.
pub const MAX_DIMENSIONS: usize = 64;

/// Little-endian, relative to this machine.
pub(crate) const LITTLE_ENDIAN: ByteOrder =
    if cfg!(target_endian = "little") { ByteOrder::Native } else { ByteOrder::Swapped };
/// Big-endian, relative to this machine.
pub(crate) const BIG_ENDIAN: ByteOrder =
    if cfg!(target_endian = "little") { ByteOrder::Swapped } else { ByteOrder::Native };

/// What a tensor is, apart from its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name in the file. It is empty where the format stores no name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The lengths of the dimensions.
    pub shape: Vec<i64>,
    /// The byte order of the elements.
    pub order: ByteOrder,
    /// Whether the layout is column-major (Fortran order) instead of row-major.
    pub fortran: bool,
}

impl TensorSpec {
    /// A row-major tensor in this machine's byte order.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64]) -> Self {
        Self { name: name.into(), dtype, shape: shape.to_vec(), order: ByteOrder::Native, fortran: false }
    }

    /// The shape and strides of the bytes in the file.
    ///
    /// # Errors
    /// When a dimension is negative or the size overflows; never for the spec of a [`FileEntry`](crate::FileEntry).
    pub fn layout(&self) -> Result<Layout> {
        let item = self.dtype.size();
        let dense = Layout::dense(item, &self.shape)?;
        if !self.fortran {
            return Ok(dense);
        }
        let mut step = item as i64;
        let mut strides = Vec::with_capacity(self.shape.len());
        for &length in &self.shape {
            strides.push(step);
            // Cannot overflow: the dense layout has checked the same product.
            step = step.saturating_mul(length.max(1));
        }
        Layout::strided(item, &self.shape, &strides)
    }

    /// Validates the shape and returns the size in bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        Ok(Layout::dense(self.dtype.size(), &self.shape)?.bytes() as u64)
    }
}

/// Rejects a shape in a file that has too many dimensions.
pub(crate) fn check_rank(rank: usize) -> Result<()> {
    if rank > MAX_DIMENSIONS {
        return Err(invalid_file(format!(
            "the shape has {rank} dimensions, and the limit is {MAX_DIMENSIONS}"
        )));
    }
    Ok(())
}

/// Converts a length from a file to a dimension.
pub(crate) fn dimension(length: u64) -> Result<i64> {
    i64::try_from(length).map_err(|_| invalid_file(format!("a dimension of length {length} overflows")))
}

/// Validates specs for writing, whatever the format.
pub(crate) fn check_specs(specs: &[TensorSpec]) -> Result<()> {
    for spec in specs {
        if spec.shape.len() > MAX_DIMENSIONS {
            let fact =
                format!("the shape has {} dimensions, and the limit is {MAX_DIMENSIONS}", spec.shape.len());
            return Err(Error::new(ErrorKind::InvalidArgument, fact)
                .with_hint_value(hints::RESHAPE_TENSOR, MAX_DIMENSIONS.to_string()));
        }
        spec.layout()?;
    }
    Ok(())
}

/// Validates specs for a format that stores only little-endian, row-major tensors.
pub(crate) fn check_little_endian_row_major(specs: &[TensorSpec], format: &str) -> Result<()> {
    for spec in specs {
        let is_swapped = spec.order != LITTLE_ENDIAN && spec.dtype.swap_unit() > 1;
        if is_swapped || !spec.layout()?.is_dense() {
            let (found, stored) = if is_swapped {
                ("big-endian", "little-endian tensors")
            } else {
                ("in Fortran order", "row-major tensors")
            };
            return Err(invalid_argument(
                format!("tensor {} is {found}, and {format} stores only {stored}", quoted(&spec.name)),
                hints::CONVERT_ORDER_FIRST,
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_fortran_order_ascend() {
        let mut spec = TensorSpec::new("", DType::Float32, &[2, 3, 4]);
        assert_eq!(spec.layout().unwrap().strides(), [48, 16, 4]);
        spec.fortran = true;
        assert_eq!(spec.layout().unwrap().strides(), [4, 8, 24]);
        spec.shape = vec![2, 0, 4];
        assert!(spec.layout().unwrap().is_empty());
    }
}
