//! Mappings of sealed memfds: creating them, checking received ones, mapping and unmapping.
//!
//! Every memfd is sealed against shrinking and growing before another process sees it. No process can make an access
//! to the memory fail with SIGBUS by truncating the file. A received descriptor without these seals is rejected.

use crate::errors::{protocol_error, system_error};
use crate::hints;
use crate::system::{self, FileId};
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use tensorferry_core::{Access, Error, ErrorKind, Result, file_size_limit};

/// The smallest page of every supported system.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The smallest mapping for which huge pages are requested.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The seals without which memory is not mapped.
const REQUIRED_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A mapped memfd, unmapped when this is dropped.
///
/// It gives out the address of the memory, and no reference to it: another process may write the memory at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    // Unmapped before the descriptor is closed.
    map: MmapRaw,
    descriptor: OwnedFd,
    access: Access,
    file_id: FileId,
}

impl Mapping {
    /// Creates a sealed memfd of at least `bytes` bytes, all zeros. Pages are allocated when they are first touched.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left, or the memory exceeds the limit on the size of files.
    pub(crate) fn create(bytes: usize) -> Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes exceed the address space"))
                    .with_hint(hints::SHARE_LESS)
            })?;
        let fail = |error| system_error(&format!("cannot create shared memory of {bytes} bytes"), error);
        file_size_limit::check(bytes as u64).map_err(fail)?;
        let descriptor = create_memfd()?;
        rustix::fs::ftruncate(&descriptor, bytes as u64).map_err(|error| fail(error.into()))?;
        rustix::fs::fcntl_add_seals(&descriptor, REQUIRED_SEALS | SealFlags::SEAL)
            .map_err(|error| system_error("cannot seal shared memory", error))?;
        let file_id = system::file_info(&descriptor)?.id;
        // The kernel does not count the description that `memfd_create` makes, so that `is_open_elsewhere` would see a
        // user who does not exist. Without another descriptor the memory serves as well, and is never recycled.
        let descriptor = system::reopen(descriptor.as_fd(), Access::ReadWrite).unwrap_or(descriptor);
        Self::map(descriptor, file_id, bytes, Access::ReadWrite)
    }

    fn map(descriptor: OwnedFd, file_id: FileId, bytes: usize, access: Access) -> Result<Self> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let map = match access {
            Access::ReadOnly => options.map_raw_read_only(&descriptor),
            Access::ReadWrite => options.map_raw(&descriptor),
        };
        let map =
            map.map_err(|error| system_error(&format!("cannot map shared memory of {bytes} bytes"), error))?;
        if bytes >= HUGE_PAGE_BYTES {
            // The advice may fail, which changes nothing.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Self { map, descriptor, access, file_id })
    }

    /// Replaces everything from `start` on by zeros, and returns those pages to the system.
    ///
    /// # Errors
    /// The system call fails.
    pub(crate) fn clear_from(&self, start: usize) -> Result<()> {
        let bytes = self.bytes().saturating_sub(start);
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.descriptor, flags, start as u64, bytes as u64)
            .map_err(|error| system_error("cannot clear shared memory", error))
    }

    pub(crate) fn data(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.file_id
    }
}

/// A received descriptor that passed all checks.
pub(crate) struct ReceivedMemfd<'a> {
    descriptor: &'a OwnedFd,
    file_id: FileId,
    bytes: usize,
    access: Access,
}

impl<'a> ReceivedMemfd<'a> {
    /// Checks a descriptor that another process sent.
    ///
    /// # Errors
    /// It is not a sealed memfd, is shorter than `announced` bytes, or does not permit the access.
    pub(crate) fn validate(received: &'a OwnedFd, announced: u64, access: Access) -> Result<Self> {
        let file = system::file_info(received)?;
        let seals = rustix::fs::fcntl_get_seals(received).ok().filter(|_| file.is_regular);
        let seals = seals
            .ok_or_else(|| protocol_error("the producer sent a descriptor that is not shared memory"))?;
        if !seals.contains(REQUIRED_SEALS) {
            return Err(protocol_error("the producer sent memory without seals against resizing"));
        }
        let size = file.bytes;
        if size < announced || size == 0 {
            return Err(protocol_error(format!(
                "the producer announced {announced} bytes and sent memory of {size} bytes"
            )));
        }
        let bytes = usize::try_from(size).ok().filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes =
            bytes.ok_or_else(|| protocol_error(format!("the producer sent memory of {size} bytes")))?;
        let mode = rustix::fs::fcntl_getfl(received)
            .map_err(|error| system_error("cannot inspect shared memory", error))?
            & OFlags::ACCMODE;
        if mode == OFlags::WRONLY || (access == Access::ReadWrite && mode != OFlags::RDWR) {
            return Err(protocol_error("the producer sent a descriptor without the announced access"));
        }
        Ok(Self { descriptor: received, file_id: file.id, bytes, access })
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.file_id
    }

