//! Writing past the caches.
//!
//! A target that is larger than the caches is not in them, and will not be when somebody reads it. An ordinary
//! store would first fetch the line that it is about to overwrite, and push out a line that is still needed.
//! Stores past the caches do neither, as long as they fill whole lines. Where elements are gathered or cast
//! they are therefore put together in a small buffer first, and the buffer is written in lines; that one step
//! more costs less than the fetch that it saves.
//!
//! Below the size of the caches ordinary stores win: the next reader finds the data there.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::kernel;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Bytes of a target from which it is written past the caches: twice what a core has to itself on current
/// machines. In tests small tensors are written so too.
const FROM: usize = if cfg!(test) { 2 << 10 } else { 4 << 20 };

/// Whether a target of so many bytes is written past the caches.
pub(super) fn is_worth(bytes: usize) -> bool {
    // Miri knows no such stores.
    bytes >= FROM && cfg!(all(target_arch = "x86_64", not(miri)))
}

/// Copies bytes, writing whole lines past the caches.
///
/// # Safety
/// The source is readable and the target writable for so many bytes, and they do not overlap; [`finish`]
/// follows before another thread looks.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: three pieces of what the caller vouches for; the one in the middle starts at a line of the
    // target.
    unsafe {
        from.copy_to_nonoverlapping(to, head);
        whole_lines(from.add(head), to.add(head), lines);
        from.add(tail).copy_to_nonoverlapping(to.add(tail), bytes - tail);
    }
}

/// How many places are read in turn: the machine reads ahead within a page, and with one place at a time it waits at
/// the start of each. In GB/s of 64 MiB in rows of 4 KiB with gaps, in a loop of its own that also asks for the next
/// rows, on a Xeon whose memcpy reaches 8.6: one row at a time 6.5, two 7.6, four 9.1, eight 9.3.
pub(super) const LANES: usize = 4;

/// Copies bytes from several places, as [`copy`] does, all at a time.
///
/// # Safety
/// As [`copy`], for each.
pub(super) unsafe fn copy_lanes(from: [*const u8; LANES], to: [*mut u8; LANES], bytes: usize) {
    let heads = to.map(|to| to.align_offset(LINE).min(bytes));
    let lines = heads.map(|head| (bytes - head) / LINE).into_iter().min().unwrap_or(0);
    // SAFETY: for each place three pieces of what the caller vouches for; the one in the middle starts at a line of
    // the target and is as long as all of them allow.
    unsafe {
        let (mut sources, mut targets) = (from, to);
        for lane in 0..LANES {
            let head = heads[lane];
            from[lane].copy_to_nonoverlapping(to[lane], head);
            (sources[lane], targets[lane]) = (from[lane].add(head), to[lane].add(head));
        }
        lines_of_lanes(sources, targets, lines);
        for lane in 0..LANES {
            let done = heads[lane] + lines * LINE;
            copy(from[lane].add(done), to[lane].add(done), bytes - done);
        }
    }
}

/// Copies lines from several places, one of each in turn.
///
/// # Safety
/// As [`copy`], for each, and the targets start at lines.
unsafe fn lines_of_lanes(from: [*const u8; LANES], to: [*mut u8; LANES], lines: usize) {
    // SAFETY: the caller's contract, and the machine was asked for its features.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if kernel::is_wide() {
            return wide_lanes(from, to, lines);
        }
        in_turn(from, to, lines, |from, to| line(from, to));
    }
}

/// [`lines_of_lanes`] in halves of lines.
///
/// # Safety
/// As [`lines_of_lanes`], and the machine has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn wide_lanes(from: [*const u8; LANES], to: [*mut u8; LANES], lines: usize) {
    // SAFETY: the caller's contract.
    unsafe { in_turn(from, to, lines, |from, to| wide_lines(from, to, 1)) }
}

/// The loop of [`lines_of_lanes`]. What comes soon is asked for, but nothing past the end: there is a gap.
///
/// # Safety
/// As [`lines_of_lanes`]; `one` copies a line.
#[inline(always)]
unsafe fn in_turn(
    from: [*const u8; LANES],
    to: [*mut u8; LANES],
    lines: usize,
    one: impl Fn(*const u8, *mut u8),
) {
    const AHEAD: usize = 8;
    for number in 0..lines {
        for (from, to) in from.iter().zip(to) {
            // SAFETY: line `number` of the place, which the caller vouches for.
            unsafe {
                let from = from.add(number * LINE);
                if number + AHEAD < lines {
                    prefetch(from.add(AHEAD * LINE), 1);
                }
                one(from, to.add(number * LINE));
            }
        }
    }
}

/// Copies one line. For callers that make single lines: it is not worth asking for the machine's features.
///
/// # Safety
/// As [`copy`], and the target is a line.
#[inline(always)]
pub(super) unsafe fn line(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        narrow_lines(from, to, 1);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        from.copy_to_nonoverlapping(to, LINE);
    }
}

