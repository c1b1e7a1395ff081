//! Memory that other processes can be handed: files without a name, mapped.
//!
//! # What it promises
//!
//! - The memory of an [`Arena`] stays where it is and as long as it is, whoever else has it: it is sealed against
//!   shrinking and growing before anybody sees it, so that touching it never ends a process (SIGBUS) because another one
//!   shortened it. What comes from others is mapped only if it is sealed so too.
//! - A mapping is valid for as long as its `Arena` lives, also when the process that made the memory is dead: the system
//!   keeps the memory until the last descriptor and the last mapping are gone, and then by itself.
//! - An arena that was attached as read-only cannot be written here: the mapping and the descriptor both refuse. The
//!   descriptor can be opened anew for writing by a program of the same user that means to (through `/proc`), as it could
//!   also write into our memory with a debugger. It is a guard against mistakes.
//!
//! # Who sees what
//!
//! One arena holds many tensors, because a descriptor for each would run out. Whoever is handed one of them can read the
//! others in its arena, and the gaps. All are of one user, and a tensor over 16 MiB has an arena of its own.
//!
//! # After a fork
//!
//! Arenas are shared memory in the child as well: what either writes, both see, where ordinary memory would have become
//! two copies. Neither lays new tensors over what the other may still use: the child begins with an arena of its own, and
//! the parent never uses again what was there at the fork ([`crate::memory::arena_block`]).

use crate::errors::{broken, last};
use crate::memory::registry;
use crate::system;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// Bytes of a page, the smallest that there is.
pub(crate) const PAGE: usize = 4096;
/// Memory of this size and above is better in huge pages.
const HUGE: usize = 2 << 20;
/// The seals without which memory is not touched.
const NEEDED: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Shared memory that is mapped here, made by this process or attached from another.
#[derive(Debug)]
pub struct Arena {
    descriptor: OwnedFd,
    address: NonNull<u8>,
    bytes: usize,
    access: Access,
    key: (u64, u64),
    made: bool,
    forks: usize,
}

