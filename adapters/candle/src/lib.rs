//! Copies between tensors of `tensorferry` and of [`candle_core`]. Candle allocates its memory itself, so that neither
//! direction can share it.
//!
//! ```
//! use candle_core::Device;
//! use tensorferry::Tensor;
//! use tensorferry_candle::{from_candle, to_candle};
//!
//! let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//! let doubled = (to_candle(&tensor, &Device::Cpu)? * 2.0).unwrap();
//! assert_eq!(from_candle(&doubled)?.as_slice::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), tensorferry::Error>(())
//! ```

use candle_core::{DType as CandleDType, Device, Tensor as CandleTensor, WithDType};
use half::{bf16, f16};
use tensorferry::{DType, Element, Error, ErrorKind, Result, Tensor};

/// A copy of a tensor on a device of candle.
///
/// # Errors
/// When candle does not have the element type, the tensor is on a GPU, or the device fails.
pub fn to_candle(tensor: &Tensor, device: &Device) -> Result<CandleTensor> {
    match tensor.dtype() {
        DType::UInt8 => copy_to::<u8>(tensor, device),
        DType::UInt32 => copy_to::<u32>(tensor, device),
        DType::Int16 => copy_to::<i16>(tensor, device),
        DType::Int32 => copy_to::<i32>(tensor, device),
        DType::Int64 => copy_to::<i64>(tensor, device),
        DType::Float16 => copy_to::<f16>(tensor, device),
        DType::BFloat16 => copy_to::<bf16>(tensor, device),
        DType::Float32 => copy_to::<f32>(tensor, device),
        DType::Float64 => copy_to::<f64>(tensor, device),
        dtype => Err(unsupported(format!("candle has no type {dtype}"))),
    }
}

/// A copy of a tensor of candle in host memory, in row-major order.
///
/// # Errors
/// When this crate does not read the element type, memory runs out, or the device fails.
pub fn from_candle(tensor: &CandleTensor) -> Result<Tensor> {
    match tensor.dtype() {
        CandleDType::U8 => copy_from::<u8>(tensor),
        CandleDType::U32 => copy_from::<u32>(tensor),
        CandleDType::I16 => copy_from::<i16>(tensor),
        CandleDType::I32 => copy_from::<i32>(tensor),
        CandleDType::I64 => copy_from::<i64>(tensor),
        CandleDType::F16 => copy_from::<f16>(tensor),
        CandleDType::BF16 => copy_from::<bf16>(tensor),
        CandleDType::F32 => copy_from::<f32>(tensor),
        CandleDType::F64 => copy_from::<f64>(tensor),
        other => Err(unsupported(format!("tensors of candle of type {} are not read", other.as_str()))),
    }
}

fn copy_to<T: Element + WithDType>(tensor: &Tensor, device: &Device) -> Result<CandleTensor> {
    CandleTensor::from_vec(tensor.to_vec::<T>()?, tensor.shape(), device).map_err(from_candle_error)
}

fn copy_from<T: Element + WithDType>(tensor: &CandleTensor) -> Result<Tensor> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<T>()).map_err(from_candle_error)?;
    Tensor::from_vec(values, tensor.dims())
}

fn unsupported(fact: String) -> Error {
    Error::new(ErrorKind::UnsupportedDType, fact, "cast it to float32 or another type that both have, first")
}

fn from_candle_error(error: candle_core::Error) -> Error {
    let first_line = error.to_string().lines().next().unwrap_or_default().to_owned();
    Error::new(
        ErrorKind::FrameworkFailed,
        format!("candle refused the tensor: {first_line}"),
        "check that the device works and has enough memory",
    )
}
