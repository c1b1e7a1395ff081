//! The inner loops: `n` elements that lie one after the other, from one type to another.
//!
//! A kernel is one trivial loop over [`Cast::cast`], compiled twice: for the machine that every build runs
//! on, and for one with AVX2 and F16C, chosen when a kernel is asked for. Both are the same source, integer
//! operations and single IEEE operations that the compiler may not reorder or fuse, so their results are the
//! same bits. The exceptions, conversions between floats by the machine's instructions, have a file of their
//! own, `vector`, and tests over every float16 and millions of others.
//!
//! There is a kernel where a type is really turned into another, not for each of the 784 pairs: `cast` chains
//! them.

use super::number::{self, Small};
#[cfg(target_arch = "x86_64")]
use super::vector;
use crate::dtype::{DType, DTypeKind};
use std::marker::PhantomData;

/// Turns `n` elements at the first address into `n` at the second.
///
/// Calling one is unsafe: the two must be valid for `n` elements of their types, and must not overlap. They
/// need not be aligned.
pub(super) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// One element turned into another type.
trait Cast<To>: Copy {
    fn cast(self) -> To;
}

/// A truth value: zero or one going out, anything but zero counting as one coming in.
#[derive(Clone, Copy)]
struct Truth(u8);
/// A float16.
#[derive(Clone, Copy)]
struct Half(u16);
/// A bfloat16.
#[derive(Clone, Copy)]
struct Brain(u16);
/// A float of at most eight bits.
#[derive(Clone, Copy)]
struct Code<S>(u8, PhantomData<S>);
/// A float32 that was rounded to odd, so that it may be rounded once more.
#[derive(Clone, Copy)]
struct Odd(#[expect(dead_code, reason = "written to memory whole, and read as f32")] f32);
/// A complex number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<T>(T, T);
/// The low four bits of a byte, sign-extended.
#[derive(Clone, Copy)]
struct Int4(#[expect(dead_code, reason = "written to memory whole")] i8);
/// The low four bits of a byte.
#[derive(Clone, Copy)]
struct UInt4(#[expect(dead_code, reason = "written to memory whole")] u8);
/// Bytes the other way round.
#[derive(Clone, Copy)]
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

/// Where the language's own conversion is the right one: integers wrap, floats are cut and saturate, NaN
/// becomes zero, and integers become the nearest float.
macro_rules! plain_casts {
    ($($from:ty => $($to:ty)*;)*) => {$($(casts! { $from => $to, value: value as $to; })*)*};
}

plain_casts! {
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
    f32 => Half, value: Half(number::encode_f16(value.to_bits()));
    f32 => Brain, value: Brain(number::encode_bf16(value.to_bits()));
    Half => f32, value: f32::from_bits(number::decode_f16(value.0));
    Brain => f32, value: f32::from_bits(number::decode_bf16(value.0));
    Truth => u8, value: u8::from(value.0 != 0);
    u8 => Truth, value: Truth(u8::from(value != 0));
    u16 => Truth, value: Truth(u8::from(value != 0));
    u32 => Truth, value: Truth(u8::from(value != 0));
    u64 => Truth, value: Truth(u8::from(value != 0));
    f32 => Truth, value: Truth(u8::from(value != 0.0));
    f64 => Truth, value: Truth(u8::from(value != 0.0));
    Pair<f32> => Truth, value: Truth(u8::from(value.0 != 0.0 || value.1 != 0.0));
    Pair<f64> => Truth, value: Truth(u8::from(value.0 != 0.0 || value.1 != 0.0));
    f32 => Pair<f32>, value: Pair(value, 0.0);
    f64 => Pair<f64>, value: Pair(value, 0.0);
    // From a byte that an integer wrapped to, or that may have stray bits above the four.
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

/// The loop itself.
///
/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn each<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    let (from, to) = (from.cast::<From>(), to.cast::<To>());
    for i in 0..n {
        // SAFETY: the caller vouches for `n` elements at both addresses; unaligned reads and writes ask no
        // more.
        unsafe { to.add(i).write_unaligned(from.add(i).read_unaligned().cast()) }
    }
}

/// [`each`] for any machine.
///
/// # Safety
/// As [`Kernel`].
unsafe fn plain<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's contract is the same.
    unsafe { each::<From, To>(from, to, n) }
}

/// [`each`] with the vector instructions of the last ten years.
///
/// # Safety
/// As [`Kernel`], and the machine must have these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide<From: Cast<To>, To: Copy>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's contract is the same.
    unsafe { each::<From, To>(from, to, n) }
}

/// Whether the machine has what [`wide`] and `vector` need.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("f16c") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}

/// The kernel from one type to another for this machine.
fn kernel<From: Cast<To>, To: Copy>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if is_wide() {
        return wide::<From, To>;
    }
    plain::<From, To>
}

