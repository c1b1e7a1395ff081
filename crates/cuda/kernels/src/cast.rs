//! Elements of one type as another.
//!
//! The types are arguments, not parameters: all threads take the same way through the two switches, and memory is what
//! they wait for. One kernel for 784 pairs instead of 784 of them.

use crate::jobs::Gather;
use crate::number::{self, Small};
use crate::{gathered, span};

/// What an element is worth, exactly.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
}

/// A value, and its imaginary part where it has one.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    real: Value,
    imaginary: Option<Value>,
}

/// The codes of the element types, in the order of the host's `DType`; complex128, the last, is what is left.
pub(crate) mod code {
    macro_rules! codes {
        ($($name:ident)*) => { codes!(0; $($name)*); };
        ($number:expr; $name:ident $($rest:ident)*) => {
            pub(crate) const $name: u32 = $number;
            codes!($number + 1; $($rest)*);
        };
        ($number:expr;) => {};
    }
    codes! {
        BOOL INT4 INT8 INT16 INT32 INT64 UINT4 UINT8 UINT16 UINT32 UINT64 FLOAT16 FLOAT32 FLOAT64 BFLOAT16
        E3M4 E4M3 E4M3B11FNUZ E4M3FN E4M3FNUZ E5M2 E5M2FNUZ E8M0FNU E2M3FN E3M2FN E2M1FN COMPLEX64
    }
}

#[inline(always)]
fn small<S: Small>(byte: u8) -> Value {
    let values: &'static [u32; 256] = const { &S::VALUES };
    Value::Single(f32::from_bits(values[byte as usize]))
}

/// # Safety
/// An element of this type lies at the address, aligned.
#[inline(always)]
pub(crate) unsafe fn load(from: *const u8, kind: u32, swapped: bool) -> Number {
    macro_rules! read {
        ($word:ty) => {{
            // SAFETY: the caller's contract.
            let word = unsafe { *from.cast::<$word>() };
            if swapped { word.swap_bytes() } else { word }
        }};
        ($word:ty, $index:literal) => {{
            // SAFETY: the caller's contract, for a type of two such words.
            let word = unsafe { *from.cast::<$word>().add($index) };
            if swapped { word.swap_bytes() } else { word }
        }};
    }
    let real = match kind {
        code::BOOL => Value::Unsigned((read!(u8) != 0) as u64),
        code::INT4 => Value::Signed((((read!(u8) << 4) as i8) >> 4) as i64),
        code::INT8 => Value::Signed(read!(u8) as i8 as i64),
        code::INT16 => Value::Signed(read!(u16) as i16 as i64),
        code::INT32 => Value::Signed(read!(u32) as i32 as i64),
        code::INT64 => Value::Signed(read!(u64) as i64),
        code::UINT4 => Value::Unsigned((read!(u8) & 15) as u64),
        code::UINT8 => Value::Unsigned(read!(u8) as u64),
        code::UINT16 => Value::Unsigned(read!(u16) as u64),
        code::UINT32 => Value::Unsigned(read!(u32) as u64),
        code::UINT64 => Value::Unsigned(read!(u64)),
        code::FLOAT16 => Value::Single(f32::from_bits(number::decode_f16(read!(u16)))),
        code::BFLOAT16 => Value::Single(f32::from_bits(number::decode_bf16(read!(u16)))),
        code::FLOAT32 => Value::Single(f32::from_bits(read!(u32))),
        code::FLOAT64 => Value::Double(f64::from_bits(read!(u64))),
        code::E3M4 => small::<number::E3M4>(read!(u8)),
        code::E4M3 => small::<number::E4M3>(read!(u8)),
        code::E4M3B11FNUZ => small::<number::E4M3B11Fnuz>(read!(u8)),
        code::E4M3FN => small::<number::E4M3Fn>(read!(u8)),
        code::E4M3FNUZ => small::<number::E4M3Fnuz>(read!(u8)),
        code::E5M2 => small::<number::E5M2>(read!(u8)),
        code::E5M2FNUZ => small::<number::E5M2Fnuz>(read!(u8)),
        code::E8M0FNU => small::<number::E8M0Fnu>(read!(u8)),
        code::E2M3FN => small::<number::E2M3Fn>(read!(u8)),
        code::E3M2FN => small::<number::E3M2Fn>(read!(u8)),
        code::E2M1FN => small::<number::E2M1Fn>(read!(u8)),
        code::COMPLEX64 => {
            return Number {
                real: Value::Single(f32::from_bits(read!(u32, 0))),
                imaginary: Some(Value::Single(f32::from_bits(read!(u32, 1)))),
            };
        }
        _ => {
            return Number {
                real: Value::Double(f64::from_bits(read!(u64, 0))),
                imaginary: Some(Value::Double(f64::from_bits(read!(u64, 1)))),
            };
        }
    };
    Number { real, imaginary: None }
}

impl Value {
    #[inline(always)]
    fn is_true(self) -> bool {
        match self {
            Self::Signed(value) => value != 0,
            Self::Unsigned(value) => value != 0,
            Self::Single(value) => value != 0.0,
            Self::Double(value) => value != 0.0,
        }
    }

