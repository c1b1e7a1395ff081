//! Addition in every element type.
//!
//! Integers wrap, and booleans are combined by `or`. Types without native arithmetic are added as float32, and each sum is
//! rounded to the type, as NumPy and ml_dtypes do.

use super::number::{
    E2M1Fn, E2M3Fn, E3M2Fn, E3M4, E4M3, E4M3B11Fnuz, E4M3Fn, E4M3Fnuz, E5M2, E5M2Fnuz, E8M0Fnu, Small,
    decode_bf16, decode_f16, encode, encode_bf16, encode_f16,
};

/// An element type with addition.
pub(crate) trait Sum: Copy + Send + Sync {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($kind:ty => |$left:ident, $right:ident| $sum:expr;)*) => {$(
        impl Sum for $kind {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let ($left, $right) = (self, other);
                $sum
            }
        }
    )*};
}

/// A bool in a byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Boolean(u8);

/// A signed integer of four bits in a byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Signed4(i8);

/// An unsigned integer of four bits in a byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Unsigned4(u8);

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Float16(u16);

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct BFloat16(u16);

/// The bits of the sum of two float32, which are given by their bits.
#[inline(always)]
fn sum_of_bits(left: u32, right: u32) -> u32 {
    (f32::from_bits(left) + f32::from_bits(right)).to_bits()
}

sums! {
    u8 => |a, b| a.wrapping_add(b);
    u16 => |a, b| a.wrapping_add(b);
    u32 => |a, b| a.wrapping_add(b);
    u64 => |a, b| a.wrapping_add(b);
    f32 => |a, b| a + b;
    f64 => |a, b| a + b;
    [f32; 2] => |a, b| [a[0] + b[0], a[1] + b[1]];
    [f64; 2] => |a, b| [a[0] + b[0], a[1] + b[1]];
    Boolean => |a, b| Self(u8::from(a.0 != 0 || b.0 != 0));
    Signed4 => |a, b| Self(a.0.wrapping_add(b.0) << 4 >> 4);
    Unsigned4 => |a, b| Self(a.0.wrapping_add(b.0) & 0xf);
    Float16 => |a, b| Self(encode_f16(sum_of_bits(decode_f16(a.0), decode_f16(b.0))));
    BFloat16 => |a, b| Self(encode_bf16(sum_of_bits(decode_bf16(a.0), decode_bf16(b.0))));
}

/// Calls a generic function with the [`Sum`] type of a dtype.
macro_rules! dispatch_sum {
    ($dtype:expr, $call:ident($($argument:expr),*)) => {{
        use $crate::dtype::DType;
        use $crate::pack::add;
        match $dtype {
            DType::Bool => $call::<add::Boolean>($($argument),*),
            DType::Int4 => $call::<add::Signed4>($($argument),*),
            DType::UInt4 => $call::<add::Unsigned4>($($argument),*),
            DType::Int8 | DType::UInt8 => $call::<u8>($($argument),*),
            DType::Int16 | DType::UInt16 => $call::<u16>($($argument),*),
            DType::Int32 | DType::UInt32 => $call::<u32>($($argument),*),
            DType::Int64 | DType::UInt64 => $call::<u64>($($argument),*),
            DType::Float16 => $call::<add::Float16>($($argument),*),
            DType::BFloat16 => $call::<add::BFloat16>($($argument),*),
            DType::Float32 => $call::<f32>($($argument),*),
            DType::Float64 => $call::<f64>($($argument),*),
            DType::Complex64 => $call::<[f32; 2]>($($argument),*),
            DType::Complex128 => $call::<[f64; 2]>($($argument),*),
            DType::Float8E3M4 => $call::<add::E3M4Float>($($argument),*),
            DType::Float8E4M3 => $call::<add::E4M3Float>($($argument),*),
            DType::Float8E4M3B11Fnuz => $call::<add::E4M3B11FnuzFloat>($($argument),*),
            DType::Float8E4M3Fn => $call::<add::E4M3FnFloat>($($argument),*),
            DType::Float8E4M3Fnuz => $call::<add::E4M3FnuzFloat>($($argument),*),
            DType::Float8E5M2 => $call::<add::E5M2Float>($($argument),*),
            DType::Float8E5M2Fnuz => $call::<add::E5M2FnuzFloat>($($argument),*),
            DType::Float8E8M0Fnu => $call::<add::E8M0FnuFloat>($($argument),*),
            DType::Float6E2M3Fn => $call::<add::E2M3FnFloat>($($argument),*),
            DType::Float6E3M2Fn => $call::<add::E3M2FnFloat>($($argument),*),
            DType::Float4E2M1Fn => $call::<add::E2M1FnFloat>($($argument),*),
        }
    }};
}
pub(crate) use dispatch_sum;

/// Defines the sums of floats of at most eight bits.
macro_rules! small_floats {
    ($($name:ident = $format:ident;)*) => {$(
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(u8);

        impl Sum for $name {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let value = |code: u8| <$format as Small>::VALUES[usize::from(code)];
                Self(encode::<$format>(sum_of_bits(value(self.0), value(other.0))))
            }
        }
    )*};
}

small_floats! {
    E3M4Float = E3M4;
    E4M3Float = E4M3;
    E4M3B11FnuzFloat = E4M3B11Fnuz;
    E4M3FnFloat = E4M3Fn;
    E4M3FnuzFloat = E4M3Fnuz;
    E5M2Float = E5M2;
    E5M2FnuzFloat = E5M2Fnuz;
    E8M0FnuFloat = E8M0Fnu;
    E2M3FnFloat = E2M3Fn;
    E3M2FnFloat = E3M2Fn;
    E2M1FnFloat = E2M1Fn;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_integers_wrap_within_their_bits() {
        assert_eq!(Signed4(7).plus(Signed4(1)).0, -8);
        assert_eq!(Signed4(-8).plus(Signed4(-1)).0, 7);
        assert_eq!(Unsigned4(15).plus(Unsigned4(2)).0, 1);
    }

    #[test]
    fn booleans_are_combined_by_or() {
        for (left, right) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert_eq!(Boolean(left).plus(Boolean(right)).0, left | right);
        }
    }

    #[test]
    fn each_sum_is_rounded_to_the_type() {
        // 2048 is the first float16 whose successor is two away.
        let (large, one) = (Float16(0x6800), Float16(0x3c00));
        assert_eq!(large.plus(one).plus(one).0, 0x6800);
        let (large, one) = (BFloat16(0x4380), BFloat16(0x3f80));
        assert_eq!(large.plus(one).0, 0x4380);
        // 1.5 + 1.5 of float8_e4m3fn.
        let half = E4M3FnFloat(0x3c);
        assert_eq!(half.plus(half).0, 0x44);
    }
}
