//! The inner loops of casts, over contiguous elements.
//!
//! A kernel is a loop over [`Cast::cast`], compiled twice: for every processor of the target, and for one with AVX2. The
//! kernel is selected at run time. Both have the same source of integer operations and single IEEE operations, which the
//! compiler may not reorder or fuse, so their results are identical. The exceptions are conversions between floats by
//! vector instructions in `cast_avx2`, which are tested over every float16 and millions of others.
//!
//! There are kernels only for the steps of a cast, not for each of the 784 pairs: `cast` chains them.

use super::number::{self, Small};
#[cfg(target_arch = "x86_64")]
use super::{cast_avx2, cpu_features};
use crate::dtype::{DType, DTypeKind};
use std::marker::PhantomData;

/// Converts `n` elements at the first address to `n` elements at the second.
///
/// Calling one is unsafe: both addresses must be valid for `n` elements of their types and must not overlap. They need not
/// be aligned.
pub(super) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// The conversion of one element to another type.
///
/// Elements are read from and written to memory as whole values. Their types therefore have the layout of the number that they
/// are (`repr(transparent)`), or of a pair of numbers (`repr(C)`), and every bit pattern is a value.
trait Cast<To>: Copy {
    fn cast(self) -> To;
}

/// A bool: zero or one as a result, and any byte but zero is true as a source.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Boolean(u8);
/// A float16.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Float16(u16);
/// A bfloat16.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct BFloat16(u16);
/// A float of at most eight bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Code<S>(u8, PhantomData<S>);
/// A float32 that was rounded to odd, so that it may be rounded once more.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Odd(f32);
/// A complex number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<T>(T, T);
/// The low four bits of a byte, sign-extended.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Int4(i8);
/// The low four bits of a byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct UInt4(u8);
/// An element with its bytes reversed.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Swapped<T>(T);

macro_rules! casts {
    ($($from:ty => $to:ty, $value:ident: $body:expr;)*) => {$(
        impl Cast<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                let $value = self;
                $body
            }
        }
    )*};
}

/// Casts by Rust's `as`: integers wrap, floats truncate and saturate, NaN becomes zero, and integers become the nearest
/// float.
macro_rules! as_casts {
    ($($from:ty => $($to:ty)*;)*) => {$($(casts! { $from => $to, value: value as $to; })*)*};
}

as_casts! {
    u8 => u16 u32 u64 f32 f64;
    i8 => u16 u32 u64 f32 f64;
    u16 => u8 u32 u64 f32 f64;
    i16 => u32 u64 f32 f64;
    u32 => u8 u16 u64 f32 f64;
    i32 => u64 f32 f64;
    u64 => u8 u16 u32 f32 f64;
    i64 => f32 f64;
    f32 => u8 i8 u16 i16 u32 i32 u64 i64;
    f64 => u8 i8 u16 i16 u32 i32 u64 i64;
}