    pub(crate) fn map(&self) -> Result<Mapping> {
        // The received one may permit more, and may be the sender's own description, which does not tell the sender that
        // the memory is in use here.
        let descriptor = system::reopen(self.descriptor.as_fd(), self.access)?;
        Mapping::map(descriptor, self.file_id, self.bytes, self.access)
    }
}

fn create_memfd() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems reject executable memory, and older ones reject the flag.
    rustix::fs::memfd_create(c"tensorferry", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"tensorferry", flags))
        .map_err(|error| system_error("cannot create shared memory", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A memfd with these seals.
    fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
        let descriptor = create_memfd().unwrap();
        rustix::fs::ftruncate(&descriptor, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&descriptor, seals).unwrap();
        descriptor
    }

    #[test]
    fn mappings_are_sealed_zeros() {
        let mapping = Mapping::create(5000).unwrap();
        assert_eq!((mapping.bytes(), mapping.access()), (8192, Access::ReadWrite));
        let mut bytes = [1; 8192];
        let memory = File::open("/proc/self/mem").unwrap();
        memory.read_exact_at(&mut bytes, mapping.data() as u64).unwrap();
        assert_eq!(bytes, [0; 8192]);
        for bytes in [0, 4096, 16384] {
            assert_eq!(rustix::fs::ftruncate(mapping.descriptor(), bytes), Err(Errno::PERM));
        }
        assert_eq!(Mapping::create(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn memory_is_cleared_to_its_end() {
        let mapping = Mapping::create(3 * PAGE_BYTES).unwrap();
        let memory = File::from(mapping.descriptor().try_clone().unwrap());
        for start in [0, 1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 100, 3 * PAGE_BYTES] {
            memory.write_all_at(&[7; 3 * PAGE_BYTES], 0).unwrap();
            mapping.clear_from(start).unwrap();
            let mut bytes = [1; 3 * PAGE_BYTES];
            let own_memory = File::open("/proc/self/mem").unwrap();
            own_memory.read_exact_at(&mut bytes, mapping.data() as u64).unwrap();
            assert!(bytes[..start].iter().all(|&byte| byte == 7), "{start}");
            assert!(bytes[start..].iter().all(|&byte| byte == 0), "{start}");
        }
    }

    #[test]
    fn invalid_descriptors_are_rejected() {
        let validate = |descriptor: &OwnedFd, access| {
            ReceivedMemfd::validate(descriptor, 4096, access).and_then(|memfd| memfd.map())
        };
        let fact = |descriptor: &OwnedFd, access| validate(descriptor, access).unwrap_err().fact().to_owned();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(fact(&reader.into(), Access::ReadOnly).contains("not shared memory"));
        let file = File::open("/proc/self/exe").unwrap();
        assert!(fact(&file.into(), Access::ReadOnly).contains("not shared memory"));
        for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
            assert!(fact(&memfd(4096, seals), Access::ReadOnly).contains("without seals"));
        }
        assert!(fact(&memfd(4095, REQUIRED_SEALS), Access::ReadOnly).contains("announced 4096 bytes"));
        let read_only = memfd(4096, REQUIRED_SEALS);
        let read_only = system::reopen(read_only.as_fd(), Access::ReadOnly).unwrap();
        assert!(fact(&read_only, Access::ReadWrite).contains("without the announced access"));
        let sealed = memfd(4096, REQUIRED_SEALS | SealFlags::WRITE);
        assert_eq!(validate(&sealed, Access::ReadWrite).unwrap_err().errno(), Some(libc::EPERM));
    }
}
