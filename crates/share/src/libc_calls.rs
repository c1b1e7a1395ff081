//! Calls of the C library that rustix lacks, behind safe functions.
//!
//! - Credentials of a peer: rustix reads the process id into a `NonZeroI32`, and the kernel reports 0 for a process of
//!   another pid namespace.
//! - Locks of open file descriptions: rustix has the locks of a process, which end when any descriptor is closed.
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

/// A lock of this kind on the whole file: a length of zero extends to its end.
fn whole_file_lock(kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Takes a shared lock for the open file description, without waiting.
pub(crate) fn lock_shared(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let lock = whole_file_lock(libc::F_RDLCK);
    // SAFETY: `F_OFD_SETLK` requires a pointer to a `flock`, which it reads. `lock` is one, and a local of this
    // function.
    let status = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether another open file description holds a lock.
pub(crate) fn is_locked_elsewhere(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let mut lock = whole_file_lock(libc::F_WRLCK);
    // SAFETY: `F_OFD_GETLK` requires a pointer to a `flock`, which it reads and writes. `lock` is one, mutable, and a
    // local of this function.
    let status = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if status == 0 { Ok(i32::from(lock.l_type) != libc::F_UNLCK) } else { Err(io::Error::last_os_error()) }
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
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

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
    fn locks_of_other_descriptions_are_seen() {
        let open = || std::fs::File::open("/proc/self/exe").unwrap();
        let (left, right) = (open(), open());
        assert!(!is_locked_elsewhere(left.as_fd()).unwrap());
        lock_shared(right.as_fd()).unwrap();
        assert!(is_locked_elsewhere(left.as_fd()).unwrap());
        // The lock belongs to the description: its own descriptors do not see it, nor does closing another one end it.
        assert!(!is_locked_elsewhere(right.as_fd()).unwrap());
        drop(open());
        assert!(is_locked_elsewhere(left.as_fd()).unwrap());
        drop(right);
        assert!(!is_locked_elsewhere(left.as_fd()).unwrap());
    }
}