casts! {
    f32 => f64, value: number::widen(value);
    f64 => f32, value: number::narrow(value);
    u32 => Odd, value: Odd(number::odd_from_f64(f64::from(value)));
    i32 => Odd, value: Odd(number::odd_from_f64(f64::from(value)));
    u64 => Odd, value: Odd(number::odd_from_u64(value));
    i64 => Odd, value: Odd(number::odd_from_i64(value));
    f64 => Odd, value: Odd(number::odd_from_f64(value));
    f32 => Float16, value: Float16(number::encode_f16(value.to_bits()));
    f32 => BFloat16, value: BFloat16(number::encode_bf16(value.to_bits()));
    Float16 => f32, value: f32::from_bits(number::decode_f16(value.0));
    BFloat16 => f32, value: f32::from_bits(number::decode_bf16(value.0));
    Boolean => u8, value: u8::from(value.0 != 0);
    u8 => Boolean, value: Boolean(u8::from(value != 0));
    u16 => Boolean, value: Boolean(u8::from(value != 0));
    u32 => Boolean, value: Boolean(u8::from(value != 0));
    u64 => Boolean, value: Boolean(u8::from(value != 0));
    f32 => Boolean, value: Boolean(u8::from(value != 0.0));
    f64 => Boolean, value: Boolean(u8::from(value != 0.0));
    Pair<f32> => Boolean, value: Boolean(u8::from(value.0 != 0.0 || value.1 != 0.0));
    Pair<f64> => Boolean, value: Boolean(u8::from(value.0 != 0.0 || value.1 != 0.0));
    f32 => Pair<f32>, value: Pair(value, 0.0);
    f64 => Pair<f64>, value: Pair(value, 0.0);
    // From a byte that an integer wrapped to, or whose upper four bits are unused.
    u8 => Int4, value: Int4((value << 4) as i8 >> 4);
    u8 => UInt4, value: UInt4(value & 15);
    // From a byte that a float saturated to.
    i8 => Int4, value: Int4(value.clamp(-8, 7));
    i8 => UInt4, value: UInt4(value.clamp(0, 15) as u8);
    u16 => Swapped<u16>, value: Swapped(value.swap_bytes());
    u32 => Swapped<u32>, value: Swapped(value.swap_bytes());
    u64 => Swapped<u64>, value: Swapped(value.swap_bytes());
    Pair<u32> => Swapped<Pair<u32>>, value: Swapped(Pair(value.0.swap_bytes(), value.1.swap_bytes()));
    Pair<u64> => Swapped<Pair<u64>>, value: Swapped(Pair(value.0.swap_bytes(), value.1.swap_bytes()));
}

impl<S: Small> Cast<Code<S>> for f32 {
    #[inline(always)]
    fn cast(self) -> Code<S> {
        Code(number::encode::<S>(self.to_bits()), PhantomData)
    }
}

impl<S: Small> Cast<f32> for Code<S> {
    #[inline(always)]
    fn cast(self) -> f32 {
        let values = const { &S::VALUES };
        f32::from_bits(values[usize::from(self.0)])
    }
}

/// The loop of all kernels.
///
/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn cast_each<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    let (from, to) = (from.cast::<From>(), to.cast::<To>());
    for i in 0..n {
        // SAFETY: `i` is below `n`, so element `i` is readable at the first address and writable at the second (the contract of
        // `Kernel`). The accesses need no alignment, and every bit pattern is a value of `From` (see `Cast`).
        unsafe { to.add(i).write_unaligned(from.add(i).read_unaligned().cast()) }
    }
}

/// [`cast_each`] for every processor.
///
/// # Safety
/// As [`Kernel`].
unsafe fn cast_portable<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: both addresses are valid for `n` elements of their types and do not overlap (the contract of both functions).
    unsafe { cast_each::<From, To>(from, to, n) }
}

/// [`cast_each`] compiled for AVX2.
///
/// # Safety
/// As [`Kernel`], and the processor must have these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn cast_avx2<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: both addresses are valid for `n` elements of their types and do not overlap (the contract of both functions).
    unsafe { cast_each::<From, To>(from, to, n) }
}

/// Selects the kernel from one type to another for this processor.
fn select<From: Cast<To>, To: Copy>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if cpu_features::has_avx2() {
        return cast_avx2::<From, To>;
    }
    cast_portable::<From, To>
}

/// Reverses the bytes of each element; `None` if an element is one byte.
pub(super) fn swap_bytes(dtype: DType) -> Option<Kernel> {
    Some(match (dtype.swap_unit(), dtype.kind()) {
        (4, DTypeKind::Complex) => select::<Pair<u32>, Swapped<Pair<u32>>>(),
        (8, DTypeKind::Complex) => select::<Pair<u64>, Swapped<Pair<u64>>>(),
        (2, _) => select::<u16, Swapped<u16>>(),
        (4, _) => select::<u32, Swapped<u32>>(),
        (8, _) => select::<u64, Swapped<u64>>(),
        _ => return None,
    })
}

