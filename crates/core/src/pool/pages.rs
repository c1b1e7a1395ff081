//! Maps and unmaps memory in huge pages.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The size of a huge page. Every block of the pool starts at one and has a whole number of them.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Measures how long the first write to freshly mapped memory takes; `None` if the system has no memory.
pub(crate) fn time_first_touch(bytes: usize) -> Option<Duration> {
    let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    let data = map(bytes)?;
    let start = Instant::now();
    // SAFETY: `map` returned this many writable bytes, which nothing else refers to. They are unmapped once, after the last
    // access.
    unsafe {
        data.as_ptr().write_bytes(1, bytes);
        let elapsed = start.elapsed();
        unmap(data, bytes);
        Some(elapsed)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use super::{HUGE_PAGE_BYTES, NonNull};
    use std::ptr;

    /// Maps `bytes` bytes, a multiple of [`HUGE_PAGE_BYTES`], aligned to it; `None` if the system refuses.
    pub(in crate::pool) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // Recent kernels align large mappings by themselves.
        let start = map_anywhere(bytes)?;
        let data = if start.addr().get().is_multiple_of(HUGE_PAGE_BYTES) {
            start
        } else {
            // SAFETY: `map_anywhere` returned this many bytes, and nothing refers to them.
            unsafe { unmap(start, bytes) };
            map_aligned(bytes)?
        };
        // SAFETY: the range is a whole mapping of `map_anywhere` or `map_aligned`, and the advice does not change its contents.
        // A failure affects only the speed.
        unsafe { libc::madvise(data.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Some(data)
    }

    /// Maps one huge page more than needed, and unmaps the unaligned bytes at both ends.
    fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
        let start = map_anywhere(bytes.checked_add(HUGE_PAGE_BYTES)?)?;
        let before = start.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `align_offset` returns less than its argument, a huge page, which the mapping has in addition to `bytes`. So
        // the three ranges `before`, `bytes` and the rest are within the mapping, and nothing refers to the two that are
        // unmapped.
        unsafe {
            let data = start.add(before);
            if before > 0 {
                unmap(start, before);
            }
            if before < HUGE_PAGE_BYTES {
                unmap(data.add(bytes), HUGE_PAGE_BYTES - before);
            }
            Some(data)
        }
    }

    fn map_anywhere(bytes: usize) -> Option<NonNull<u8>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without `MAP_FIXED` the system chooses an address that no mapping has, so `mmap` replaces no memory. A
        // private, anonymous mapping has no file that could change.
        let data = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if data == libc::MAP_FAILED { None } else { NonNull::new(data.cast()) }
    }

    /// Unmaps memory.
    ///
    /// # Safety
    /// The bytes were mapped here, and nothing uses them any more.
    pub(in crate::pool) unsafe fn unmap(data: NonNull<u8>, bytes: usize) {
        // SAFETY: these bytes were mapped here, and nothing uses them any more (the contract of this function). The call fails
        // only if splitting a mapping exceeds the limit on mappings; the memory then stays mapped.
        unsafe { libc::munmap(data.as_ptr().cast(), bytes) };
    }
}

/// The same with the global allocator.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use super::{HUGE_PAGE_BYTES, NonNull};
    use std::alloc::{Layout, alloc, dealloc};

    /// Allocates `bytes` bytes, a multiple of [`HUGE_PAGE_BYTES`], aligned to it; `None` if the allocator fails.
    pub(in crate::pool) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let layout =
            Layout::from_size_align(bytes, HUGE_PAGE_BYTES).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: `alloc` requires a size that is not zero, which the filter checks.
        NonNull::new(unsafe { alloc(layout) })
    }

    /// Unmaps memory.
    ///
    /// # Safety
    /// The bytes come from [`map`], all of them, and nothing uses them any more.
    pub(in crate::pool) unsafe fn unmap(data: NonNull<u8>, bytes: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes, HUGE_PAGE_BYTES) {
            // SAFETY: `map` allocated all of these bytes with this layout, and nothing uses them any more (the contract of this
            // function).
            unsafe { dealloc(data.as_ptr(), layout) }
        }
    }
}

pub(super) use system::{map, unmap};
