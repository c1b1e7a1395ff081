//! Memory from the system in huge pages, and how much of it there is.

use super::HUGE;
use std::ptr::NonNull;

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use super::{HUGE, NonNull};
    use std::ptr;

    /// Maps `bytes` bytes, a multiple of [`HUGE`], aligned to it; `None` if the system refuses.
    pub(in super::super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // Recent systems align what is that large by themselves.
        let start = map_anywhere(bytes)?;
        let data = if start.addr().get().is_multiple_of(HUGE) {
            start
        } else {
            // SAFETY: mapped above, and seen by nobody.
            unsafe { unmap(start, bytes) };
            map_aligned(bytes)?
        };
        // SAFETY: a mapping of ours. That huge pages may be refused changes the speed alone.
        unsafe { libc::madvise(data.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Some(data)
    }

    /// One huge page more than needed, and then off with both ends.
    fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
        let start = map_anywhere(bytes.checked_add(HUGE)?)?;
        let before = start.as_ptr().align_offset(HUGE);
        // SAFETY: `before` is less than a huge page, so that all three pieces lie in the mapping; the first
        // and the last are nobody's.
        unsafe {
            let data = start.add(before);
            if before > 0 {
                unmap(start, before);
            }
            if before < HUGE {
                unmap(data.add(bytes), HUGE - before);
            }
            Some(data)
        }
    }

    fn map_anywhere(bytes: usize) -> Option<NonNull<u8>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping at an address that the system chooses.
        let data = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if data == libc::MAP_FAILED { None } else { NonNull::new(data.cast()) }
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// The bytes were mapped here, and nobody uses them any more.
    pub(in super::super) unsafe fn unmap(data: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract. It can fail only where one mapping would become two too many; the
        // memory then stays.
        unsafe { libc::munmap(data.as_ptr().cast(), bytes) };
    }

    /// Where the system says how much memory a container may use, how much it uses, and what for, in its two generations.
    const CONTAINER: [[&str; 3]; 2] = [
        ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"],
        [
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
        ],
    ];

    /// A number in a file; none where there is no such file, or it says "max", which means that there is no limit.
    fn number_in(path: &str) -> Option<usize> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Bytes of memory that the machine has, or that the container may use; zero if nobody says.
    pub(in super::super) fn physical_memory() -> usize {
        // SAFETY: both only ask.
        let (pages, size) =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        let machine = usize::try_from(pages).unwrap_or(0).saturating_mul(usize::try_from(size).unwrap_or(0));
        CONTAINER.iter().filter_map(|[limit, ..]| number_in(limit)).fold(machine, usize::min)
    }

    /// Bytes of memory that the system could give out without taking them from somebody, if it says.
    pub(in super::super) fn available_memory() -> Option<usize> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let machine = line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.saturating_mul(1024);
        let container = CONTAINER.iter().filter_map(|[limit, used, what_for]| {
            // What is kept of files would be let go.
            let files = files_in(&std::fs::read_to_string(what_for).ok()?);
            Some(number_in(limit)?.saturating_sub(number_in(used)?.saturating_sub(files)))
        });
        Some(container.fold(machine, usize::min))
    }

    /// Bytes that a container has in its cache of files.
    fn files_in(text: &str) -> usize {
        let numbers = text.lines().filter_map(|line| line.split_once(' '));
        let files = numbers.filter(|(name, _)| matches!(*name, "active_file" | "inactive_file"));
        files.filter_map(|(_, number)| number.trim().parse::<usize>().ok()).sum()
    }
}

/// The same from the global allocator.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use super::{HUGE, NonNull};
    use std::alloc::{Layout, alloc, dealloc};

    /// Allocates `bytes` bytes, a multiple of [`HUGE`], aligned to it; `None` if there are none.
    pub(in super::super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, HUGE).ok()?;
        // SAFETY: callers ask for at least one huge page.
        NonNull::new(unsafe { alloc(layout) })
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// The bytes come from [`map`], all of them, and nobody uses them any more.
    pub(in super::super) unsafe fn unmap(data: NonNull<u8>, bytes: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes, HUGE) {
            // SAFETY: the caller's contract.
            unsafe { dealloc(data.as_ptr(), layout) }
        }
    }

    /// Nobody says.
    pub(in super::super) fn available_memory() -> Option<usize> {
        None
    }

    /// What the pool's limit is reckoned from where the system is not asked: 8 GiB.
    pub(in super::super) fn physical_memory() -> usize {
        8 << 30
    }
}

pub(super) use system::{available_memory, map, physical_memory, unmap};
