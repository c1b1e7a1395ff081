//! Matrices of faer over tensors: the same elements, from any strides.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use tensorferry::{DType, ErrorKind, Tensor};
use tensorferry_faer::{from_mat, mat_mut, mat_ref};

fn matrix(rows: usize, columns: usize) -> Tensor {
    Tensor::from_vec((0..rows * columns).map(|value| value as f64).collect(), &[rows, columns]).unwrap()
}

#[test]
fn views_have_the_elements_of_the_tensor() {
    for tensor in [
        matrix(3, 4),
        matrix(3, 4).permute(&[1, 0]).unwrap(),
        matrix(5, 6).narrow(1, 2, 3).unwrap(),
        matrix(1, 4),
        matrix(0, 4),
        matrix(4, 0),
    ] {
        let view = mat_ref::<f64>(&tensor).unwrap();
        assert_eq!([view.nrows(), view.ncols()], tensor.shape());
        let values = tensor.to_vec::<f64>().unwrap();
        for row in 0..view.nrows() {
            for column in 0..view.ncols() {
                assert_eq!(view[(row, column)], values[row * view.ncols() + column]);
            }
        }
        assert_eq!(from_mat(view).unwrap().to_vec::<f64>().unwrap(), values);
    }
}

#[test]
fn a_view_shares_the_memory() {
    let mut tensor = matrix(2, 3);
    let address = tensor.as_slice::<f64>().unwrap().as_ptr();
    assert_eq!(mat_ref::<f64>(&tensor).unwrap().as_ptr(), address);
    mat_mut::<f64>(&mut tensor).unwrap()[(1, 2)] = -1.0;
    assert_eq!(tensor.as_slice::<f64>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, -1.0]);
}

#[test]
fn products_are_those_of_the_values() {
    let (left, right) = (matrix(7, 5), matrix(9, 5));
    let transposed = right.permute(&[1, 0]).unwrap();
    let product = mat_ref::<f64>(&left).unwrap() * mat_ref::<f64>(&transposed).unwrap();
    let product = from_mat(product.as_ref()).unwrap().to_vec::<f64>().unwrap();
    let (left, right) = (left.to_vec::<f64>().unwrap(), right.to_vec::<f64>().unwrap());
    for row in 0..7 {
        for column in 0..9 {
            // Integers below 2^53: every order of the sum is exact.
            let expected: f64 = (0..5).map(|index| left[row * 5 + index] * right[column * 5 + index]).sum();
            assert_eq!(product[row * 9 + column], expected);
        }
    }
}

#[test]
fn other_ranks_types_and_shared_memory_are_errors() {
    let kind = |tensor: &Tensor| mat_ref::<f64>(tensor).err().unwrap().kind();
    assert_eq!(kind(&matrix(2, 2).reshape(&[4]).unwrap()), ErrorKind::UnsupportedLayout);
    assert_eq!(kind(&Tensor::zeros(DType::Float32, &[2, 2]).unwrap()), ErrorKind::UnsupportedDType);
    let mut tensor = matrix(2, 2);
    let other = tensor.clone();
    assert!(mat_mut::<f64>(&mut tensor).is_err());
    drop(other);
    assert!(mat_mut::<f64>(&mut tensor).is_ok());
}
