//! Wrappers of system calls: process identity, random bytes, file information and file locks.

use crate::errors::{last_system_error, system_error};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use tensorferry_core::{Access, Result};

/// The id of this process.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// The effective user id of this process.
pub(crate) fn user_id() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The start time of a process in clock ticks since boot; `None` for a process that does not exist or is a zombie.
pub(crate) fn start_time(process: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name may contain spaces and brackets, and ends at the last bracket.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // That was field 3, and the start time is field 22.
    fields.nth(18)?.parse().ok()
}

/// Cryptographically random bytes.
pub(crate) fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < COUNT {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length describe `rest`, which may be written.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if got > 0 {
            filled += got as usize;
        } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(last_system_error("cannot read random bytes"));
        }
    }
    Ok(bytes)
}

/// Compares two secrets in constant time, so that the duration does not tell where they differ.
pub(crate) fn constant_time_eq(left: &[u8; 16], right: &[u8; 16]) -> bool {
    let difference = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// The process and the user at the other end of a socket.
pub(crate) struct PeerCredentials {
    pub(crate) process: u32,
    pub(crate) user: u32,
}

pub(crate) fn peer_credentials(socket: RawFd) -> Result<PeerCredentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both point to memory of the right size that lives until the call returns.
    let status = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    if status != 0 {
        return Err(last_system_error("cannot read the credentials of the peer"));
    }
    Ok(PeerCredentials { process: peer.pid as u32, user: peer.uid })
}

/// The number of descriptors that this process may open (`RLIMIT_NOFILE`).
pub(crate) fn descriptor_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives until the call returns.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (status == 0).then_some(limit.rlim_cur)
}

/// Opens the same file again: a descriptor with an access mode and locks of its own.
pub(crate) fn reopen(descriptor: RawFd, access: Access) -> Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{descriptor}"))
        .map_err(|_| system_error("a descriptor has no path", &io::ErrorKind::InvalidInput.into()))?;
    let mode = match access {
        Access::ReadOnly => libc::O_RDONLY,
        Access::ReadWrite => libc::O_RDWR,
    };
    // SAFETY: the path ends with a zero byte and lives until the call returns.
    let opened = unsafe { libc::open(path.as_ptr(), mode | libc::O_CLOEXEC) };
    if opened < 0 {
        return Err(last_system_error("cannot reopen shared memory (is /proc mounted?)"));
    }
    // SAFETY: the call just opened the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Device and inode: identifies a file on this machine.
pub(crate) type FileId = (u64, u64);

/// What `fstat` says about a descriptor.
pub(crate) struct FileInfo {
    pub(crate) id: FileId,
    pub(crate) bytes: u64,
    pub(crate) is_regular: bool,
}

pub(crate) fn file_info(descriptor: &OwnedFd) -> Result<FileInfo> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives until the call returns, and the descriptor is open.
    if unsafe { libc::fstat(descriptor.as_raw_fd(), &raw mut status) } != 0 {
        return Err(last_system_error("cannot inspect shared memory"));
    }
    Ok(FileInfo {
        id: (status.st_dev, status.st_ino),
        bytes: status.st_size.max(0) as u64,
        is_regular: status.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

fn whole_file_lock(kind: i32) -> libc::flock {
    // SAFETY: all fields are integers, for which zero is valid; zero offsets and lengths mean the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock
}

/// Takes a shared lock that says that the memory is in use. The lock ends when the descriptor is closed in every
/// process.
///
/// A system without such locks is not an error: leases are what counts, and the lock only covers what they miss.
pub(crate) fn lock_shared(descriptor: &OwnedFd) {
    let lock = whole_file_lock(libc::F_RDLCK);
    // SAFETY: the struct lives until the call returns.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
}

/// Whether another open file description holds a lock, or the system does not tell.
pub(crate) fn is_locked_elsewhere(descriptor: &OwnedFd) -> bool {
    let mut lock = whole_file_lock(libc::F_WRLCK);
    // SAFETY: the struct lives until the call returns, and the system may write it.
    let status = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    status != 0 || i32::from(lock.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_a_start_time() {
        let own = start_time(process_id()).unwrap();
        assert!(own > 0 && start_time(process_id()) == Some(own));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn comparison_sees_every_byte() {
        let left = random_bytes::<16>().unwrap();
        for index in 0..16 {
            let mut right = left;
            right[index] ^= 1;
            assert!(!constant_time_eq(&left, &right));
        }
        assert!(constant_time_eq(&left, &left.clone()));
        assert_ne!(random_bytes::<16>().unwrap(), left);
    }
}
