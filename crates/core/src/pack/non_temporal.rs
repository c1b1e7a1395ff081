//! Copies with non-temporal stores, which bypass the caches.
//!
//! A target that is larger than the caches is not cached, neither now nor when it is read. An ordinary store first fetches
//! the cache line that it overwrites, and evicts another. Non-temporal stores do neither, as long as they fill whole lines.
//! Elements that are gathered or cast are therefore collected in a small buffer, which is then written in lines. That step
//! costs less than the fetch that it saves.
//!
//! Below the size of the caches ordinary stores are faster, because the next reader finds the data in the cache.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::cpu_features;

/// The size of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// The size of a target from which stores bypass the caches: twice the private cache of a core on current machines. It is
/// small in tests.
const THRESHOLD_BYTES: usize = if cfg!(test) { 2 << 10 } else { 4 << 20 };

/// Whether a target of this size is written with non-temporal stores.
pub(super) fn should_use(bytes: usize) -> bool {
    // Miri does not support them.
    bytes >= THRESHOLD_BYTES && cfg!(all(target_arch = "x86_64", not(miri)))
}

/// Copies bytes with non-temporal stores for whole lines.
///
/// # Safety
/// The source is readable and the target writable for `bytes` bytes, and they do not overlap; this thread calls [`fence`]
/// before it or another thread accesses the target.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let head = to.align_offset(LINE_BYTES).min(bytes);
    let lines = (bytes - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    // SAFETY: `head`, the lines and the rest add up to `bytes`, which are readable and writable and do not overlap (the
    // contract of this function). `head` ends at a line of the target, or there are no lines.
    unsafe {
        from.copy_to_nonoverlapping(to, head);
        copy_lines(from.add(head), to.add(head), lines);
        from.add(tail).copy_to_nonoverlapping(to.add(tail), bytes - tail);
    }
}

/// The number of runs that are copied in alternation. The hardware prefetcher works within a page, so a single run stalls at
/// the start of each page. In GB/s for 64 MiB in rows of 4 KiB with gaps, in a benchmark that also prefetches the next rows, on a Xeon whose
/// memcpy reaches 8.6: one row at a time 6.5, two 7.6, four 9.1, eight 9.3.
pub(super) const INTERLEAVED_RUNS: usize = 4;

/// Copies several runs of the same length as [`copy`] does, in alternation.
///
/// # Safety
/// As [`copy`], for each.
pub(super) unsafe fn copy_interleaved(
    from: [*const u8; INTERLEAVED_RUNS],
    to: [*mut u8; INTERLEAVED_RUNS],
    bytes: usize,
) {
    let heads = to.map(|to| to.align_offset(LINE_BYTES).min(bytes));
    let lines = heads.map(|head| (bytes - head) / LINE_BYTES).into_iter().min().unwrap_or(0);
    // SAFETY: for each run, `head`, the lines and the rest add up to `bytes`, as `lines` is the minimum over the runs. The
    // bytes are readable and writable and do not overlap (the contract of this function). `head` ends at a line of the target,
    // or there are no lines.
    unsafe {
        let (mut sources, mut targets) = (from, to);
        for run in 0..INTERLEAVED_RUNS {
            let head = heads[run];
            from[run].copy_to_nonoverlapping(to[run], head);
            (sources[run], targets[run]) = (from[run].add(head), to[run].add(head));
        }
        copy_interleaved_lines(sources, targets, lines);
        for run in 0..INTERLEAVED_RUNS {
            let done = heads[run] + lines * LINE_BYTES;
            copy(from[run].add(done), to[run].add(done), bytes - done);
        }
    }
}

