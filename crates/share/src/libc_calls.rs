//! Calls of the C library that rustix lacks, behind safe functions.
//!
//! - Credentials of a peer: rustix reads the process id into a `NonZeroI32`, and the kernel reports 0 for a process of
//!   another pid namespace.
//! - File leases, which tell whether a file is open elsewhere: rustix lacks them.
//! - Handlers of forks and of the end of the process, and the signal mask of a thread: they belong to the C library,
//!   and rustix wraps system calls.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process and the user at the other end of a socket (`SO_PEERCRED`). The process id is 0 if the peer is in
/// another pid namespace.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    // Not root, should the kernel ever write less.
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `getsockopt` requires a writable buffer of `length` bytes and a writable length. `peer` has that size,
    // and both are locals of this function. Every bit pattern is a valid `ucred`, whose fields are integers.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if status == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// `F_SETSIG` of Linux, which the libc crate lacks for most targets.
const F_SETSIG: libc::c_int = 10;

/// Whether any other open file description of the file exists: a descriptor of any process, one in flight over a socket,
/// or a mapping whose descriptor was closed. The descriptor must have been opened by path, as `system::reopen` does.
///
/// The kernel grants a write lease (`F_SETLEASE`) only if nobody else has the file open. The lease is returned at
/// once: somebody who opens the file while it is held waits, and this process receives a signal. `SIGURG` is ignored
/// by default, while the default `SIGIO` would end the process.
///
/// # Errors
/// The system has no leases, or the file belongs to another user.
pub(crate) fn is_open_elsewhere(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let call = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: `fcntl` requires an argument of the type that the command takes: both commands below take an integer. The
        // descriptor is open while it is borrowed.
        let status = unsafe { libc::fcntl(descriptor.as_raw_fd(), command, argument) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    call(F_SETSIG, libc::SIGURG)?;
    match call(libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => call(libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Blocks all signals of the thread that creates it, until it is dropped. Threads that are started meanwhile inherit
/// the mask.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
    /// The mask belongs to a thread, so this must not be dropped on another.
    _not_send: PhantomData<*const ()>,
}

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` and the third argument of `pthread_sigmask` require writable memory for a `sigset_t`,
        // the second argument an initialised one. `all` and `before` have that type, and `sigfillset` initialises
        // `all`. Both calls fail only for an invalid argument, so `before` is initialised after them.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _not_send: PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `pthread_sigmask` requires an initialised set, which `new` stored in `before`, and permits null for
        // the old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Calls a function when the process exits.
pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: `atexit` requires a function that takes nothing, returns nothing and is valid until the process exits.
    // The type of `handler` says so; the C library removes the handlers of a library that is unloaded.
    unsafe { libc::atexit(handler) };
}

/// Calls functions at every `fork`, on the thread that forks: before it, and after it in the parent and in the child.
///
/// This is safe although the child of a process with several threads may do little: the caller of `fork` promises
/// what POSIX requires of it. The handlers keep their part of that promise by the locks that they take.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: `pthread_atfork` requires functions that take nothing, return nothing and are valid until the process
    // exits. Their types say so; the C library removes the handlers of a library that is unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use tensorferry_core::Access;

    /// The blocked signals of this thread, one bit each.
    fn blocked_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(blocked.trim(), 16).unwrap()
    }

    #[test]
    fn signals_are_blocked_until_the_drop() {
        let before = blocked_signals();
        let blocked = BlockedSignals::new();
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGRTMAX()] {
            assert_eq!(blocked_signals() >> (signal - 1) & 1, 1, "{signal}");
        }
        drop(blocked);
        assert_eq!(blocked_signals(), before);
    }

    #[test]
    fn a_peer_has_a_process_and_a_user() {
        let (left, _right) = UnixStream::pair().unwrap();
        let peer = peer_credentials(left.as_fd()).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!((peer.pid as u32, peer.uid), (std::process::id(), user));
        let (pipe, _writer) = io::pipe().unwrap();
        let error = peer_credentials(pipe.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn other_descriptions_and_their_mappings_are_seen() {
        let memfd = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memfd, 4096).unwrap();
        let own = system::reopen(memfd.as_fd(), Access::ReadWrite).unwrap();
        drop(memfd);
        let own_map = memmap2::MmapOptions::new().map_raw(&own).unwrap();
        let duplicate = own.try_clone().unwrap();
        assert!(!is_open_elsewhere(own.as_fd()).unwrap());
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let other = system::reopen(own.as_fd(), access).unwrap();
            assert!(is_open_elsewhere(own.as_fd()).unwrap());
            let map = memmap2::MmapOptions::new().map_raw_read_only(&other).unwrap();
            drop(other);
            assert!(is_open_elsewhere(own.as_fd()).unwrap());
            drop(map);
            assert!(!is_open_elsewhere(own.as_fd()).unwrap());
        }
        let (pipe, _writer) = io::pipe().unwrap();
        assert!(is_open_elsewhere(pipe.as_fd()).is_err());
        drop((own_map, duplicate));
    }
}
