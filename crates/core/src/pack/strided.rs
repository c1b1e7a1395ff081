//! Every second element, every third, every fourth, into dense memory: what slices with a step are made of, and
//! single channels of images.
//!
//! With the step known to the compiler the loop becomes whole loads and shuffles; with a step that is only a
//! number it is one element at a time.

#[cfg(target_arch = "x86_64")]
use super::kernel;

/// Copies `n` elements of `item` bytes that lie `step` elements apart to where they lie dense; whether there is
/// a loop for this.
///
/// # Safety
/// Each of the elements is readable and each place writable, and the two do not overlap.
pub(super) unsafe fn line(item: usize, step: isize, from: *const u8, to: *mut u8, n: usize) -> bool {
    // SAFETY: the caller's contract, in every arm.
    unsafe {
        match item {
            1 => line_of::<1>(step, from, to, n),
            2 => line_of::<2>(step, from, to, n),
            4 => line_of::<4>(step, from, to, n),
            8 => line_of::<8>(step, from, to, n),
            _ => false,
        }
    }
}

/// [`line`] for elements of `N` bytes.
///
/// # Safety
/// As [`line`].
unsafe fn line_of<const N: usize>(step: isize, from: *const u8, to: *mut u8, n: usize) -> bool {
    // SAFETY: the caller's contract, in every arm.
    unsafe {
        match step {
            2 => steps::<N, 2>(from, to, n),
            3 => steps::<N, 3>(from, to, n),
            4 => steps::<N, 4>(from, to, n),
            _ => return false,
        }
    }
    true
}

/// The loop for this machine.
///
/// # Safety
/// As [`line`], with a step of `STEP`.
unsafe fn steps<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's contract, and the machine was asked for its features.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if kernel::is_wide() {
            return wide::<N, STEP>(from, to, n);
        }
        each::<N, STEP>(from, to, n);
    }
}

/// [`each`] with the vector instructions of the last ten years.
///
/// # Safety
/// As [`line`], and the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn wide<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's contract.
    unsafe { each::<N, STEP>(from, to, n) }
}

/// The loop itself.
///
/// # Safety
/// As [`line`].
#[inline(always)]
unsafe fn each<const N: usize, const STEP: usize>(from: *const u8, to: *mut u8, n: usize) {
    macro_rules! each_of {
        ($element:ty) => {{
            let (from, to) = (from.cast::<$element>(), to.cast::<$element>());
            for i in 0..n {
                // SAFETY: element `i` and its place, for which the caller vouches; neither need be aligned.
                unsafe { to.add(i).write_unaligned(from.add(i * STEP).read_unaligned()) }
            }
        }};
    }
    match N {
        1 => each_of!(u8),
        2 => each_of!(u16),
        4 => each_of!(u32),
        _ => each_of!(u64),
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
                    // SAFETY: the farthest element is 99 * 5 + 1 elements of 8 bytes from the second byte on;
                    // the target has room for 100.
                    let done =
                        unsafe { line(item, step as isize, from.as_ptr().add(1), to.as_mut_ptr().add(1), n) };
                    assert_eq!(done, (2..5).contains(&step));
                    let mut expected = vec![0xee; 100 * 8 + 2];
                    for i in (0..n).filter(|_| done) {
                        let place = 1 + i * step * item;
                        expected[1 + i * item..][..item].copy_from_slice(&from[place..place + item]);
                    }
                    assert!(to == expected, "{n} elements of {item} bytes, every {step}");
                }
            }
        }
    }
}
