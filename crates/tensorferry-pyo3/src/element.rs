//! The Rust types of elements.

use half::{bf16, f16};
use num_complex::Complex;
use tensorferry_core::DType;
use tensorferry_core::dlpack::abi::RawDType;

mod sealed {
    pub trait SealedElement {}
}

/// A Rust type that the elements of a tensor can have.
///
/// | Rust | dtype |
/// |---|---|
/// | `u8` to `u64`, `i8` to `i64` | `uint8` to `uint64`, `int8` to `int64` |
/// | `f32`, `f64` | `float32`, `float64` |
/// | [`half::f16`], [`half::bf16`] | `float16`, `bfloat16` |
/// | [`num_complex::Complex32`], [`num_complex::Complex64`] | `complex64`, `complex128` |
/// | `bool` | `bool`; every byte is checked |
/// | [`BoolByte`] | `bool`; bytes are not checked |
///
/// The trait is sealed. Types without a Rust counterpart, such as the 8-bit floats, are read with
/// [`AnyTensor::cast`](crate::AnyTensor::cast).
///
/// # Safety
/// A value has the size and the format of the dtype, and every byte pattern is a value, unless `IS_BOOL` is true: then the bytes
/// 0 and 1 are. The alignment is at most the size.
pub unsafe trait TensorElement: sealed::SealedElement + Copy + Send + Sync + 'static {
    /// The dtype of a tensor with these elements.
    const DTYPE: DType;
    /// Whether only the bytes 0 and 1 are values.
    #[doc(hidden)]
    const IS_BOOL: bool;
    /// The dtype in DLPack's terms.
    #[doc(hidden)]
    const RAW_DTYPE: RawDType = {
        let (code, bits) = Self::DTYPE.dlpack_code();
        RawDType { code, bits, lanes: 1 }
    };
}

/// One element of a `bool` tensor, as its byte.
///
/// Rust's `bool` has two valid bytes, and code that creates another one is undefined behaviour. A framework's `bool` tensor
/// may have others, for example if it is a view of bytes. A `TensorView<bool>` therefore reads all bytes once and refuses such
/// tensors. A `TensorView<BoolByte>` reads nothing in advance: the byte 0 is false, and all others are true, as in NumPy.
///
/// ```
/// use tensorferry_pyo3::BoolByte;
///
/// let yes = BoolByte::from(true);
/// assert!(yes.get() && yes.byte() == 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct BoolByte(u8);

impl BoolByte {
    /// The value: any byte but 0 is true.
    #[inline]
    #[must_use]
    pub const fn get(self) -> bool {
        self.0 != 0
    }

    /// The byte in memory.
    #[inline]
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

impl From<bool> for BoolByte {
    #[inline]
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl PartialEq for BoolByte {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for BoolByte {}

macro_rules! elements {
    (bytes 0 and 1: $($bool:ty => $bool_dtype:ident),*; all bytes: $($name:ty => $dtype:ident),* $(,)?) => {
        $(elements!(@ $bool, $bool_dtype, true);)*
        $(elements!(@ $name, $dtype, false);)*
    };
    (@ $name:ty, $dtype:ident, $is_bool:literal) => {
        impl sealed::SealedElement for $name {}
        // SAFETY: the assertions check the size and the alignment, and the list pairs each type with the dtype of its format. The
        // types in the first half of the list accept the bytes 0 and 1, and those in the second half all bytes.
        unsafe impl TensorElement for $name {
            const DTYPE: DType = DType::$dtype;
            const IS_BOOL: bool = $is_bool;
        }
        const _: () = assert!(size_of::<$name>() == DType::$dtype.size());
        const _: () = assert!(align_of::<$name>() <= DType::$dtype.align());
    };
}

elements! {
    bytes 0 and 1: bool => Bool;
    all bytes:
    BoolByte => Bool,
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
    Complex<f32> => Complex64,
    Complex<f64> => Complex128,
}
