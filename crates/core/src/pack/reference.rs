//! A slow reference implementation of casts and copies, for the tests of the engine.
//!
//! Nothing of `number` or `cast_kernels` is used here: a value is exactly a sign, an integer and a power of two, and
//! rounding uses 128-bit integers. Offsets are computed element by element from the layouts.

use crate::dtype::{DType, DTypeKind};
use crate::layout::Layout;

/// A real number, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// With the payload at the top of 52 bits, without the quiet bit.
    Nan {
        negative: bool,
        payload: u64,
    },
    Infinite {
        negative: bool,
    },
    Finite {
        negative: bool,
        magnitude: u128,
        exponent: i32,
    },
}

pub(super) const ZERO: Value = Value::Finite { negative: false, magnitude: 0, exponent: 0 };

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Family {
    Ieee,
    /// No infinity; the NaN has all bits set but the sign.
    Fn,
    /// No infinity, no minus zero, one NaN.
    Fnuz,
    /// Neither infinity nor NaN.
    Finite,
    /// Powers of two.
    Power,
}

/// Exponent bits, mantissa bits, bias, family.
pub(super) fn format(dtype: DType) -> (u32, u32, i32, Family) {
    match dtype {
        DType::Float64 => (11, 52, 1023, Family::Ieee),
        DType::Float32 => (8, 23, 127, Family::Ieee),
        DType::Float16 => (5, 10, 15, Family::Ieee),
        DType::BFloat16 => (8, 7, 127, Family::Ieee),
        DType::Float8E3M4 => (3, 4, 3, Family::Ieee),
        DType::Float8E4M3 => (4, 3, 7, Family::Ieee),
        DType::Float8E4M3B11Fnuz => (4, 3, 11, Family::Fnuz),
        DType::Float8E4M3Fn => (4, 3, 7, Family::Fn),
        DType::Float8E4M3Fnuz => (4, 3, 8, Family::Fnuz),
        DType::Float8E5M2 => (5, 2, 15, Family::Ieee),
        DType::Float8E5M2Fnuz => (5, 2, 16, Family::Fnuz),
        DType::Float8E8M0Fnu => (8, 0, 127, Family::Power),
        DType::Float6E2M3Fn => (2, 3, 1, Family::Finite),
        DType::Float6E3M2Fn => (3, 2, 3, Family::Finite),
        DType::Float4E2M1Fn => (2, 1, 1, Family::Finite),
        _ => unreachable!("{dtype} is not a float"),
    }
}

pub(super) fn decode_float(dtype: DType, code: u64) -> Value {
    let (exponent_bits, mantissa, bias, family) = format(dtype);
    if family == Family::Power {
        return match code {
            0xff => Value::Nan { negative: false, payload: 0 },
            _ => Value::Finite { negative: false, magnitude: 1, exponent: code as i32 - 127 },
        };
    }
    let negative = code >> (exponent_bits + mantissa) & 1 == 1;
    let field = code >> mantissa & ((1 << exponent_bits) - 1);
    let fraction = code & ((1 << mantissa) - 1);
    let ones = field == (1 << exponent_bits) - 1;
    match family {
        Family::Ieee if ones && fraction == 0 => return Value::Infinite { negative },
        Family::Ieee if ones => {
            let wide = dtype.size() > 1;
            let payload = if wide { (fraction << (52 - mantissa)) & !(1 << 51) } else { 0 };
            return Value::Nan { negative, payload };
        }
        Family::Fn if ones && fraction == (1 << mantissa) - 1 => return Value::Nan { negative, payload: 0 },
        Family::Fnuz if code == 0x80 => return Value::Nan { negative: false, payload: 0 },
        _ => {}
    }
    let (magnitude, field) = if field == 0 { (fraction, 1) } else { (fraction | 1 << mantissa, field) };
    Value::Finite { negative, magnitude: magnitude.into(), exponent: field as i32 - bias - mantissa as i32 }
}

/// `magnitude * 2^exponent` in units of `2^unit`, to the nearest, ties to even.
pub(super) fn round(magnitude: u128, exponent: i32, unit: i32) -> u128 {
    if exponent >= unit {
        return magnitude << (exponent - unit);
    }
    let shift = (unit - exponent) as u32;
    if shift > 126 {
        return 0;
    }
    let (kept, lost, half) = (magnitude >> shift, magnitude & ((1 << shift) - 1), 1u128 << (shift - 1));
    kept + u128::from(lost > half || (lost == half && kept & 1 == 1))
}

