//! Forks, privileges, and access to shared memory: the calls of the tests that the compiler cannot check.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};
use tensorferry_core::Access;
use tensorferry_share::Arena;

/// How a child of a fork ends.
#[derive(Clone, Copy)]
pub(crate) enum ChildEnd {
    /// At once (`_exit`).
    Immediate,
    /// After its exit handlers (`exit`).
    WithHandlers,
}

/// Forks. The child ends with status 0 if the closure returns true, and with status 1 if it returns false or panics.
///
/// The closure runs in a process of one thread: it must do only what the crates promise to work after a fork.
pub(crate) fn fork(end: ChildEnd, child: impl FnOnce() -> bool) -> Pid {
    // SAFETY: the child of a process with several threads must not rely on a thread that it lacks, and must not return
    // into the frames of its parent. The fork handlers of the crates, which these tests test, uphold the first clause;
    // both arms of the `match` below end the child.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let is_good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        match end {
            // SAFETY: `_exit` has no requirement.
            ChildEnd::Immediate => unsafe { libc::_exit(i32::from(!is_good)) },
            ChildEnd::WithHandlers => std::process::exit(i32::from(!is_good)),
        }
    }
    Pid::from_raw(process).unwrap()
}

/// Waits for a child, and returns its status.
pub(crate) fn wait(process: Pid) -> i32 {
    let ended = rustix::io::retry_on_intr(|| waitpid(Some(process), WaitOptions::empty()));
    ended.unwrap().unwrap().1.as_raw()
}

/// Has a signal end this process after this time, if it hangs.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: `alarm` has no requirement.
    unsafe { libc::alarm(seconds) };
}

/// The bytes that were written to a socket and that its peer has not read yet.
pub(crate) fn unread_bytes(stream: &UnixStream) -> i32 {
    let mut count = 0;
    // SAFETY: `ioctl` with this request writes an `int`. The pointer is to a local variable of that type, and `stream`
    // keeps the descriptor open.
    let status = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    assert_eq!(status, 0);
    count
}

/// Makes this process an ordinary user if it runs as root: some limits do not apply to root.
pub(crate) fn drop_privileges() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // SAFETY: `setgroups` permits null for an empty list, and the other two have no requirement. The C library changes
    // all threads, which rustix does not.
    let changed =
        unsafe { (libc::setgroups(0, std::ptr::null()), libc::setgid(NOBODY), libc::setuid(NOBODY)) };
    assert_eq!(changed, (0, 0, 0));
    // A process that has changed its user cannot read its own /proc entries, unless it is dumpable.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).unwrap();
}

/// Tries to make the mapping of an arena writable.
pub(crate) fn make_writable(arena: &Arena) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: `mprotect` requires that nothing relies on the old protection. The range is the mapping of `arena`, for
    // which its methods return addresses only. More access breaks no holder of one.
    let status = unsafe { libc::mprotect(arena.data().cast(), arena.bytes(), protection) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of an arena. Other threads and processes may write them, hence the atomics.
fn shared_bytes(arena: &Arena, offset: usize, count: usize) -> &[AtomicU8] {
    assert!(offset.checked_add(count).is_some_and(|end| end <= arena.bytes()));
    // SAFETY: `from_raw_parts` requires `count` valid elements for the lifetime of the result. The assertion checks the
    // range against the mapping, which `arena` keeps. All accesses of this process are atomic: this is the only
    // function of these tests that dereferences an address.
    unsafe { std::slice::from_raw_parts(arena.data().add(offset).cast(), count) }
}

/// Reads bytes of an arena.
pub(crate) fn read_bytes(arena: &Arena, offset: usize, count: usize) -> Vec<u8> {
    shared_bytes(arena, offset, count).iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Writes bytes of an arena.
pub(crate) fn write_bytes(arena: &Arena, offset: usize, bytes: &[u8]) {
    assert_eq!(arena.access(), Access::ReadWrite);
    for (shared, byte) in shared_bytes(arena, offset, bytes.len()).iter().zip(bytes) {
        shared.store(*byte, Ordering::Relaxed);
    }
}
