//! Tensors of rank 2 as matrices of [`faer`], without a copy, and matrices as tensors.
//!
//! ```
//! use tensorferry::Tensor;
//! use tensorferry_faer::{from_mat, mat_ref};
//!
//! let tensor = Tensor::from_vec(vec![1.0f64, 2.0, 3.0, 4.0], &[2, 2])?;
//! let matrix = mat_ref::<f64>(&tensor)?;
//! let square = from_mat((matrix * matrix).as_ref())?;
//! assert_eq!(square.to_vec::<f64>()?, [7.0, 10.0, 15.0, 22.0]);
//! # Ok::<(), tensorferry::Error>(())
//! ```

use faer::{MatMut, MatRef};
use tensorferry::{Element, Error, ErrorKind, Result, Tensor};

/// A view of a tensor of rank 2, of any strides.
///
/// # Errors
/// When the tensor has another rank, or [`Tensor::as_ndarray`] returns an error.
pub fn mat_ref<T: Element>(tensor: &Tensor) -> Result<MatRef<'_, T>> {
    check_rank(tensor)?;
    let view = tensor.as_ndarray::<T>()?;
    let (shape, strides) = (view.shape(), view.strides());
    // SAFETY: `from_raw_parts` requires elements at these offsets that have values and that nothing writes for as long as the
    // matrix lives. The view has the same elements, and borrows the tensor for the same lifetime.
    Ok(unsafe { MatRef::from_raw_parts(view.as_ptr(), shape[0], shape[1], strides[0], strides[1]) })
}

/// A view of a tensor of rank 2 for writing.
///
/// # Errors
/// When the tensor has another rank, or [`Tensor::as_ndarray_mut`] returns an error.
pub fn mat_mut<T: Element>(tensor: &mut Tensor) -> Result<MatMut<'_, T>> {
    check_rank(tensor)?;
    let mut view = tensor.as_ndarray_mut::<T>()?;
    let (shape, strides) = ([view.shape()[0], view.shape()[1]], [view.strides()[0], view.strides()[1]]);
    // SAFETY: as in `mat_ref`. The view has exclusive access to the elements, which do not overlap, and borrows the tensor for
    // the same lifetime. It is not used afterwards.
    Ok(unsafe { MatMut::from_raw_parts_mut(view.as_mut_ptr(), shape[0], shape[1], strides[0], strides[1]) })
}

/// A tensor with a copy of a matrix, in row-major order.
///
/// # Errors
/// When memory runs out.
pub fn from_mat<T: Element>(matrix: MatRef<'_, T>) -> Result<Tensor> {
    let (rows, columns) = (matrix.nrows(), matrix.ncols());
    let indices = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    Tensor::from_vec(indices.map(|(row, column)| matrix[(row, column)]).collect(), &[rows, columns])
}

fn check_rank(tensor: &Tensor) -> Result<()> {
    match tensor.shape().len() {
        2 => Ok(()),
        rank => Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!("a matrix has 2 dimensions, and the tensor has {rank}"),
            "select or reshape the tensor to 2 dimensions first",
        )),
    }
}