// SAFETY: an address and what keeps it mapped. Reading and writing through it is for whoever holds the address, as with
// any tensor's memory; unmapping may happen on any thread.
unsafe impl Send for Arena {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for Arena {}

impl Arena {
    /// New memory of at least that many bytes, all zeros, which takes no room before it is touched.
    ///
    /// # Errors
    /// When the system has no descriptor or no room for it.
    pub fn new(bytes: usize) -> Result<Arc<Self>> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes are more than memory can have"))
                    .with_advice("share less at a time")
            })?;
        let descriptor = make()?;
        // SAFETY: the descriptor is open and ours.
        if unsafe { libc::ftruncate(descriptor.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(last(&format!("shared memory of {bytes} bytes cannot be made")));
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, NEEDED | libc::F_SEAL_SEAL) } != 0
        {
            return Err(last("shared memory cannot be sealed"));
        }
        let (key, _, _) = system::identity(&descriptor)?;
        Ok(registry::keep(Self::map(descriptor, key, bytes, Access::ReadWrite, true)?))
    }

    /// Memory that another process handed over, at least `announced` bytes of it. Where it is mapped here already, that
    /// mapping is given back.
    ///
    /// # Errors
    /// When it is not sealed memory, is too short, or may not be accessed so.
    pub(crate) fn attach(received: &OwnedFd, announced: u64, access: Access) -> Result<Arc<Self>> {
        let (key, size, ordinary) = system::identity(received)?;
        // SAFETY: the descriptor is open. For what has no seals the answer is an error.
        let seals = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GET_SEALS) };
        if !ordinary || seals < 0 {
            return Err(broken("the producer sent a descriptor that is no shared memory"));
        }
        if seals & NEEDED != NEEDED {
            return Err(broken("the producer sent memory that could be shortened underneath"));
        }
        if size < announced || size == 0 {
            return Err(broken(format!(
                "the producer announced {announced} bytes and sent memory of {size}"
            )));
        }
        let bytes = usize::try_from(size).ok().filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| broken(format!("the producer sent memory of {size} bytes")))?;
        // SAFETY: the descriptor is open.
        let mode = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GETFL) } & libc::O_ACCMODE;
        if mode == libc::O_WRONLY || (access == Access::ReadWrite && mode != libc::O_RDWR) {
            return Err(broken("the producer sent memory that may not be accessed as it says"));
        }
        if let Some(known) = registry::known(key, access) {
            return Ok(known);
        }
        // A descriptor of our own: the one that came shares its locks with the sender's.
        let descriptor = system::reopen(received.as_raw_fd(), access)?;
        system::mark_used(&descriptor);
        Ok(registry::keep(Self::map(descriptor, key, bytes, access, false)?))
    }

    fn map(
        descriptor: OwnedFd,
        key: (u64, u64),
        bytes: usize,
        access: Access,
        made: bool,
    ) -> Result<Arc<Self>> {
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor.as_raw_fd(), 0)
        };
        let mapped = if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast::<u8>()) };
        let address =
            mapped.ok_or_else(|| last(&format!("shared memory of {bytes} bytes cannot be mapped")))?;
        if bytes >= HUGE {
            // SAFETY: exactly the new mapping. It is advice: a system that has no huge pages for this refuses.
            unsafe { libc::madvise(address.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Arc::new(Self { descriptor, address, bytes, access, key, made, forks: registry::forks() }))
    }

    /// The first byte. It may be written only if [`Arena::access`] says so.
    pub fn data(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What may be done to it here.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether this process made it, or had it from a parent that did.
    pub fn is_own(&self) -> bool {
        self.made
    }

    /// The descriptor, for as long as the arena lives.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Device and number of the file behind it.
    pub(crate) fn key(&self) -> (u64, u64) {
        self.key
    }

    /// Whether another process may be using it: one that attached it, by whatever way, or a child of a fork.
    pub(crate) fn may_be_used_elsewhere(&self) -> bool {
        self.forks != registry::forks() || system::is_used_elsewhere(&self.descriptor)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        registry::forget(self);
        // SAFETY: mapped by us with this length, and nobody has the arena any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

fn make() -> Result<OwnedFd> {
    let create = |flags: libc::c_uint| {
        // SAFETY: the name ends with a zero byte.
        unsafe { libc::memfd_create(c"tensorferry".as_ptr(), flags) }
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Systems may refuse memory that could be executed; older ones do not know the flag.
    let mut descriptor = create(flags | libc::MFD_NOEXEC_SEAL);
    if descriptor < 0 {
        descriptor = create(flags);
    }
    if descriptor < 0 {
        return Err(last("shared memory cannot be made"));
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in memory with these seals.
    fn file(bytes: i64, seals: i32) -> OwnedFd {
        let descriptor = make().unwrap();
        // SAFETY: the descriptor is open.
        unsafe {
            assert_eq!(libc::ftruncate(descriptor.as_raw_fd(), bytes), 0);
            assert_eq!(libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        }
        descriptor
    }

    #[test]
    fn arenas_are_sealed_zeros() {
        let arena = Arena::new(5000).unwrap();
        assert_eq!((arena.bytes(), arena.access(), arena.is_own()), (8192, Access::ReadWrite, true));
        // SAFETY: the memory is mapped, and nobody writes it.
        assert!(unsafe { std::slice::from_raw_parts(arena.data(), 8192) }.iter().all(|&byte| byte == 0));
        for bytes in [0, 4096, 16384] {
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::ftruncate(arena.descriptor(), bytes) }, -1);
        }
        assert_eq!(Arena::new(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn what_is_mapped_already_is_mapped_once() {
        let arena = Arena::new(100).unwrap();
        let again = Arena::attach(&arena.descriptor, 4096, Access::ReadWrite).unwrap();
        assert!(Arc::ptr_eq(&arena, &again));
        let read_only = Arena::attach(&arena.descriptor, 10, Access::ReadOnly).unwrap();
        assert!(read_only.data() != arena.data() && arena.may_be_used_elsewhere());
        // SAFETY: one byte of memory that is mapped twice, in one thread.
        unsafe {
            arena.data().write_volatile(7);
            assert_eq!(read_only.data().read_volatile(), 7);
        }
        drop(read_only);
        assert!(!arena.may_be_used_elsewhere());
    }

    #[test]
    fn descriptors_that_are_wrong_are_refused() {
        let fact = |descriptor: &OwnedFd, access| {
            Arena::attach(descriptor, 4096, access).unwrap_err().fact().to_owned()
        };
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(fact(&reader.into(), Access::ReadOnly).contains("no shared memory"));
        let plain = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(fact(&plain.into(), Access::ReadOnly).contains("no shared memory"));
        for seals in [0, libc::F_SEAL_GROW, libc::F_SEAL_SHRINK] {
            assert!(fact(&file(4096, seals), Access::ReadOnly).contains("shortened underneath"));
        }
        assert!(fact(&file(4095, NEEDED), Access::ReadOnly).contains("announced 4096 bytes"));
        let read_only = system::reopen(file(4096, NEEDED).as_raw_fd(), Access::ReadOnly).unwrap();
        assert!(fact(&read_only, Access::ReadWrite).contains("may not be accessed"));
        let sealed = file(4096, NEEDED | libc::F_SEAL_WRITE);
        assert_eq!(Arena::attach(&sealed, 4096, Access::ReadWrite).unwrap_err().errno(), Some(libc::EPERM));
    }
}
