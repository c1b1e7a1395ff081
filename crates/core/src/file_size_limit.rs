//! The limit of the process on the size of files (`RLIMIT_FSIZE`), checked before the kernel does.
//!
//! A call that would make a file longer than the limit fails with `EFBIG`, and the kernel first sends `SIGXFSZ`, which ends the process
//! by default. Python ignores the signal, and other programs do not. A library must not change what a process does on a
//! signal, so that callers compare the end of the file with the limit first. Blocking the signal instead was rejected: it
//! would stay pending on the thread.
//!
//! The limit can change between the check and the call; the signal is then sent after all.

use std::io;

/// Checks that a file of this process may have `bytes` bytes. A memfd counts as a file.
///
/// # Errors
/// `EFBIG`, as of the system call, if that is more than the limit.
pub fn check(bytes: u64) -> io::Result<()> {
    if bytes > limit() { Err(io::Error::from_raw_os_error(libc::EFBIG)) } else { Ok(()) }
}

/// The limit in bytes; `u64::MAX` without a limit, or if it cannot be read.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `getrlimit` requires writable memory for an `rlimit`. `limit` is one, and a local of this function.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if status == 0 { limit.rlim_cur } else { u64::MAX }
}

// No limit is more than every size.
const _: () = assert!(libc::RLIM_INFINITY == u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no limits of the process")]
    fn files_of_any_size_up_to_the_limit_pass() {
        // Tests of the crates that write files set a limit, each in a process of its own.
        let limit = limit();
        assert!(check(0).is_ok() && check(limit).is_ok());
        if let Some(above) = limit.checked_add(1) {
            assert_eq!(check(above).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        }
    }
}
