//! Transposes blocks of 16 by 16 elements of four bytes in AVX2 registers.
//!
//! Four bytes is the most common element size. A square of 8 by 8 elements fits in eight registers, and two squares side by
//! side are eight cache lines of the target, so no buffer is needed. The loads do half of the exchanges between the halves of
//! the registers.

use std::arch::x86_64::*;

/// Transposes one block.
///
/// # Safety
/// Sixteen lines of 64 bytes are readable every `from_step` bytes and writable every `to_step` bytes; those are
/// aligned to 64 bytes if `non_temporal`, and `non_temporal::fence` follows. The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose_block(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
    non_temporal: bool,
) {
    for half in 0..2 {
        // SAFETY: sixteen source lines of 64 bytes are readable. The squares read 32 bytes from `32 * half` on, of the first
        // eight lines and of the last eight. The loop writes the target lines from `8 * half` to `8 * half + 8`, of sixteen
        // that are writable, and aligned if `non_temporal` (the contract of this function).
        unsafe {
            let from = from.offset(32 * half);
            let (left, right) =
                (transpose_square(from, from_step), transpose_square(from.offset(8 * from_step), from_step));
            let to = to.offset(8 * half * to_step);
            for (line, (&left, &right)) in left.iter().zip(&right).enumerate() {
                let to = to.offset(line as isize * to_step).cast::<f32>();
                if non_temporal && cfg!(not(miri)) {
                    _mm256_stream_ps(to, left);
                    _mm256_stream_ps(to.add(8), right);
                } else {
                    _mm256_storeu_ps(to, left);
                    _mm256_storeu_ps(to.add(8), right);
                }
            }
        }
    }
}

/// Loads eight elements of each of eight lines, transposed.
///
/// # Safety
/// 32 bytes are readable every `step` bytes, eight times. The processor has AVX2.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn transpose_square(from: *const u8, step: isize) -> [__m256; 8] {
    // The first four elements of lines `i` and `i + 4`, or the last four of both.
    let pair = |i: isize, quarter: isize| {
        // SAFETY: the callers pass `i` below four and `quarter` below two, so the loads read sixteen of the 32 bytes of lines
        // `i` and `i + 4`. Eight lines are readable (the contract of this function), and the loads need no alignment.
        unsafe {
            let first = _mm_loadu_ps(from.offset(i * step + 16 * quarter).cast());
            let second = _mm_loadu_ps(from.offset((i + 4) * step + 16 * quarter).cast());
            _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(first), second)
        }
    };
    let mut transposed = [_mm256_setzero_ps(); 8];
    for (quarter, transposed) in transposed.chunks_exact_mut(4).enumerate() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| pair(i, quarter as isize));
        // Four by four in each half: interleave twice.
        let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        transposed[0] = _mm256_shuffle_ps::<0x44>(ab_low, cd_low);
        transposed[1] = _mm256_shuffle_ps::<0xee>(ab_low, cd_low);
        transposed[2] = _mm256_shuffle_ps::<0x44>(ab_high, cd_high);
        transposed[3] = _mm256_shuffle_ps::<0xee>(ab_high, cd_high);
    }
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{cpu_features, non_temporal};

    #[test]
    fn a_block_is_transposed() {
        if !cpu_features::has_avx2() {
            return;
        }
        #[repr(align(64))]
        struct Lines([[u32; 16]; 16]);
        let from: Vec<u32> = (0..16u32 * 20).map(|i| i.wrapping_mul(0x0101_0101) ^ i).collect();
        for is_non_temporal in [false, true] {
            let mut to = Lines([[0; 16]; 16]);
            // SAFETY: `from` has twenty numbers for each of sixteen lines, and lines start every eighty bytes. `to` has sixteen
            // lines of 64 bytes, aligned by its type. AVX2 was detected, and `fence` follows.
            unsafe {
                transpose_block(from.as_ptr().cast(), 80, to.0.as_mut_ptr().cast(), 64, is_non_temporal)
            };
            non_temporal::fence();
            for (row, line) in to.0.iter().enumerate() {
                for (col, &element) in line.iter().enumerate() {
                    assert_eq!(element, from[col * 20 + row]);
                }
            }
        }
    }
}
