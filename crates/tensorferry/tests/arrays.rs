//! Views as arrays of ndarray: the same elements at the same indices, from any strides.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use support::{bytes_of, dense, layouts, strided};
use tensorferry::ndarray::{Array, Array3, Axis, Dimension, IxDyn, arr0, s};
use tensorferry::{DType, ErrorKind, Tensor};

#[test]
fn elements_are_at_their_indices() {
    for layout in layouts() {
        let bytes = bytes_of(DType::Int16, layout.elements);
        let values: Vec<i16> =
            bytes.chunks_exact(2).map(|pair| i16::from_ne_bytes([pair[0], pair[1]])).collect();
        let tensor = strided(&bytes, DType::Int16, &layout);
        let view = tensor.as_ndarray::<i16>().unwrap();
        assert_eq!(view.shape(), layout.shape());
        for (index, &value) in view.indexed_iter() {
            let steps = index.slice().iter().zip(&layout.strides).map(|(&at, &stride)| at as i64 * stride);
            assert_eq!(value, values[(layout.offset as i64 + steps.sum::<i64>()) as usize], "{layout:?}");
        }
    }
}

#[test]
fn views_share_the_memory() {
    let mut tensor = dense(DType::Float32, &[2, 3]);
    let address = tensor.as_slice::<f32>().unwrap().as_ptr();
    assert_eq!(tensor.as_ndarray::<f32>().unwrap().as_ptr(), address);
    tensor.as_ndarray_mut::<f32>().unwrap().index_axis_mut(Axis(1), 2).fill(-1.0);
    let values = tensor.as_slice::<f32>().unwrap();
    assert_eq!((values[2], values[5]), (-1.0, -1.0));
    assert!(values[0] != -1.0);
}

#[test]
fn writes_reach_negative_strides_and_not_overlapping_elements() {
    for layout in layouts() {
        let bytes = bytes_of(DType::Int32, layout.elements);
        let mut tensor = strided(&bytes, DType::Int32, &layout);
        let overlaps =
            layout.shape.iter().zip(&layout.strides).any(|(&length, &stride)| length > 1 && stride == 0);
        if overlaps {
            let error = tensor.as_ndarray_mut::<i32>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedLayout);
            assert!(error.hint().unwrap().contains("pack()"));
            continue;
        }
        let mut count = 0;
        for element in &mut tensor.as_ndarray_mut::<i32>().unwrap() {
            *element = count;
            count += 1;
        }
        assert_eq!(tensor.to_vec::<i32>().unwrap(), (0..count).collect::<Vec<_>>(), "{layout:?}");
    }
}

#[test]
fn arrays_become_tensors_with_their_strides() {
    let cube = || Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 100 + j * 10 + k) as i64);
    let mut reversed = cube();
    reversed.invert_axis(Axis(2));
    let arrays = [
        cube().into_dyn(),
        cube().permuted_axes([2, 0, 1]).into_dyn(),
        reversed.into_dyn(),
        cube().slice_move(s![.., 1..;2, ..;3]).into_dyn(),
        arr0(5i64).into_dyn(),
        Array::zeros(IxDyn(&[2, 0, 3])),
        Array::zeros(IxDyn(&[1])),
    ];
    for array in arrays {
        let expected: Vec<i64> = array.iter().copied().collect();
        let (address, shape) = (array.as_ptr(), array.shape().to_vec());
        let mut tensor = Tensor::from_ndarray(array).unwrap();
        assert_eq!(tensor.shape(), shape);
        assert_eq!(tensor.to_vec::<i64>().unwrap(), expected);
        assert!(tensor.is_empty() || tensor.as_ndarray::<i64>().unwrap().as_ptr() == address);
        assert!(tensor.as_ndarray_mut::<i64>().is_ok());
    }
}