macro_rules! small_formats {
    ($dtype:expr, $make:ident) => {
        match $dtype {
            DType::Float8E3M4 => $make!(number::E3M4),
            DType::Float8E4M3 => $make!(number::E4M3),
            DType::Float8E4M3B11Fnuz => $make!(number::E4M3B11Fnuz),
            DType::Float8E4M3Fn => $make!(number::E4M3Fn),
            DType::Float8E4M3Fnuz => $make!(number::E4M3Fnuz),
            DType::Float8E5M2 => $make!(number::E5M2),
            DType::Float8E5M2Fnuz => $make!(number::E5M2Fnuz),
            DType::Float8E8M0Fnu => $make!(number::E8M0Fnu),
            DType::Float6E2M3Fn => $make!(number::E2M3Fn),
            DType::Float6E3M2Fn => $make!(number::E3M2Fn),
            DType::Float4E2M1Fn => $make!(number::E2M1Fn),
            _ => return None,
        }
    };
}

/// Decodes a type without native arithmetic to a native type that represents its values exactly; returns that type too.
pub(super) fn decode(from: DType) -> Option<(Kernel, DType)> {
    macro_rules! small {
        ($format:ty) => {
            select::<Code<$format>, f32>()
        };
    }
    Some(match from {
        DType::Bool => (select::<Boolean, u8>(), DType::UInt8),
        DType::Int4 => (select::<u8, Int4>(), DType::Int8),
        DType::UInt4 => (select::<u8, UInt4>(), DType::UInt8),
        #[cfg(target_arch = "x86_64")]
        DType::Float16 if cpu_features::has_avx2() => (cast_avx2::decode_f16, DType::Float32),
        DType::Float16 => (select::<Float16, f32>(), DType::Float32),
        DType::BFloat16 => (select::<BFloat16, f32>(), DType::Float32),
        _ => (small_formats!(from, small), DType::Float32),
    })
}

/// Encodes float32, exact or rounded to odd, as a narrower float.
pub(super) fn encode(to: DType) -> Option<Kernel> {
    macro_rules! small {
        ($format:ty) => {
            select::<f32, Code<$format>>()
        };
    }
    Some(match to {
        #[cfg(target_arch = "x86_64")]
        DType::Float16 if cpu_features::has_avx2() => cast_avx2::encode_f16,
        #[cfg(target_arch = "x86_64")]
        DType::BFloat16 if cpu_features::has_avx2() => cast_avx2::encode_bf16,
        DType::Float16 => select::<f32, Float16>(),
        DType::BFloat16 => select::<f32, BFloat16>(),
        _ => small_formats!(to, small),
    })
}

/// Converts to float32 with rounding to odd: the last bit is set if the conversion is inexact.
pub(super) fn round_to_odd(from: DType) -> Option<Kernel> {
    Some(match from {
        DType::UInt32 => select::<u32, Odd>(),
        DType::Int32 => select::<i32, Odd>(),
        DType::UInt64 => select::<u64, Odd>(),
        DType::Int64 => select::<i64, Odd>(),
        DType::Float64 => select::<f64, Odd>(),
        // Float32 represents the others exactly.
        _ => return convert_number(from, DType::Float32),
    })
}

/// Converts the low bits of an integer (`UInt8`) or a saturated float (`Int8`) to four bits.
pub(super) fn to_four_bits(from: DType, to: DType) -> Option<Kernel> {
    Some(match (from, to) {
        (DType::UInt8, DType::Int4) => select::<u8, Int4>(),
        (DType::UInt8, DType::UInt4) => select::<u8, UInt4>(),
        (DType::Int8, DType::Int4) => select::<i8, Int4>(),
        (DType::Int8, DType::UInt4) => select::<i8, UInt4>(),
        _ => return None,
    })
}

