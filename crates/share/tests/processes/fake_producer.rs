//! Fake producers, which send arbitrary replies.

use crate::common::HANG_TIMEOUT;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tensorferry_core::Result;
use tensorferry_share::protocol::REQUEST_BYTES;
use tensorferry_share::{Attached, PublishOptions, Ticket, attach, publish};

/// Sends bytes and descriptors.
pub(crate) fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let mut control = [0u64; 64];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the header points to buffers that live until the calls return and are large enough for a few descriptors.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        if !descriptors.is_empty() {
            let length = size_of_val(descriptors) as u32;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(length) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length) as _;
            libc::CMSG_DATA(message)
                .cast::<RawFd>()
                .copy_from_nonoverlapping(descriptors.as_ptr(), descriptors.len());
        }
        let sent = libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
        assert!(sent as usize == bytes.len() || sent < 0);
    }
}

/// Attaches to a fake producer that executes `then` after the request.
pub(crate) fn attach_to_fake(then: impl FnOnce(UnixStream) + Send) -> Result<Attached> {
    attach_to_fake_for(HANG_TIMEOUT, then)
}

/// As [`attach_to_fake`], with a timeout.
pub(crate) fn attach_to_fake_for(
    timeout: Duration,
    then: impl FnOnce(UnixStream) + Send,
) -> Result<Attached> {
    let publication = publish(&[], b"", &PublishOptions::default()).unwrap();
    let real = publication.ticket();
    let path = PathBuf::from(format!("{}x", real.path().display()));
    let listener = UnixListener::bind(&path).unwrap();
    let fake = Ticket::new(path.clone(), [0; 16], [0; 16], real.process(), real.start()).unwrap();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; REQUEST_BYTES]).unwrap();
            then(stream);
        });
        attach(&fake, timeout)
    });
    std::fs::remove_file(path).unwrap();
    result
}
