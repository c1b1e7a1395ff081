//! Reads how much memory the machine or its container has, and how much of it is available.

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    /// The files of cgroup v2 and v1 with the limit, the usage and the statistics of memory.
    const CGROUP_FILES: [[&str; 3]; 2] = [
        ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"],
        [
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
        ],
    ];

    /// The number in a file; `None` if the file does not exist or contains "max", which means no limit.
    fn read_number(path: &str) -> Option<usize> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// A size of memory of the machine, in bytes, by its name in `/proc/meminfo`.
    fn machine_memory(name: &str) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let kilobytes = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
        Some(kilobytes.trim().parse::<usize>().ok()?.saturating_mul(1024))
    }

    /// The memory of the machine or the limit of the container, in bytes; zero if unknown.
    pub(in crate::pool) fn physical_memory() -> usize {
        let machine = machine_memory("MemTotal:").unwrap_or(0);
        CGROUP_FILES.iter().filter_map(|[limit, ..]| read_number(limit)).fold(machine, usize::min)
    }

    /// The bytes that can be allocated without swapping; `None` if unknown.
    pub(in crate::pool) fn available_memory() -> Option<usize> {
        let machine = machine_memory("MemAvailable:")?;
        let container = CGROUP_FILES.iter().filter_map(|[limit, used, statistics]| {
            // The kernel can reclaim the page cache.
            let page_cache = page_cache_bytes(&std::fs::read_to_string(statistics).ok()?);
            Some(read_number(limit)?.saturating_sub(read_number(used)?.saturating_sub(page_cache)))
        });
        Some(container.fold(machine, usize::min))
    }

    /// The size of the page cache of a container.
    fn page_cache_bytes(text: &str) -> usize {
        let numbers = text.lines().filter_map(|line| line.split_once(' '));
        let page_cache = numbers.filter(|(name, _)| matches!(*name, "active_file" | "inactive_file"));
        page_cache.filter_map(|(_, number)| number.trim().parse::<usize>().ok()).sum()
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    /// The available memory is unknown.
    pub(in crate::pool) fn available_memory() -> Option<usize> {
        None
    }

    /// An assumed size for systems without a query: 8 GiB.
    pub(in crate::pool) fn physical_memory() -> usize {
        8 << 30
    }
}

pub(super) use system::{available_memory, physical_memory};

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_part_of_physical_memory() {
        let (available, physical) = (available_memory().unwrap(), physical_memory());
        assert!(available <= physical && physical > 0);
    }
}