/// Asks for memory that will be read soon: while lines are written, the machine sees no reads to run ahead of.
///
/// Any address will do, also past the end of what there is.
pub(super) fn prefetch(from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..bytes).step_by(LINE) {
        // SAFETY: a hint, which reads nothing and does not fault.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                from.wrapping_add(offset).cast(),
            )
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (from, bytes);
}

/// Asks for a line that will be written soon. Any address will do.
pub(super) fn prefetch_to_write(to: *const u8) {
    // SAFETY: a hint, which reads and writes nothing and does not fault.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(to.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = to;
}

/// Copies lines.
///
/// # Safety
/// As [`copy`], and the target starts at a line.
unsafe fn whole_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: the caller's contract, and the machine was asked for its features.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if kernel::is_wide() {
            wide_lines(from, to, lines)
        } else {
            narrow_lines(from, to, lines)
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        from.copy_to_nonoverlapping(to, lines * LINE);
    }
}

/// [`whole_lines`] in halves.
///
/// # Safety
/// As [`whole_lines`], and the machine has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn wide_lines(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::*;
    let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
    for i in 0..lines {
        // SAFETY: both halves of line `i`, which the caller vouches for; the loads need no alignment, and the
        // target's lines have it.
        unsafe {
            let (first, second) =
                (_mm256_loadu_si256(from.add(2 * i)), _mm256_loadu_si256(from.add(2 * i + 1)));
            _mm256_stream_si256(to.add(2 * i), first);
            _mm256_stream_si256(to.add(2 * i + 1), second);
        }
    }
}

/// [`whole_lines`] in quarters, for any machine.
///
/// # Safety
/// As [`whole_lines`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn narrow_lines(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::*;
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for i in 0..4 * lines {
        // SAFETY: a quarter of a line that the caller vouches for; the load needs no alignment, and the
        // target's lines have it. SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i))) }
    }
}

/// Makes what was streamed visible to other threads in the order of the program.
pub(super) fn finish() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment() {
        let from: Vec<u8> = (0..600usize).map(|i| (i * 7 + 1) as u8).collect();
        for start in [0, 1, 16, 63, 64] {
            for bytes in (0..400).step_by(if cfg!(miri) { 67 } else { 1 }) {
                let mut to = vec![0u8; 600];
                // SAFETY: both have room for 64 bytes and so many more.
                unsafe { copy(from.as_ptr().add(3), to.as_mut_ptr().add(start), bytes) };
                finish();
                let expected =
                    |i: usize| if (start..start + bytes).contains(&i) { from[i - start + 3] } else { 0 };
                assert!((0..600).all(|i| to[i] == expected(i)), "{bytes} bytes at {start}");
            }
        }
    }

    #[test]
    fn lanes_of_every_length_and_alignment() {
        const ROOM: usize = 512;
        let from: Vec<u8> = (0..LANES * ROOM).map(|i| (i * 7 + i / 250) as u8).collect();
        for shift in [0, 1, 40] {
            for bytes in (0..400).step_by(if cfg!(miri) { 67 } else { 1 }) {
                let mut to = vec![0u8; LANES * ROOM];
                let place = |lane: usize| lane * ROOM + lane * shift % 64;
                // SAFETY: each lane has room for 64 bytes and so many more.
                unsafe {
                    let sources = std::array::from_fn(|lane| from.as_ptr().add(lane * ROOM + 3));
                    let targets = std::array::from_fn(|lane| to.as_mut_ptr().add(place(lane)));
                    copy_lanes(sources, targets, bytes);
                }
                finish();
                let mut expected = vec![0u8; LANES * ROOM];
                for lane in 0..LANES {
                    expected[place(lane)..][..bytes].copy_from_slice(&from[lane * ROOM + 3..][..bytes]);
                }
                assert!(to == expected, "{bytes} bytes, {shift} apart");
            }
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn both_widths_agree() {
        #[repr(align(64))]
        struct Lines([u8; 5 * LINE]);
        let from: Vec<u8> = (0..=5 * LINE).map(|i| (i * 3) as u8).collect();
        let mut to = Lines([0; 5 * LINE]);
        // SAFETY: five lines from the second byte on, and five aligned ones.
        unsafe { narrow_lines(from.as_ptr().add(1), to.0.as_mut_ptr(), 5) };
        finish();
        assert_eq!(to.0, from[1..]);
        if kernel::is_wide() {
            to.0.fill(0);
            // SAFETY: as above, and the machine has AVX2.
            unsafe { wide_lines(from.as_ptr().add(1), to.0.as_mut_ptr(), 5) };
            finish();
            assert_eq!(to.0, from[1..]);
        }
    }
}