/// Copies lines of several runs, one of each in turn.
///
/// # Safety
/// As [`copy`], for each, and the targets start at lines.
unsafe fn copy_interleaved_lines(
    from: [*const u8; INTERLEAVED_RUNS],
    to: [*mut u8; INTERLEAVED_RUNS],
    lines: usize,
) {
    // SAFETY: the lines are readable and writable, and the targets start at lines (the contract of all three functions). The
    // first also needs AVX2, which was detected. The closure passes one line on, as `interleave_lines` calls it.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if cpu_features::has_avx2() {
            return copy_interleaved_lines_avx2(from, to, lines);
        }
        interleave_lines(from, to, lines, |from, to| copy_line(from, to));
    }
}

/// [`copy_interleaved_lines`] with 32-byte stores.
///
/// # Safety
/// As [`copy_interleaved_lines`], and the processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn copy_interleaved_lines_avx2(
    from: [*const u8; INTERLEAVED_RUNS],
    to: [*mut u8; INTERLEAVED_RUNS],
    lines: usize,
) {
    // SAFETY: the lines are readable and writable, and the targets start at lines (the contract of this function, which also
    // has AVX2). The closure passes one line on, as `interleave_lines` calls it.
    unsafe { interleave_lines(from, to, lines, |from, to| copy_lines_avx2(from, to, 1)) }
}

/// The loop of [`copy_interleaved_lines`]. It prefetches within the runs only, because a gap follows each.
///
/// # Safety
/// As [`copy_interleaved_lines`]; `one` copies a line, and is called with those of the runs.
#[inline(always)]
unsafe fn interleave_lines(
    from: [*const u8; INTERLEAVED_RUNS],
    to: [*mut u8; INTERLEAVED_RUNS],
    lines: usize,
    one: impl Fn(*const u8, *mut u8),
) {
    const PREFETCH_LINES: usize = 8;
    for number in 0..lines {
        for (from, to) in from.iter().zip(to) {
            // SAFETY: `number` is below `lines`, so the line is within the run, and so is the prefetched one, which is compared
            // with `lines` (the contract of this function).
            unsafe {
                let from = from.add(number * LINE_BYTES);
                if number + PREFETCH_LINES < lines {
                    prefetch(from.add(PREFETCH_LINES * LINE_BYTES), 1);
                }
                one(from, to.add(number * LINE_BYTES));
            }
        }
    }
}

/// Copies one line. It uses SSE2 only, because feature detection costs more than a line.
///
/// # Safety
/// As [`copy`], and the target is a line.
#[inline(always)]
pub(super) unsafe fn copy_line(from: *const u8, to: *mut u8) {
    // SAFETY: a line is readable, and the target is writable and starts at a line (the contract of this function and of both
    // copies).
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        copy_lines_sse2(from, to, 1);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        from.copy_to_nonoverlapping(to, LINE_BYTES);
    }
}

/// Prefetches memory that will be read soon, since the hardware prefetcher is idle while lines are written.
///
/// Any address is allowed, also past the end of the memory.
pub(super) fn prefetch(from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..bytes).step_by(LINE_BYTES) {
        // SAFETY: the instruction requires SSE, which is part of x86-64. It is a hint: for an invalid address it does nothing.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                from.wrapping_add(offset).cast(),
            )
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (from, bytes);
}

/// Prefetches a line that will be written soon. Any address is allowed.
pub(super) fn prefetch_to_write(to: *const u8) {
    // SAFETY: the instruction requires SSE, which is part of x86-64. It is a hint: for an invalid address it does nothing.
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
unsafe fn copy_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: the lines are readable and writable, do not overlap, and the target starts at a line (the contract of this
    // function and of all copies). `copy_lines_avx2` also needs AVX2, which was detected.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if cpu_features::has_avx2() {
            copy_lines_avx2(from, to, lines)
        } else {
            copy_lines_sse2(from, to, lines)
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        from.copy_to_nonoverlapping(to, lines * LINE_BYTES);
    }
}