/// The kernel that turns the bytes of each element around; `None` where an element is one byte.
pub(super) fn swap(dtype: DType) -> Option<Kernel> {
    Some(match (dtype.swap_unit(), dtype.kind()) {
        (4, DTypeKind::Complex) => kernel::<Pair<u32>, Swapped<Pair<u32>>>(),
        (8, DTypeKind::Complex) => kernel::<Pair<u64>, Swapped<Pair<u64>>>(),
        (2, _) => kernel::<u16, Swapped<u16>>(),
        (4, _) => kernel::<u32, Swapped<u32>>(),
        (8, _) => kernel::<u64, Swapped<u64>>(),
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

/// From a type that the machine cannot compute with to the one that holds its values exactly, with that
/// type's name.
pub(super) fn decode(from: DType) -> Option<(Kernel, DType)> {
    macro_rules! small {
        ($format:ty) => {
            kernel::<Code<$format>, f32>()
        };
    }
    Some(match from {
        DType::Bool => (kernel::<Truth, u8>(), DType::UInt8),
        DType::Int4 => (kernel::<u8, Int4>(), DType::Int8),
        DType::UInt4 => (kernel::<u8, UInt4>(), DType::UInt8),
        #[cfg(target_arch = "x86_64")]
        DType::Float16 if is_wide() => (vector::decode_f16, DType::Float32),
        DType::Float16 => (kernel::<Half, f32>(), DType::Float32),
        DType::BFloat16 => (kernel::<Brain, f32>(), DType::Float32),
        _ => (small_formats!(from, small), DType::Float32),
    })
}

/// From float32, exact or rounded to odd, to a narrower float.
pub(super) fn encode(to: DType) -> Option<Kernel> {
    macro_rules! small {
        ($format:ty) => {
            kernel::<f32, Code<$format>>()
        };
    }
    Some(match to {
        #[cfg(target_arch = "x86_64")]
        DType::Float16 if is_wide() => vector::encode_f16,
        #[cfg(target_arch = "x86_64")]
        DType::BFloat16 if is_wide() => vector::encode_bf16,
        DType::Float16 => kernel::<f32, Half>(),
        DType::BFloat16 => kernel::<f32, Brain>(),
        _ => small_formats!(to, small),
    })
}

/// To float32 with a last bit that says whether anything was lost.
pub(super) fn odd(from: DType) -> Option<Kernel> {
    Some(match from {
        DType::UInt32 => kernel::<u32, Odd>(),
        DType::Int32 => kernel::<i32, Odd>(),
        DType::UInt64 => kernel::<u64, Odd>(),
        DType::Int64 => kernel::<i64, Odd>(),
        DType::Float64 => kernel::<f64, Odd>(),
        // The others fit in a float32.
        _ => return wide_number(from, DType::Float32),
    })
}

/// From the low bits of an integer (`UInt8`), or from a saturated float (`Int8`), to four bits.
pub(super) fn four_bits(from: DType, to: DType) -> Option<Kernel> {
    Some(match (from, to) {
        (DType::UInt8, DType::Int4) => kernel::<u8, Int4>(),
        (DType::UInt8, DType::UInt4) => kernel::<u8, UInt4>(),
        (DType::Int8, DType::Int4) => kernel::<i8, Int4>(),
        (DType::Int8, DType::UInt4) => kernel::<i8, UInt4>(),
        _ => return None,
    })
}

/// Whether an element is anything but zero.
pub(super) fn truth(from: DType) -> Option<Kernel> {
    Some(match from {
        DType::Float32 => kernel::<f32, Truth>(),
        DType::Float64 => kernel::<f64, Truth>(),
        DType::Complex64 => kernel::<Pair<f32>, Truth>(),
        DType::Complex128 => kernel::<Pair<f64>, Truth>(),
        _ => match from.size() {
            1 => kernel::<u8, Truth>(),
            2 => kernel::<u16, Truth>(),
            4 => kernel::<u32, Truth>(),
            _ => kernel::<u64, Truth>(),
        },
    })
}

/// From a real float to the complex type of the same width.
pub(super) fn pair(from: DType) -> Option<Kernel> {
    match from {
        DType::Float32 => Some(kernel::<f32, Pair<f32>>()),
        DType::Float64 => Some(kernel::<f64, Pair<f64>>()),
        _ => None,
    }
}

/// Between the integers and floats that the machine has; `None` where the bytes are the same already.
///
/// Integers wrap, so a signed target takes the same bytes as an unsigned one and only the source's sign
/// matters.
pub(super) fn wide_number(from: DType, to: DType) -> Option<Kernel> {
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
        (DType::Float64, DType::Float32) if is_wide() => return Some(vector::narrow),
        (DType::Float32, DType::Float64) if is_wide() => return Some(vector::widen),
        _ => {}
    }
    macro_rules! kernels {
        ($($from:ident $source:ty => $($to:ident $target:ty)*;)*) => {
            match (from, to) {
                $($((DType::$from, DType::$to) => kernel::<$source, $target>(),)*)*
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
        // SAFETY: `n` elements from the second byte on lie within the patterns, and the results hold `n`. The
        // features were checked by the callers.
        unsafe {
            one(patterns.as_ptr().add(1), first.as_mut_ptr(), n);
            other(patterns.as_ptr().add(1), second.as_mut_ptr(), n);
        }
        let place = first.iter().zip(&second).position(|(a, b)| a != b).map(|byte| byte / to);
        if let Some(i) = place {
            let bytes = &patterns[1 + i * from..1 + (i + 1) * from];
            panic!("{name}: {bytes:x?} is {:x?} and {:x?}", &first[i * to..][..to], &second[i * to..][..to]);
        }
    }

    fn alike<From: Cast<To>, To: Copy>(patterns: &[u8]) {
        let sizes = (size_of::<From>(), size_of::<To>());
        compare(std::any::type_name::<(From, To)>(), sizes, patterns, plain::<From, To>, wide::<From, To>);
    }

    #[test]
    fn vectors_change_no_bit() {
        if !is_wide() {
            return;
        }
        let patterns = patterns();
        macro_rules! all {
            ($($from:ty => $($to:ty)*;)*) => {$($(alike::<$from, $to>(&patterns);)*)*};
        }
        all! {
            u8 => u16 u32 u64 f32 f64 Truth Int4 UInt4;
            i8 => u16 u32 u64 f32 f64 Int4 UInt4;
            u16 => u8 u32 u64 f32 f64 Truth Swapped<u16>;
            i16 => u32 u64 f32 f64;
            u32 => u8 u16 u64 f32 f64 Odd Truth Swapped<u32>;
            i32 => u64 f32 f64 Odd;
            u64 => u8 u16 u32 f32 f64 Odd Truth Swapped<u64>;
            i64 => f32 f64 Odd;
            f32 => u8 i8 u16 i16 u32 i32 u64 i64 f64 Truth Half Brain Pair<f32>;
            f64 => u8 i8 u16 i16 u32 i32 u64 i64 f32 Odd Truth Pair<f64>;
            f32 => Code<number::E3M4> Code<number::E4M3> Code<number::E4M3B11Fnuz> Code<number::E4M3Fn>;
            f32 => Code<number::E4M3Fnuz> Code<number::E5M2> Code<number::E5M2Fnuz> Code<number::E8M0Fnu>;
            f32 => Code<number::E2M3Fn> Code<number::E3M2Fn> Code<number::E2M1Fn>;
            Half => f32;
            Brain => f32;
            Truth => u8;
            Pair<f32> => Truth;
            Pair<f64> => Truth;
            Pair<u32> => Swapped<Pair<u32>>;
            Pair<u64> => Swapped<Pair<u64>>;
        }
    }

    #[test]
    fn the_machines_conversions_change_no_bit() {
        if !is_wide() {
            return;
        }
        let patterns = patterns();
        compare("float16", (4, 2), &patterns, vector::encode_f16, plain::<f32, Half>);
        compare("from float16", (2, 4), &patterns, vector::decode_f16, plain::<Half, f32>);
        compare("bfloat16", (4, 2), &patterns, vector::encode_bf16, plain::<f32, Brain>);
        compare("narrow", (8, 4), &patterns, vector::narrow, plain::<f64, f32>);
        compare("widen", (4, 8), &patterns, vector::widen, plain::<f32, f64>);
    }
}
