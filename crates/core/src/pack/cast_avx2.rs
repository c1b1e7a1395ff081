//! The few kernels in which the machine's own instructions beat what the compiler makes of the plain loop.
//!
//! They are float32 to and from float16, float64 and bfloat16. The conversions of the machine round to nearest
//! even (the mode that the language assumes, or asked for in the instruction), keep subnormals, and make a NaN
//! quiet with its sign and the top of its payload: the same bits as the functions of [`number`], which finish
//! what the vectors do not divide. The compiler may not use them for those functions, because the language
//! leaves the bits of a NaN open.

use super::number;
use std::arch::x86_64::*;

/// A kernel of whole vectors of eight elements, and one element at a time for the rest.
///
/// The body gets the places of eight elements, source and target.
macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, |$source:ident, $target:ident| $body:block, $one:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As a [`Kernel`](super::kernel::Kernel), and the machine must have AVX2 and F16C.
        #[target_feature(enable = "avx2,f16c")]
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, n: usize) {
            let (from, to) = (from.cast::<$from>(), to.cast::<$to>());
            let whole = n - n % 8;
            for i in (0..whole).step_by(8) {
                // SAFETY: elements `i..i + 8` are within the `n` that the caller vouches for; the operations
                // are unaligned ones.
                unsafe {
                    let ($source, $target) = (from.add(i), to.add(i));
                    $body
                }
            }
            for i in whole..n {
                // SAFETY: as above, one element.
                unsafe { to.add(i).write_unaligned($one(from.add(i).read_unaligned())) }
            }
        }
    )*};
}

kernels! {
    /// Float32 to float16.
    encode_f16: u32 => u16, |from, to| {
        let codes = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.cast()));
        _mm_storeu_si128(to.cast(), codes);
    }, number::encode_f16;
    /// Float16 to float32.
    decode_f16: u16 => u32, |from, to| {
        _mm256_storeu_ps(to.cast(), _mm256_cvtph_ps(_mm_loadu_si128(from.cast())));
    }, number::decode_f16;
    /// Float32 to bfloat16, as [`number::encode_bf16`] does it.
    encode_bf16: u32 => u16, |from, to| {
        let bits = _mm256_loadu_si256(from.cast());
        let high = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
        let value = _mm256_castsi256_ps(bits);
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        let codes = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), quiet, is_nan);
        // The halves of the eight, each packed to the low sixteen bits of its elements, which is all they have.
        let packed = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
        _mm_storeu_si128(to.cast(), packed);
    }, number::encode_bf16;
    /// Float64 to float32.
    narrow: f64 => f32, |from, to| {
        _mm_storeu_ps(to, _mm256_cvtpd_ps(_mm256_loadu_pd(from)));
        _mm_storeu_ps(to.add(4), _mm256_cvtpd_ps(_mm256_loadu_pd(from.add(4))));
    }, number::narrow;
    /// Float32 to float64.
    widen: f32 => f64, |from, to| {
        _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm_loadu_ps(from)));
        _mm256_storeu_pd(to.add(4), _mm256_cvtps_pd(_mm_loadu_ps(from.add(4))));
    }, number::widen;
}
