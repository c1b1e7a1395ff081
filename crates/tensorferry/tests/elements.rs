//! Typed access: every type and layout, and the checks before memory becomes a slice.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use proptest::prelude::*;
use support::{Strided, bytes_of, dense, layouts, strided};
use tensorferry::half::{bf16, f16};
use tensorferry::{ConvertOptions, DType, Element, ErrorKind, Result, Tensor};

/// Calls a macro for each Rust type of elements.
macro_rules! for_each_element {
    ($check:ident) => {
        $check!(bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, [f32; 2], [f64; 2])
    };
}

/// The bytes of values, without the library.
fn bytes_of_values<T: Element>(values: &[T]) -> Vec<u8> {
    // SAFETY: an element has no padding, so that each of its bytes has a value.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}

fn check_type<T: Element>() {
    for layout in layouts() {
        let bytes = bytes_of(T::DTYPE, layout.elements);
        let expected = layout.gather(&bytes, T::DTYPE.size());
        let mut tensor = strided(&bytes, T::DTYPE, &layout);
        assert_eq!((tensor.dtype(), tensor.shape()), (T::DTYPE, &layout.shape()[..]));
        assert_eq!(tensor.len() * T::DTYPE.size(), expected.len());
        assert_eq!(bytes_of_values(&tensor.to_vec::<T>().unwrap()), expected, "{layout:?}");
        match tensor.is_dense() {
            true => assert_eq!(bytes_of_values(tensor.as_slice::<T>().unwrap()), expected),
            false => assert_eq!(tensor.as_slice::<T>().unwrap_err().kind(), ErrorKind::UnsupportedLayout),
        }
        assert_eq!(tensor.as_mut_slice::<T>().is_ok(), tensor.is_dense());
        let packed = tensor.pack().unwrap();
        assert_eq!((packed.as_bytes().unwrap(), packed.shape()), (&expected[..], tensor.shape()));
        assert_eq!(tensor.as_ndarray::<T>().unwrap().iter().count(), tensor.len());
    }
}

#[test]
fn every_type_in_every_layout() {
    macro_rules! check {
        ($($name:ty),*) => { $(check_type::<$name>();)* };
    }
    for_each_element!(check);
}

#[test]
fn vectors_are_not_copied_and_return() {
    macro_rules! check {
        ($($name:ty),*) => {
            $({
                let values = dense(<$name>::DTYPE, &[6]).to_vec::<$name>().unwrap();
                let (address, bytes) = (values.as_ptr(), bytes_of_values(&values));
                let tensor = Tensor::from_vec(values, &[3, 2]).unwrap();
                assert_eq!(tensor.as_slice::<$name>().unwrap().as_ptr(), address);
                assert_eq!(tensor.as_bytes().unwrap(), bytes);
                assert!(Tensor::from_vec(Vec::<$name>::new(), &[0, 7]).unwrap().as_slice::<$name>().unwrap().is_empty());
                assert!(Tensor::from_vec(Vec::<$name>::new(), &[]).is_err());
            })*
        };
    }
    for_each_element!(check);
}

#[test]
fn types_without_a_rust_counterpart_are_bytes() {
    for dtype in DType::all() {
        let tensor = dense(dtype, &[2, 3]);
        assert_eq!(tensor.as_bytes().unwrap(), bytes_of(dtype, 6));
        assert_eq!(Tensor::zeros(dtype, &[5]).unwrap().as_bytes().unwrap(), vec![0; 5 * dtype.size()]);
        for layout in layouts() {
            let bytes = bytes_of(dtype, layout.elements);
            let packed = strided(&bytes, dtype, &layout).pack().unwrap();
            assert_eq!(packed.as_bytes().unwrap(), layout.gather(&bytes, dtype.size()), "{dtype} {layout:?}");
        }
    }
}

#[test]
fn another_type_is_an_error_that_names_both() {
    let tensor = dense(DType::Int32, &[2]);
    for error in [
        tensor.as_slice::<u32>().unwrap_err(),
        tensor.to_vec::<u32>().unwrap_err(),
        tensor.as_ndarray::<u32>().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.fact().contains("int32") && error.fact().contains("uint32") && error.hint().is_some());
    }
}

#[test]
fn bytes_that_are_no_bools_are_never_a_slice_of_bools() {
    let mut tensor = Tensor::from_bytes(&[0, 1, 2, 1], DType::Bool, &[2, 2]).unwrap();
    for error in [
        tensor.as_slice::<bool>().unwrap_err(),
        tensor.as_ndarray::<bool>().unwrap_err(),
        tensor.permute(&[1, 0]).unwrap().as_ndarray::<bool>().unwrap_err(),
        tensor.as_mut_slice::<bool>().unwrap_err(),
        tensor.as_ndarray_mut::<bool>().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidTensor);
        assert!(error.fact().contains("byte 2"), "{error}");
    }
    // Copies have the bytes 0 and 1.
    let transposed = tensor.permute(&[1, 0]).unwrap();
    assert_eq!(tensor.pack().unwrap().as_slice::<bool>().unwrap(), [false, true, true, true]);
    assert_eq!(transposed.pack().unwrap().as_bytes().unwrap(), [0, 1, 1, 1]);
    assert_eq!(tensor.to_vec::<bool>().unwrap(), [false, true, true, true]);
    assert_eq!(transposed.to_vec::<bool>().unwrap(), [false, true, true, true]);
    // The row without the byte is a valid slice.
    assert_eq!(tensor.select(0, 0).unwrap().as_slice::<bool>().unwrap(), [false, true]);
}

