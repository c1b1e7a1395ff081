//! Float16 by the instructions that machines have had for it since 2013.
//!
//! They round to nearest even (asked for in the instruction), keep subnormals, and make a NaN quiet with its
//! sign and the top of its payload: the same bits as [`number::encode_f16`] and [`number::decode_f16`], which
//! finish what eight does not divide.

use super::number;
use std::arch::x86_64::*;

/// Float32 to float16.
///
/// # Safety
/// As a [`Kernel`](super::kernel::Kernel), and the machine must have AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn encode(from: *const u8, to: *mut u8, n: usize) {
    let (from, to) = (from.cast::<f32>(), to.cast::<u16>());
    let whole = n - n % 8;
    for i in (0..whole).step_by(8) {
        // SAFETY: elements `i..i + 8` are within the `n` that the caller vouches for; the operations are
        // unaligned ones.
        unsafe {
            let codes = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.add(i)));
            _mm_storeu_si128(to.add(i).cast(), codes);
        }
    }
    for i in whole..n {
        // SAFETY: as above, one element.
        unsafe { to.add(i).write_unaligned(number::encode_f16(from.add(i).cast::<u32>().read_unaligned())) }
    }
}

/// Float16 to float32.
///
/// # Safety
/// As [`encode`].
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn decode(from: *const u8, to: *mut u8, n: usize) {
    let (from, to) = (from.cast::<u16>(), to.cast::<f32>());
    let whole = n - n % 8;
    for i in (0..whole).step_by(8) {
        // SAFETY: elements `i..i + 8` are within the `n` that the caller vouches for; the operations are
        // unaligned ones.
        unsafe { _mm256_storeu_ps(to.add(i), _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast()))) }
    }
    for i in whole..n {
        // SAFETY: as above, one element.
        unsafe { to.add(i).cast::<u32>().write_unaligned(number::decode_f16(from.add(i).read_unaligned())) }
    }
}
