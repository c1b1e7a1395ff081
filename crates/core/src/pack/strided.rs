//! Copies lines with a stride of two, three or four elements to dense memory, such as slices with a step and single channels
//! of images.
//!
//! With a constant stride the compiler vectorises the loop; with a variable stride it copies one element at a time.

#[cfg(target_arch = "x86_64")]
use super::cpu_features;

/// Copies `n` elements of `item` bytes with a stride of `step` elements to dense memory; returns whether there is a loop for
/// this stride.
///
/// # Safety
/// The elements are readable, the target is writable for `n` elements, and the two do not overlap.
pub(super) unsafe fn copy_line(item: usize, step: isize, from: *const u8, to: *mut u8, n: usize) -> bool {
    // SAFETY: `copy_steps` requires `n` readable elements of `N` bytes, `STEP` elements apart, and `n` writable ones that do not
    // overlap them. This function's contract says so for `item` and `step`, which the arms match with `N` and `STEP`.
    unsafe {
        match (item, step) {
            (1, 2) => copy_steps::<1, 2>(from, to, n),
            (1, 3) => copy_steps::<1, 3>(from, to, n),
            (1, 4) => copy_steps::<1, 4>(from, to, n),
            (2, 2) => copy_steps::<2, 2>(from, to, n),
            (2, 3) => copy_steps::<2, 3>(from, to, n),
            (2, 4) => copy_steps::<2, 4>(from, to, n),
            (4, 2) => copy_steps::<4, 2>(from, to, n),
            (4, 3) => copy_steps::<4, 3>(from, to, n),
            (4, 4) => copy_steps::<4, 4>(from, to, n),
            (8, 2) => copy_steps::<8, 2>(from, to, n),
            (8, 3) => copy_steps::<8, 3>(from, to, n),
            (8, 4) => copy_steps::<8, 4>(from, to, n),
            _ => return false,
        }
    }
    true
}

/// Selects the loop for this processor.
///
/// # Safety
/// As [`copy_line`], for elements of `N` bytes with a step of `STEP`.
unsafe fn copy_steps<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: both loops require readable and writable elements that do not overlap, as this function's contract does.
    // `copy_each_avx2` also requires AVX2, which `has_avx2` detected.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if cpu_features::has_avx2() {
            return copy_each_avx2::<N, STEP>(from, to, n);
        }
        copy_each::<N, STEP>(from, to, n);
    }
}

/// [`copy_each`] compiled for AVX2.
///
/// # Safety
/// As [`copy_steps`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_each_avx2<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the elements are readable, the target is writable, and the two do not overlap (the contract of this function).
    unsafe { copy_each::<N, STEP>(from, to, n) }
}

/// The loop itself.
///
/// # Safety
/// As [`copy_steps`].
#[inline(always)]
unsafe fn copy_each<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    macro_rules! copy_each_of {
        ($element:ty) => {{
            let (from, to) = (from.cast::<$element>(), to.cast::<$element>());
            for i in 0..n {
                // SAFETY: `i` is below `n`, so element `i * STEP` is readable and element `i` of the target writable (the
                // contract of this function). Neither needs to be aligned.
                unsafe { to.add(i).write_unaligned(from.add(i * STEP).read_unaligned()) }
            }
        }};
    }
    match N {
        1 => copy_each_of!(u8),
        2 => copy_each_of!(u16),
        4 => copy_each_of!(u32),
        _ => copy_each_of!(u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_reach_every_element_and_nothing_else() {
        let from: Vec<u8> = (0..4000usize).map(|i| (i * 7 + i / 251) as u8).collect();
        for item in [1, 2, 4, 8] {
            for step in 1..6 {
                for n in [0, 1, 7, 32, 65, 100] {
                    let mut to = vec![0xee; 100 * 8 + 2];
                    // SAFETY: at most 99 * 5 + 1 elements of 8 bytes are read from the second byte on, of 4000 bytes. At most
                    // 100 elements of 8 bytes are written from the second byte on, of 802. The vectors do not overlap.
                    let is_done = unsafe {
                        copy_line(item, step as isize, from.as_ptr().add(1), to.as_mut_ptr().add(1), n)
                    };
                    assert_eq!(is_done, (2..5).contains(&step));
                    let mut expected = vec![0xee; 100 * 8 + 2];
                    for i in (0..n).filter(|_| is_done) {
                        let start = 1 + i * step * item;
                        expected[1 + i * item..][..item].copy_from_slice(&from[start..start + item]);
                    }
                    assert!(to == expected, "{n} elements of {item} bytes, every {step}");
                }
            }
        }
    }
}
