//! Mappings of sealed memfds: creating them, checking received ones, mapping and unmapping.
//!
//! Every memfd is sealed against shrinking and growing before another process sees it. No process can make an access
//! to the memory fail with SIGBUS by truncating the file. A received descriptor without these seals is rejected.

use crate::errors::{last_system_error, protocol_error};
use crate::hints;
use crate::system::{self, FileId};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// The smallest page of every supported system.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The smallest mapping for which huge pages are requested.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The seals without which memory is not mapped.
const REQUIRED_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A mapped memfd, unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    descriptor: OwnedFd,
    address: NonNull<u8>,
    bytes: usize,
    access: Access,
    file_id: FileId,
}

// SAFETY: an address and what keeps it mapped. The holders of the address synchronise reads and writes, as for any
// tensor's memory; any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a sealed memfd of at least `bytes` bytes, all zeros. Pages are allocated when they are first touched.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub(crate) fn create(bytes: usize) -> Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes exceed the address space"))
                    .with_hint(hints::SHARE_LESS)
            })?;
        let descriptor = create_memfd()?;
        // SAFETY: the descriptor is open, and this function owns it.
        if unsafe { libc::ftruncate(descriptor.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(last_system_error(&format!("cannot create shared memory of {bytes} bytes")));
        }
        let seals = REQUIRED_SEALS | libc::F_SEAL_SEAL;
        // SAFETY: as above.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(last_system_error("cannot seal shared memory"));
        }
        let file_id = system::file_info(&descriptor)?.id;
        Self::map(descriptor, file_id, bytes, Access::ReadWrite)
    }

    fn map(descriptor: OwnedFd, file_id: FileId, bytes: usize, access: Access) -> Result<Self> {
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: the kernel chooses the address, so the call affects no existing mapping.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor.as_raw_fd(), 0)
        };
        let mapped = if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast::<u8>()) };
        let address =
            mapped.ok_or_else(|| last_system_error(&format!("cannot map shared memory of {bytes} bytes")))?;
        if bytes >= HUGE_PAGE_BYTES {
            // SAFETY: the range is exactly the new mapping. The advice may fail, which changes nothing.
            unsafe { libc::madvise(address.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { descriptor, address, bytes, access, file_id })
    }

    pub(crate) fn data(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with this length, and its only owner is being dropped.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
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
        // SAFETY: the descriptor is open. The call fails for files without seals.
        let seals = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GET_SEALS) };
        if !file.is_regular || seals < 0 {
            return Err(protocol_error("the producer sent a descriptor that is not shared memory"));
        }
        if seals & REQUIRED_SEALS != REQUIRED_SEALS {
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
        // SAFETY: the descriptor is open.
        let mode = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GETFL) } & libc::O_ACCMODE;
        if mode == libc::O_WRONLY || (access == Access::ReadWrite && mode != libc::O_RDWR) {
            return Err(protocol_error("the producer sent a descriptor without the announced access"));
        }
        Ok(Self { descriptor: received, file_id: file.id, bytes, access })
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.file_id
    }

    pub(crate) fn map(&self) -> Result<Mapping> {
        // The received descriptor shares its locks with the sender's.
        let descriptor = system::reopen(self.descriptor.as_raw_fd(), self.access)?;
        system::lock_shared(&descriptor);
        Mapping::map(descriptor, self.file_id, self.bytes, self.access)
    }
}

fn create_memfd() -> Result<OwnedFd> {
    let create = |flags: libc::c_uint| {
        // SAFETY: the name ends with a zero byte.
        unsafe { libc::memfd_create(c"tensorferry".as_ptr(), flags) }
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Some systems reject executable memory, and older ones reject the flag.
    let mut descriptor = create(flags | libc::MFD_NOEXEC_SEAL);
    if descriptor < 0 {
        descriptor = create(flags);
    }
    if descriptor < 0 {
        return Err(last_system_error("cannot create shared memory"));
    }
    // SAFETY: the call just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memfd with these seals.
    fn memfd(bytes: i64, seals: i32) -> OwnedFd {
        let descriptor = create_memfd().unwrap();
        // SAFETY: the descriptor is open.
        unsafe {
            assert_eq!(libc::ftruncate(descriptor.as_raw_fd(), bytes), 0);
            assert_eq!(libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        }
        descriptor
    }

    #[test]
    fn mappings_are_sealed_zeros() {
        let mapping = Mapping::create(5000).unwrap();
        assert_eq!((mapping.bytes(), mapping.access()), (8192, Access::ReadWrite));
        // SAFETY: the memory is mapped, and nothing writes it.
        assert!(unsafe { std::slice::from_raw_parts(mapping.data(), 8192) }.iter().all(|&byte| byte == 0));
        for bytes in [0, 4096, 16384] {
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::ftruncate(mapping.descriptor().as_raw_fd(), bytes) }, -1);
        }
        assert_eq!(Mapping::create(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn invalid_descriptors_are_rejected() {
        let validate = |descriptor: &OwnedFd, access| {
            ReceivedMemfd::validate(descriptor, 4096, access).and_then(|memfd| memfd.map())
        };
        let fact = |descriptor: &OwnedFd, access| validate(descriptor, access).unwrap_err().fact().to_owned();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(fact(&reader.into(), Access::ReadOnly).contains("not shared memory"));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(fact(&file.into(), Access::ReadOnly).contains("not shared memory"));
        for seals in [0, libc::F_SEAL_GROW, libc::F_SEAL_SHRINK] {
            assert!(fact(&memfd(4096, seals), Access::ReadOnly).contains("without seals"));
        }
        assert!(fact(&memfd(4095, REQUIRED_SEALS), Access::ReadOnly).contains("announced 4096 bytes"));
        let read_only = memfd(4096, REQUIRED_SEALS);
        let read_only = system::reopen(read_only.as_raw_fd(), Access::ReadOnly).unwrap();
        assert!(fact(&read_only, Access::ReadWrite).contains("without the announced access"));
        let sealed = memfd(4096, REQUIRED_SEALS | libc::F_SEAL_WRITE);
        assert_eq!(validate(&sealed, Access::ReadWrite).unwrap_err().errno(), Some(libc::EPERM));
    }
}
