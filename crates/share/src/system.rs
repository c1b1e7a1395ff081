//! What this crate asks of the system, each call with a result.

use crate::errors::{failed, last};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use tensorferry_core::{Access, Result};

/// The number of this process.
pub(crate) fn process() -> u32 {
    std::process::id()
}

/// The user whose rights this process has.
pub(crate) fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// When a process began, in the system's ticks since the machine did; `None` where there is no such process, or
/// where it has ended and only its parent has not asked yet.
pub(crate) fn start_time(process: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything, spaces and brackets too, and ends at the last bracket.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // The first was field 3, and the time is field 22.
    fields.nth(18)?.parse().ok()
}

/// Bytes that nobody can guess.
pub(crate) fn random<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < COUNT {
        let rest = &mut bytes[filled..];
        // SAFETY: as many bytes as there are may be written.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if got > 0 {
            filled += got as usize;
        } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(last("random bytes cannot be had"));
        }
    }
    Ok(bytes)
}

/// Whether both are equal, in a time that does not tell where they differ.
pub(crate) fn same(left: &[u8; 16], right: &[u8; 16]) -> bool {
    let difference = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// Who is at the other end of a socket: process and user.
pub(crate) fn peer(socket: RawFd) -> Result<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both point to memory of the right size that lives through the call.
    let status = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    if status != 0 {
        return Err(last("the other process cannot be identified"));
    }
    Ok((peer.pid as u32, peer.uid))
}

/// How many descriptors this process may have.
pub(crate) fn most_descriptors() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (status == 0).then_some(limit.rlim_cur)
}

/// The same file, opened anew: a descriptor with rights and locks of its own.
pub(crate) fn reopen(descriptor: RawFd, access: Access) -> Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{descriptor}"))
        .map_err(|_| failed("a descriptor has no path", &io::ErrorKind::InvalidInput.into()))?;
    let mode = match access {
        Access::ReadOnly => libc::O_RDONLY,
        Access::ReadWrite => libc::O_RDWR,
    };
    // SAFETY: the path ends with a zero byte and lives through the call.
    let opened = unsafe { libc::open(path.as_ptr(), mode | libc::O_CLOEXEC) };
    if opened < 0 {
        return Err(last("shared memory cannot be opened anew (is /proc there?)"));
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Device and number of a file, its size, and whether it is an ordinary one.
pub(crate) fn identity(descriptor: &OwnedFd) -> Result<((u64, u64), u64, bool)> {
    // SAFETY: plain numbers, for which zeros are values.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives through the call, and the descriptor is open.
    if unsafe { libc::fstat(descriptor.as_raw_fd(), &raw mut status) } != 0 {
        return Err(last("shared memory cannot be looked at"));
    }
    let ordinary = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    Ok(((status.st_dev, status.st_ino), status.st_size.max(0) as u64, ordinary))
}

fn lock_of(kind: i32) -> libc::flock {
    // SAFETY: plain numbers, for which zeros are values: from the first byte to the last.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock
}

/// Leaves a mark on shared memory that it is in use, which goes when the descriptor is closed everywhere. A system
/// that has no such marks is not an error: the lease is what counts, and this covers its gaps.
pub(crate) fn mark_used(descriptor: &OwnedFd) {
    let lock = lock_of(libc::F_RDLCK);
    // SAFETY: the struct lives through the call.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
}

/// Whether somebody with a descriptor of their own has left a mark.
pub(crate) fn is_used_elsewhere(descriptor: &OwnedFd) -> bool {
    let mut lock = lock_of(libc::F_WRLCK);
    // SAFETY: the struct lives through the call, and the system may write it.
    let status = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    status != 0 || i32::from(lock.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_a_time_of_start() {
        let own = start_time(process()).unwrap();
        assert!(own > 0 && start_time(process()) == Some(own));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn comparison_sees_every_byte() {
        let left = random::<16>().unwrap();
        for index in 0..16 {
            let mut right = left;
            right[index] ^= 1;
            assert!(!same(&left, &right));
        }
        assert!(same(&left, &left.clone()));
        assert_ne!(random::<16>().unwrap(), left);
    }
}