/// Converts to bool: whether an element is not zero.
pub(super) fn to_bool(from: DType) -> Option<Kernel> {
    Some(match from {
        DType::Float32 => select::<f32, Boolean>(),
        DType::Float64 => select::<f64, Boolean>(),
        DType::Complex64 => select::<Pair<f32>, Boolean>(),
        DType::Complex128 => select::<Pair<f64>, Boolean>(),
        _ => match from.size() {
            1 => select::<u8, Boolean>(),
            2 => select::<u16, Boolean>(),
            4 => select::<u32, Boolean>(),
            _ => select::<u64, Boolean>(),
        },
    })
}

/// Converts a real float to the complex type of the same precision.
pub(super) fn to_complex(from: DType) -> Option<Kernel> {
    match from {
        DType::Float32 => Some(select::<f32, Pair<f32>>()),
        DType::Float64 => Some(select::<f64, Pair<f64>>()),
        _ => None,
    }
}

/// Converts between native integers and floats; `None` if the bytes are the same already.
///
/// Integers wrap, so a signed target gets the same bytes as an unsigned one, and only the sign of the source matters.
pub(super) fn convert_number(from: DType, to: DType) -> Option<Kernel> {
    let to = match to {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 if from.kind() != DTypeKind::Float => {
            to.bits_type()?
        }
        _ => to,
    };
    let narrows =
        from.kind() == DTypeKind::Signed && to.kind() == DTypeKind::Unsigned && to.size() < from.size();
    let from = if narrows { from.bits_type()? } else { from };
    #[cfg(target_arch = "x86_64")]
    match (from, to) {
        (DType::Float64, DType::Float32) if cpu_features::has_avx2() => return Some(cast_avx2::narrow),
        (DType::Float32, DType::Float64) if cpu_features::has_avx2() => return Some(cast_avx2::widen),
        _ => {}
    }
    macro_rules! kernels {
        ($($from:ident $source:ty => $($to:ident $target:ty)*;)*) => {
            match (from, to) {
                $($((DType::$from, DType::$to) => select::<$source, $target>(),)*)*
                _ => return None,
            }
        };
    }
    Some(kernels! {
        UInt8 u8 => UInt16 u16 UInt32 u32 UInt64 u64 Float32 f32 Float64 f64;
        Int8 i8 => UInt16 u16 UInt32 u32 UInt64 u64 Float32 f32 Float64 f64;
        UInt16 u16 => UInt8 u8 UInt32 u32 UInt64 u64 Float32 f32 Float64 f64;
        Int16 i16 => UInt32 u32 UInt64 u64 Float32 f32 Float64 f64;
        UInt32 u32 => UInt8 u8 UInt16 u16 UInt64 u64 Float32 f32 Float64 f64;
        Int32 i32 => UInt64 u64 Float32 f32 Float64 f64;
        UInt64 u64 => UInt8 u8 UInt16 u16 UInt32 u32 Float32 f32 Float64 f64;
        Int64 i64 => Float32 f32 Float64 f64;
        Float32 f32 => UInt8 u8 Int8 i8 UInt16 u16 Int16 i16 UInt32 u32 Int32 i32 UInt64 u64 Int64 i64 Float64 f64;
        Float64 f64 => UInt8 u8 Int8 i8 UInt16 u16 Int16 i16 UInt32 u32 Int32 i32 UInt64 u64 Int64 i64 Float32 f32;
    })
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    /// Random bits, and all 65,536 patterns in the top half of a word: every sign, exponent and kind of NaN.
    fn patterns() -> Vec<u8> {
        let mut state = 1u64;
        let mut words = Vec::new();
        for top in 0..if cfg!(miri) { 64 } else { 1u64 << 16 } {
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                words.push(top << 48 | state >> 16);
                words.push(state ^ state >> 31);
                // Ties and their neighbours, for float32 in each half.
                let tie = |bits: u64| (bits & 0xffff_f000) + 0x1000 + (state >> 60) - 8;
                words.push(tie(state >> 32) << 32 | tie(state & 0xffff_ffff));
                words.push(top << 48 | top << 32 | top << 16 | top);
            }
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn compare(name: &str, (from, to): (usize, usize), patterns: &[u8], one: Kernel, other: Kernel) {
        // One short of the whole, from one byte on: neither aligned nor a multiple of a vector.
        let n = patterns.len() / from - 1;
        let (mut first, mut second) = (vec![0u8; n * to], vec![1u8; n * to]);
        // SAFETY: `n` elements from the second byte on are within the patterns, and each result has room for `n`. The tests
        // return early if the processor lacks the features.
        unsafe {
            one(patterns.as_ptr().add(1), first.as_mut_ptr(), n);
            other(patterns.as_ptr().add(1), second.as_mut_ptr(), n);
        }
        let difference = first.iter().zip(&second).position(|(a, b)| a != b).map(|byte| byte / to);
        if let Some(i) = difference {
            let bytes = &patterns[1 + i * from..1 + (i + 1) * from];
            panic!("{name}: {bytes:x?} is {:x?} and {:x?}", &first[i * to..][..to], &second[i * to..][..to]);
        }
    }

    fn check_agreement<From: Cast<To>, To: Copy>(patterns: &[u8]) {
        let sizes = (size_of::<From>(), size_of::<To>());
        compare(
            std::any::type_name::<(From, To)>(),
            sizes,
            patterns,
            cast_portable::<From, To>,
            cast_avx2::<From, To>,
        );
    }

    #[test]
    fn vectorised_kernels_are_exact() {
        if !cpu_features::has_avx2() {
            return;
        }
        let patterns = patterns();
        macro_rules! all {
            ($($from:ty => $($to:ty)*;)*) => {$($(check_agreement::<$from, $to>(&patterns);)*)*};
        }
        all! {
            u8 => u16 u32 u64 f32 f64 Boolean Int4 UInt4;
            i8 => u16 u32 u64 f32 f64 Int4 UInt4;
            u16 => u8 u32 u64 f32 f64 Boolean Swapped<u16>;
            i16 => u32 u64 f32 f64;
            u32 => u8 u16 u64 f32 f64 Odd Boolean Swapped<u32>;
            i32 => u64 f32 f64 Odd;
            u64 => u8 u16 u32 f32 f64 Odd Boolean Swapped<u64>;
            i64 => f32 f64 Odd;
            f32 => u8 i8 u16 i16 u32 i32 u64 i64 f64 Boolean Float16 BFloat16 Pair<f32>;
            f64 => u8 i8 u16 i16 u32 i32 u64 i64 f32 Odd Boolean Pair<f64>;
            f32 => Code<number::E3M4> Code<number::E4M3> Code<number::E4M3B11Fnuz> Code<number::E4M3Fn>;
            f32 => Code<number::E4M3Fnuz> Code<number::E5M2> Code<number::E5M2Fnuz> Code<number::E8M0Fnu>;
            f32 => Code<number::E2M3Fn> Code<number::E3M2Fn> Code<number::E2M1Fn>;
            Float16 => f32;
            BFloat16 => f32;
            Boolean => u8;
            Pair<f32> => Boolean;
            Pair<f64> => Boolean;
            Pair<u32> => Swapped<Pair<u32>>;
            Pair<u64> => Swapped<Pair<u64>>;
        }
    }

    #[test]
    fn vector_instructions_are_exact() {
        if !cpu_features::has_avx2() {
            return;
        }
        let patterns = patterns();
        compare("float16", (4, 2), &patterns, cast_avx2::encode_f16, cast_portable::<f32, Float16>);
        compare("from float16", (2, 4), &patterns, cast_avx2::decode_f16, cast_portable::<Float16, f32>);
        compare("bfloat16", (4, 2), &patterns, cast_avx2::encode_bf16, cast_portable::<f32, BFloat16>);
        compare("narrow", (8, 4), &patterns, cast_avx2::narrow, cast_portable::<f64, f32>);
        compare("widen", (4, 8), &patterns, cast_avx2::widen, cast_portable::<f32, f64>);
    }
}
