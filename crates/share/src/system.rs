//! Wrappers of system calls: process identity, random bytes, file information and who has a file open.

use crate::errors::system_error;
use crate::libc_calls;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::rand::GetRandomFlags;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tensorferry_core::{Access, Result};

/// The id of this process.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// The effective user id of this process.
pub(crate) fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The bit `PF_EXITING` of the kernel's flags of a process. The kernel sets it before it closes the descriptors.
const EXITING: u64 = 4;

/// The start time of a process in clock ticks since boot; `None` for a process that does not exist, is ending, or is a
/// zombie.
///
/// # Errors
/// The system does not tell, for example because this process has too many open files.
pub(crate) fn start_time(process: u32) -> io::Result<Option<u64>> {
    match fs::read(format!("/proc/{process}/stat")) {
        Ok(text) => Ok(parse_start_time(&text)),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_start_time(text: &[u8]) -> Option<u64> {
    // The name may contain spaces and brackets, and ends at the last bracket.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // That was field 3. The flags are field 9, and the start time is field 22.
    if fields.nth(5)?.parse::<u64>().ok()? & EXITING != 0 {
        return None;
    }
    fields.nth(12)?.parse().ok()
}

/// Cryptographically random bytes.
pub(crate) fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < COUNT {
        match rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(system_error("cannot read random bytes", error)),
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

pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> Result<PeerCredentials> {
    let peer = libc_calls::peer_credentials(socket)
        .map_err(|error| system_error("cannot read the credentials of the peer", error))?;
    Ok(PeerCredentials { process: peer.pid as u32, user: peer.uid })
}

/// The number of descriptors that this process may open (`RLIMIT_NOFILE`).
pub(crate) fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// Opens the same file again: an open file description of its own, with this access mode.
pub(crate) fn reopen(descriptor: BorrowedFd<'_>, access: Access) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let mode = match access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    rustix::fs::open(path, mode | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| system_error("cannot reopen shared memory (is /proc mounted?)", error))
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
    let status =
        rustix::fs::fstat(descriptor).map_err(|error| system_error("cannot inspect shared memory", error))?;
    Ok(FileInfo {
        id: (status.st_dev, status.st_ino),
        bytes: status.st_size.max(0) as u64,
        is_regular: FileType::from_raw_mode(status.st_mode) == FileType::RegularFile,
    })
}

/// Whether another open file description of the file exists, in any process; `None` if the system does not tell. The
/// descriptor must come from [`reopen`].
pub(crate) fn is_open_elsewhere(descriptor: &OwnedFd) -> Option<bool> {
    libc_calls::is_open_elsewhere(descriptor.as_fd()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_a_start_time() {
        let own = start_time(process_id()).unwrap().unwrap();
        assert!(own > 0 && start_time(process_id()).unwrap() == Some(own));
        assert_eq!(start_time(u32::MAX).unwrap(), None);
    }

    #[test]
    fn processes_that_end_have_none() {
        let stat = |state: &str, flags: u64| {
            format!("7 (a) b) {state} 1 2 3 4 5 {flags} 1 2 3 4 5 6 7 8 9 10 11 12 55 1")
        };
        assert_eq!(parse_start_time(stat("S", 0x400_000).as_bytes()), Some(55));
        assert_eq!(parse_start_time(stat("R", 0x400_000 | EXITING).as_bytes()), None);
        assert_eq!(parse_start_time(stat("Z", 0x400_000).as_bytes()), None);
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
