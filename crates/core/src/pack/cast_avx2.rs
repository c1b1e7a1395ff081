//! Cast kernels with explicit AVX2 and F16C instructions, where they beat the compiled portable loop.
//!
//! They convert float32 to and from float16, float64 and bfloat16. The instructions round to nearest even, keep subnormals,
//! and quieten a NaN with its sign and the top of its payload. The functions of [`number`], which process the elements after
//! the last whole vector, give the same bits. The compiler cannot use these instructions for them, because Rust does not
//! specify the bits of a NaN.

use super::number;
use std::arch::x86_64::*;

/// Defines kernels that process vectors of eight elements, and single elements for the rest.
///
/// The body gets the addresses of eight elements in source and target.
macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, |$source:ident, $target:ident| $body:block, $one:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As a [`Kernel`](super::cast_kernels::Kernel), and the processor must have AVX2 and F16C.
        #[target_feature(enable = "avx2,f16c")]
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, n: usize) {
            let (from, to) = (from.cast::<$from>(), to.cast::<$to>());
            let in_vectors = n - n % 8;
            for i in (0..in_vectors).step_by(8) {
                // SAFETY: `i + 8` is at most `n`, so the eight elements are readable in the source and writable in the target
                // (the contract of a kernel). The bodies load and store eight elements without alignment.
                unsafe {
                    let ($source, $target) = (from.add(i), to.add(i));
                    $body
                }
            }
            for i in in_vectors..n {
                // SAFETY: `i` is below `n`, so the element is readable in the source and writable in the target (the contract
                // of a kernel). The accesses need no alignment.
                unsafe { to.add(i).write_unaligned($one(from.add(i).read_unaligned())) }
            }
        }
    )*};
}

kernels! {
    /// Converts float32 to float16.
    encode_f16: u32 => u16, |from, to| {
        let codes = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.cast()));
        _mm_storeu_si128(to.cast(), codes);
    }, number::encode_f16;
    /// Converts float16 to float32.
    decode_f16: u16 => u32, |from, to| {
        _mm256_storeu_ps(to.cast(), _mm256_cvtph_ps(_mm_loadu_si128(from.cast())));
    }, number::decode_f16;
    /// Converts float32 to bfloat16, as [`number::encode_bf16`] does.
    encode_bf16: u32 => u16, |from, to| {
        let bits = _mm256_loadu_si256(from.cast());
        let high = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
        let value = _mm256_castsi256_ps(bits);
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        let codes = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), quiet, is_nan);
        // Packs the low sixteen bits of the eight elements; the high bits are zero.
        let packed = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
        _mm_storeu_si128(to.cast(), packed);
    }, number::encode_bf16;
    /// Converts float64 to float32.
    narrow: f64 => f32, |from, to| {
        _mm_storeu_ps(to, _mm256_cvtpd_ps(_mm256_loadu_pd(from)));
        _mm_storeu_ps(to.add(4), _mm256_cvtpd_ps(_mm256_loadu_pd(from.add(4))));
    }, number::narrow;
    /// Converts float32 to float64.
    widen: f32 => f64, |from, to| {
        _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm_loadu_ps(from)));
        _mm256_storeu_pd(to.add(4), _mm256_cvtps_pd(_mm_loadu_ps(from.add(4))));
    }, number::widen;
}