#[test]
fn invalid_arguments_are_errors_about_the_argument() {
    let tensor = dense(DType::Int8, &[2, 3]);
    let cases: [(&str, Result<Tensor>, &[&str]); 13] = [
        ("from_vec", Tensor::from_vec(vec![1u8; 5], &[2, 3]), &["5", "[2, 3]", "6"]),
        ("from_bytes", Tensor::from_bytes(&[0; 7], DType::Int64, &[1]), &["8", "7"]),
        ("from_bytes", Tensor::from_bytes(&[0; 7], DType::Int64, &[1 << 40, 1 << 40]), &["1099511627776"]),
        ("zeros", Tensor::zeros(DType::Int8, &[usize::MAX]), &["18446744073709551615"]),
        ("zeros", Tensor::zeros(DType::Int8, &[usize::MAX / 2, 3]), &["9223372036854775807, 3"]),
        ("zeros_shared", Tensor::zeros_shared(DType::Int64, &[1 << 62]), &["4611686018427387904"]),
        ("select", tensor.select(0, 2), &["[2, 3]", "index 2", "axis 0"]),
        ("select", tensor.select(2, 0), &["[2, 3]", "axis 2"]),
        ("narrow", tensor.narrow(1, 2, 2), &["[2, 3]", "2 elements", "from 2", "axis 1"]),
        ("narrow", tensor.narrow(1, usize::MAX, 2), &["[2, 3]", "axis 1"]),
        ("reshape", tensor.reshape(&[7]), &["[2, 3]", "6", "[7]"]),
        ("reshape", tensor.reshape(&[usize::MAX / 2, 3]), &["9223372036854775807, 3"]),
        ("permute", tensor.permute(&[0, 0]), &["[0, 0]", "2"]),
    ];
    for (what, result, words) in cases {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        assert!(words.iter().all(|word| error.fact().contains(word)), "{what}: {error}");
        // An argument of the caller is not a tensor of another library, and gets other advice.
        assert!(error.hint().is_some_and(|hint| !hint.contains("report")), "{what}: {error}");
    }
    let error = tensor.permute(&[1, 0]).unwrap().reshape(&[6]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedLayout);
    assert!(error.hint().unwrap().contains("pack()"), "{error}");
}

proptest! {
    /// Casts to the 16-bit floats round as `half` does.
    #[test]
    fn casts_to_half_round_as_half(bits in prop::collection::vec(any::<u32>(), 1..300)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let tensor = Tensor::from_vec(values.clone(), &[values.len()]).unwrap();
        let half = tensor.cast(DType::Float16).unwrap().to_vec::<f16>().unwrap();
        let brain = tensor.cast(DType::BFloat16).unwrap().to_vec::<bf16>().unwrap();
        for (index, &value) in values.iter().enumerate() {
            if value.is_nan() {
                prop_assert!(half[index].is_nan() && brain[index].is_nan());
            } else {
                prop_assert_eq!(half[index].to_bits(), f16::from_f32(value).to_bits());
                prop_assert_eq!(brain[index].to_bits(), bf16::from_f32(value).to_bits());
            }
        }
    }

    /// `as` casts of Rust saturate and truncate as the copy engine does.
    #[test]
    fn casts_to_integers_are_those_of_rust(values in prop::collection::vec(any::<f64>(), 0..300)) {
        let tensor = Tensor::from_vec(values.clone(), &[values.len()]).unwrap();
        let cast = |to: fn(f64) -> i16| values.iter().map(|&value| to(value)).collect::<Vec<_>>();
        prop_assert_eq!(tensor.cast(DType::Int16).unwrap().to_vec::<i16>().unwrap(), cast(|value| value as i16));
        let unsigned: Vec<u8> = values.iter().map(|&value| value as u8).collect();
        prop_assert_eq!(tensor.cast(DType::UInt8).unwrap().to_vec::<u8>().unwrap(), unsigned);
        let narrow: Vec<u32> = values.iter().map(|&value| (value as f32).to_bits()).collect();
        let floats = tensor.cast(DType::Float32).unwrap().to_vec::<f32>().unwrap();
        prop_assert_eq!(floats.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), narrow);
    }

    /// Views, copies and conversions of random strides have the elements that plain loops find.
    #[test]
    fn random_layouts(
        axes in prop::collection::vec((0i64..5, -4i64..5), 0..4),
        extra in 0usize..3,
    ) {
        let reach = |sign: i64| -> i64 {
            axes.iter().filter(|(length, _)| *length > 0)
                .map(|(length, stride)| (length - 1) * stride)
                .filter(|reach| reach.signum() == sign).sum::<i64>().abs()
        };
        let layout = Strided {
            elements: (reach(-1) + reach(1)) as usize + 1 + extra,
            offset: reach(-1) as usize,
            shape: axes.iter().map(|axis| axis.0).collect(),
            strides: axes.iter().map(|axis| axis.1).collect(),
        };
        let bytes = bytes_of(DType::Int32, layout.elements);
        let expected = layout.gather(&bytes, 4);
        let tensor = strided(&bytes, DType::Int32, &layout);
        prop_assert_eq!(bytes_of_values(&tensor.to_vec::<i32>().unwrap()), expected.clone());
        let view: Vec<i32> = tensor.as_ndarray::<i32>().unwrap().iter().copied().collect();
        prop_assert_eq!(bytes_of_values(&view), expected.clone());
        let options = ConvertOptions::new().packed();
        let plan = tensor.plan(&options).unwrap();
        prop_assert_eq!(plan.shares(), tensor.is_dense());
        prop_assert_eq!(plan.bytes(), if plan.shares() { 0 } else { expected.len() });
        let packed = tensor.convert(&options).unwrap();
        prop_assert_eq!(bytes_of_values(packed.as_slice::<i32>().unwrap()), expected);
    }
}