    /// As a float32, rounded once.
    #[inline(always)]
    fn single(self) -> f32 {
        match self {
            Self::Signed(value) => value as f32,
            Self::Unsigned(value) => value as f32,
            Self::Single(value) => value,
            Self::Double(value) => number::narrow(value),
        }
    }

    #[inline(always)]
    fn double(self) -> f64 {
        match self {
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Single(value) => number::widen(value),
            Self::Double(value) => value,
        }
    }

    /// As a float32 whose last bit says whether anything was lost, for one more rounding.
    #[inline(always)]
    fn odd(self) -> u32 {
        let odd = match self {
            Self::Signed(value) => number::odd_from_i64(value),
            Self::Unsigned(value) => number::odd_from_u64(value),
            Self::Single(value) => value,
            Self::Double(value) => number::odd_from_f64(value),
        };
        odd.to_bits()
    }
}

/// Integers wrap, floats are cut and saturate.
macro_rules! integer {
    ($value:expr, $kind:ty) => {
        match $value {
            Value::Signed(value) => value as $kind,
            Value::Unsigned(value) => value as $kind,
            Value::Single(value) => value as $kind,
            Value::Double(value) => value as $kind,
        }
    };
}

/// Four bits: integers wrap, floats saturate.
#[inline(always)]
fn four_bits(value: Value, signed: bool) -> u8 {
    match value {
        Value::Signed(_) | Value::Unsigned(_) => {
            let byte = integer!(value, u8);
            if signed { (((byte << 4) as i8) >> 4) as u8 } else { byte & 15 }
        }
        _ => {
            let byte = integer!(value, i8);
            if signed { byte.clamp(-8, 7) as u8 } else { byte.clamp(0, 15) as u8 }
        }
    }
}

/// # Safety
/// There is room for an element of this type at the address, aligned.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, kind: u32, number: Number) {
    let value = number.real;
    macro_rules! write {
        ($word:expr) => {{
            let word = $word;
            // SAFETY: the caller's contract.
            unsafe { *to.cast() = word }
        }};
    }
    macro_rules! pair {
        ($part:ident, $kind:ty) => {{
            let imaginary = match number.imaginary {
                Some(imaginary) => imaginary.$part(),
                None => 0.0,
            };
            write!([value.$part(), imaginary] as [$kind; 2])
        }};
    }
    match kind {
        code::BOOL => {
            let imaginary = match number.imaginary {
                Some(imaginary) => imaginary.is_true(),
                None => false,
            };
            write!((value.is_true() || imaginary) as u8)
        }
        code::INT4 => write!(four_bits(value, true)),
        code::INT8 => write!(integer!(value, i8)),
        code::INT16 => write!(integer!(value, i16)),
        code::INT32 => write!(integer!(value, i32)),
        code::INT64 => write!(integer!(value, i64)),
        code::UINT4 => write!(four_bits(value, false)),
        code::UINT8 => write!(integer!(value, u8)),
        code::UINT16 => write!(integer!(value, u16)),
        code::UINT32 => write!(integer!(value, u32)),
        code::UINT64 => write!(integer!(value, u64)),
        code::FLOAT16 => write!(number::encode_f16(value.odd())),
        code::BFLOAT16 => write!(number::encode_bf16(value.odd())),
        code::FLOAT32 => write!(value.single()),
        code::FLOAT64 => write!(value.double()),
        code::E3M4 => write!(number::encode::<number::E3M4>(value.odd())),
        code::E4M3 => write!(number::encode::<number::E4M3>(value.odd())),
        code::E4M3B11FNUZ => write!(number::encode::<number::E4M3B11Fnuz>(value.odd())),
        code::E4M3FN => write!(number::encode::<number::E4M3Fn>(value.odd())),
        code::E4M3FNUZ => write!(number::encode::<number::E4M3Fnuz>(value.odd())),
        code::E5M2 => write!(number::encode::<number::E5M2>(value.odd())),
        code::E5M2FNUZ => write!(number::encode::<number::E5M2Fnuz>(value.odd())),
        code::E8M0FNU => write!(number::encode::<number::E8M0Fnu>(value.odd())),
        code::E2M3FN => write!(number::encode::<number::E2M3Fn>(value.odd())),
        code::E3M2FN => write!(number::encode::<number::E3M2Fn>(value.odd())),
        code::E2M1FN => write!(number::encode::<number::E2M1Fn>(value.odd())),
        code::COMPLEX64 => pair!(single, f32),
        _ => pair!(double, f64),
    }
}

/// Gathers and casts.
///
/// # Safety
/// The job describes memory of this device, with elements of the first type, aligned; the target has room for as many of
/// the second, which takes `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cast(job: Gather, from: u32, swapped: u32, to: u32, size: u32) {
    let job = gathered!(cast, job);
    let (mut element, step) = span();
    while element < job.count {
        // SAFETY: the caller's contract.
        unsafe {
            let number = load(job.place(element), from, swapped != 0);
            store(job.to.add((element * size as u64) as usize), to, number);
        }
        element += step;
    }
}
