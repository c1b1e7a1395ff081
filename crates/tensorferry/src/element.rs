//! The Rust types of elements.

use crate::error::{Error, Result};
use half::{bf16, f16};
use std::fmt::Debug;
use tensorferry_core::{DType, ErrorKind};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that an element of a tensor can have.
///
/// The trait is sealed: memory is reinterpreted as a slice of the type, which is sound for these types only. Types without
/// a Rust counterpart, such as the 8-bit floats, are accessed as bytes ([`Tensor::as_bytes`](crate::Tensor::as_bytes)) or
/// cast first. A complex number is an array of its real and its imaginary part.
pub trait Element: sealed::Sealed + Copy + Debug + PartialEq + Send + Sync + 'static {
    /// The element type of a tensor with these values.
    const DTYPE: DType;

    /// Whether every byte pattern is a value. Only `bool` has invalid ones.
    #[doc(hidden)]
    const ANY_BYTES: bool;
}

macro_rules! elements {
    ($($name:ty => $dtype:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $name {}
            impl Element for $name {
                const DTYPE: DType = DType::$dtype;
                const ANY_BYTES: bool = !matches!(DType::$dtype, DType::Bool);
            }
            // A tensor of the type is viewed as a slice of it.
            const _: () = assert!(size_of::<$name>() == DType::$dtype.size());
        )*
    };
}

elements! {
    bool => Bool,
    i8 => Int8,
    i16 => Int16,
    i32 => Int32,
    i64 => Int64,
    u8 => UInt8,
    u16 => UInt16,
    u32 => UInt32,
    u64 => UInt64,
    f16 => Float16,
    bf16 => BFloat16,
    f32 => Float32,
    f64 => Float64,
    [f32; 2] => Complex64,
    [f64; 2] => Complex128,
}

/// Checks that the type is that of the tensor.
pub(crate) fn check_dtype<T: Element>(dtype: DType) -> Result<()> {
    if T::DTYPE == dtype {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::UnsupportedDType,
        format!("the tensor has elements of type {dtype}, and {} was requested", T::DTYPE),
        format!("request the type of the tensor, or cast it with cast(DType::{:?})", T::DTYPE),
    ))
}

/// Checks that all bytes are values of the type.
pub(crate) fn check_values<T: Element>(bytes: impl Iterator<Item = u8>) -> Result<()> {
    if T::ANY_BYTES {
        return Ok(());
    }
    match bytes.enumerate().find(|(_, byte)| *byte > 1) {
        None => Ok(()),
        Some((index, byte)) => Err(Error::new(
            ErrorKind::InvalidTensor,
            format!("the bool at index {index} is the byte {byte}, and only 0 and 1 are values"),
            "read the bytes with as_bytes(), or copy them with pack(), which makes every byte but 0 a 1",
        )),
    }
}
