//! Copies to candle and back: the values of every type that both have, from any strides.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use candle_core::{DType as CandleDType, Device, Tensor as CandleTensor};
use tensorferry::{DType, ErrorKind, Tensor};
use tensorferry_candle::{from_candle, to_candle};

const BOTH: [(DType, CandleDType); 9] = [
    (DType::UInt8, CandleDType::U8),
    (DType::UInt32, CandleDType::U32),
    (DType::Int16, CandleDType::I16),
    (DType::Int32, CandleDType::I32),
    (DType::Int64, CandleDType::I64),
    (DType::Float16, CandleDType::F16),
    (DType::BFloat16, CandleDType::BF16),
    (DType::Float32, CandleDType::F32),
    (DType::Float64, CandleDType::F64),
];

fn tensor(dtype: DType, shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    Tensor::from_vec((0..count as i32).collect(), shape).unwrap().cast(dtype).unwrap()
}

#[test]
fn every_type_returns_from_any_strides() {
    for (dtype, in_candle) in BOTH {
        for source in [
            tensor(dtype, &[2, 3, 4]),
            tensor(dtype, &[2, 3, 4]).permute(&[2, 0, 1]).unwrap(),
            tensor(dtype, &[4, 5]).narrow(1, 1, 2).unwrap(),
            tensor(dtype, &[]),
            tensor(dtype, &[3, 0]),
        ] {
            let copied = to_candle(&source, &Device::Cpu).unwrap();
            assert_eq!((copied.dtype(), copied.dims()), (in_candle, source.shape()));
            let returned = from_candle(&copied).unwrap();
            assert_eq!((returned.dtype(), returned.shape()), (dtype, source.shape()));
            assert_eq!(returned.as_bytes().unwrap(), source.pack().unwrap().as_bytes().unwrap());
        }
    }
}

#[test]
fn values_are_those_that_candle_computes_with() {
    let source = tensor(DType::Float32, &[2, 3]).permute(&[1, 0]).unwrap();
    let copied = to_candle(&source, &Device::Cpu).unwrap();
    assert_eq!(copied.to_vec2::<f32>().unwrap(), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]);
    let transposed =
        CandleTensor::arange(0i64, 6, &Device::Cpu).unwrap().reshape((2, 3)).unwrap().t().unwrap();
    assert_eq!(from_candle(&transposed).unwrap().to_vec::<i64>().unwrap(), [0, 3, 1, 4, 2, 5]);
}

#[test]
fn other_types_are_errors_with_a_hint() {
    for dtype in DType::all().filter(|dtype| BOTH.iter().all(|(both, _)| both != dtype)) {
        let error = to_candle(&Tensor::zeros(dtype, &[2]).unwrap(), &Device::Cpu).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.fact().contains(dtype.name()) && error.hint().is_some());
    }
}