/// [`copy_lines`] with 32-byte stores.
///
/// # Safety
/// As [`copy_lines`], and the processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn copy_lines_avx2(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::*;
    let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
    for i in 0..lines {
        // SAFETY: `i` is below `lines`, so both halves of the line are readable and writable (the contract of this function).
        // The loads need no alignment, and the stores one of 32 bytes, which a half of an aligned line has.
        unsafe {
            let (first, second) =
                (_mm256_loadu_si256(from.add(2 * i)), _mm256_loadu_si256(from.add(2 * i + 1)));
            _mm256_stream_si256(to.add(2 * i), first);
            _mm256_stream_si256(to.add(2 * i + 1), second);
        }
    }
}

/// [`copy_lines`] with 16-byte stores, which every x86-64 has.
///
/// # Safety
/// As [`copy_lines`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_lines_sse2(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::*;
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for i in 0..4 * lines {
        // SAFETY: `i` is below four times `lines`, so the quarter of a line is readable and writable (the contract of this
        // function). The load needs no alignment, and the store one of 16 bytes, which a quarter of an aligned line has. SSE2
        // is part of x86-64.
        unsafe { _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i))) }
    }
}

/// Orders the non-temporal stores before later stores, as other threads see them.
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction requires SSE, which is part of x86-64.
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
                // SAFETY: at most 400 bytes are read from the fourth byte on, and written from `start` on, which is at most 64.
                // Both vectors have 600 bytes and do not overlap, and `fence` follows.
                unsafe { copy(from.as_ptr().add(3), to.as_mut_ptr().add(start), bytes) };
                fence();
                let expected =
                    |i: usize| if (start..start + bytes).contains(&i) { from[i - start + 3] } else { 0 };
                assert!((0..600).all(|i| to[i] == expected(i)), "{bytes} bytes at {start}");
            }
        }
    }

    #[test]
    fn interleaved_runs_of_every_length_and_alignment() {
        const RUN_BYTES: usize = 512;
        let from: Vec<u8> = (0..INTERLEAVED_RUNS * RUN_BYTES).map(|i| (i * 7 + i / 250) as u8).collect();
        for shift in [0, 1, 40] {
            for bytes in (0..400).step_by(if cfg!(miri) { 67 } else { 1 }) {
                let mut to = vec![0u8; INTERLEAVED_RUNS * RUN_BYTES];
                let offset = |run: usize| run * RUN_BYTES + run * shift % 64;
                // SAFETY: a run has 512 bytes. At most 400 are read from its fourth byte on, and written from its 64th byte on
                // or before. The vectors do not overlap, and `fence` follows.
                unsafe {
                    let sources = std::array::from_fn(|run| from.as_ptr().add(run * RUN_BYTES + 3));
                    let targets = std::array::from_fn(|run| to.as_mut_ptr().add(offset(run)));
                    copy_interleaved(sources, targets, bytes);
                }
                fence();
                let mut expected = vec![0u8; INTERLEAVED_RUNS * RUN_BYTES];
                for run in 0..INTERLEAVED_RUNS {
                    expected[offset(run)..][..bytes].copy_from_slice(&from[run * RUN_BYTES + 3..][..bytes]);
                }
                assert!(to == expected, "{bytes} bytes, {shift} apart");
            }
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn both_widths_agree() {
        #[repr(align(64))]
        struct Lines([u8; 5 * LINE_BYTES]);
        let from: Vec<u8> = (0..=5 * LINE_BYTES).map(|i| (i * 3) as u8).collect();
        let mut to = Lines([0; 5 * LINE_BYTES]);
        // SAFETY: `from` has five lines from its second byte on, and `to` five lines, aligned by its type. `fence` follows.
        unsafe { copy_lines_sse2(from.as_ptr().add(1), to.0.as_mut_ptr(), 5) };
        fence();
        assert_eq!(to.0, from[1..]);
        if cpu_features::has_avx2() {
            to.0.fill(0);
            // SAFETY: `from` has five lines from its second byte on, and `to` five lines, aligned by its type. AVX2 was
            // detected, and `fence` follows.
            unsafe { copy_lines_avx2(from.as_ptr().add(1), to.0.as_mut_ptr(), 5) };
            fence();
            assert_eq!(to.0, from[1..]);
        }
    }
}