pub(super) fn encode_float(dtype: DType, value: Value) -> u64 {
    let (exponent_bits, mantissa, bias, family) = format(dtype);
    let sign_bit = exponent_bits + mantissa;
    let all = (1u64 << sign_bit) - 1;
    let infinity = ((1u64 << exponent_bits) - 1) << mantissa;
    let sign = |negative: bool| u64::from(negative) << sign_bit;
    let too_large = |negative: bool| match family {
        Family::Ieee => sign(negative) | infinity,
        Family::Fn | Family::Finite => sign(negative) | all,
        Family::Fnuz => 0x80,
        Family::Power => 0xff,
    };
    match value {
        Value::Nan { negative, payload } => match family {
            Family::Ieee if dtype.size() > 1 => {
                sign(negative) | infinity | 1 << (mantissa - 1) | payload >> (52 - mantissa)
            }
            Family::Ieee => sign(negative) | infinity | 1 << (mantissa - 1),
            Family::Fn => sign(negative) | all,
            Family::Fnuz => 0x80,
            Family::Finite => sign(!negative),
            Family::Power => 0xff,
        },
        Value::Infinite { negative } => too_large(negative),
        Value::Finite { magnitude: 0, .. } if family == Family::Power => 0xff,
        Value::Finite { negative: true, .. } if family == Family::Power => 0xff,
        Value::Finite { magnitude: 0, .. } if family == Family::Fnuz => 0,
        Value::Finite { negative, magnitude: 0, .. } => sign(negative),
        Value::Finite { negative, magnitude, exponent } => {
            let top = exponent + 127 - magnitude.leading_zeros() as i32;
            if family == Family::Power {
                if top < -127 {
                    return 0;
                }
                return (top + 126 + round(magnitude, exponent, top) as i32).min(0xff) as u64;
            }
            let lowest = 1 - bias;
            let unit = top.max(lowest) - mantissa as i32;
            // The implicit leading one of a normal number increments the exponent.
            let code =
                (((top.max(lowest) - lowest) as i128) << mantissa) + round(magnitude, exponent, unit) as i128;
            let largest = match family {
                Family::Ieee => infinity as i128 - 1,
                Family::Fn => all as i128 - 1,
                _ => all as i128,
            };
            if code > largest {
                return too_large(negative);
            }
            if family == Family::Fnuz && code == 0 { 0 } else { sign(negative) | code as u64 }
        }
    }
}

pub(super) fn integer(value: Value, low: i128, high: i128) -> i128 {
    match value {
        Value::Nan { .. } => 0,
        Value::Infinite { negative } => [high, low][usize::from(negative)],
        Value::Finite { negative, magnitude, exponent } => {
            let whole = if exponent >= 0 {
                if magnitude != 0 && exponent as u32 + 128 - magnitude.leading_zeros() > 100 {
                    i128::MAX
                } else {
                    (magnitude as i128) << exponent.min(120)
                }
            } else {
                magnitude.checked_shr(exponent.unsigned_abs()).unwrap_or(0) as i128
            };
            (if negative { -whole } else { whole }).clamp(low, high)
        }
    }
}

pub(super) fn bits_of(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// The real and imaginary parts of an element in native order.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> (Value, Value) {
    let whole =
        |number: i128| Value::Finite { negative: number < 0, magnitude: number.unsigned_abs(), exponent: 0 };
    let bits = dtype.bits();
    let half = bytes.len() / 2;
    match dtype.kind() {
        DTypeKind::Bool => (whole((bytes[0] != 0).into()), ZERO),
        DTypeKind::Unsigned => (whole((bits_of(bytes) & (u64::MAX >> (64 - bits))).into()), ZERO),
        DTypeKind::Signed => (whole(((bits_of(bytes) << (64 - bits)) as i64 >> (64 - bits)).into()), ZERO),
        DTypeKind::Float => (decode_float(dtype, bits_of(bytes) & (u64::MAX >> (64 - bits))), ZERO),
        DTypeKind::Complex => {
            let real = if half == 4 { DType::Float32 } else { DType::Float64 };
            (decode(real, &bytes[..half]).0, decode(real, &bytes[half..]).0)
        }
    }
}

/// One element cast, by the table in `cast`.
pub(super) fn cast(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    if from == to && to != DType::Bool {
        return bytes.to_vec();
    }
    match (from, to) {
        (DType::Complex64, DType::Float32) | (DType::Complex128, DType::Float64) => {
            return bytes[..to.size()].to_vec();
        }
        (DType::Float32, DType::Complex64) | (DType::Float64, DType::Complex128) => {
            return [bytes, &vec![0; from.size()]].concat();
        }
        _ => {}
    }
    let (real, imaginary) = decode(from, bytes);
    let is_zero = |value| matches!(value, Value::Finite { magnitude: 0, .. });
    let bits = u32::from(to.bits());
    let take = |code: u64| code.to_le_bytes()[..to.size()].to_vec();
    match to.kind() {
        DTypeKind::Bool => vec![u8::from(!(is_zero(real) && is_zero(imaginary)))],
        DTypeKind::Unsigned | DTypeKind::Signed => {
            let (low, high) = match to.kind() {
                DTypeKind::Unsigned => (0, (1i128 << bits) - 1),
                _ => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            };
            let is_float = matches!(from.kind(), DTypeKind::Float | DTypeKind::Complex);
            let number =
                if is_float { integer(real, low, high) } else { integer(real, i128::MIN, i128::MAX) };
            let number = number as u64 & (u64::MAX >> (64 - bits));
            // Four bits are extended in their byte.
            take(if to == DType::Int4 && number > 7 { number | 0xf0 } else { number })
        }
        DTypeKind::Float => take(encode_float(to, real)),
        DTypeKind::Complex => {
            let part = if to == DType::Complex64 { DType::Float32 } else { DType::Float64 };
            let imaginary = if from.kind() == DTypeKind::Complex { imaginary } else { ZERO };
            let code = |value| encode_float(part, value).to_le_bytes()[..part.size()].to_vec();
            [code(real), code(imaginary)].concat()
        }
    }
}

/// Reverses the bytes of each unit.
pub(super) fn swapped(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(dtype.swap_unit()).flat_map(|unit| unit.iter().rev().copied()).collect()
}

/// The offset of each index, in row-major order.
pub(super) fn offsets(layout: &Layout) -> Vec<i64> {
    let mut all = vec![0];
    for (&n, &stride) in layout.shape().iter().zip(layout.strides()) {
        all = all.iter().flat_map(|o| (0..n).map(move |i| o + i * stride)).collect();
    }
    all
}
