//! Sends and receives bytes and file descriptors over a Unix socket.
//!
//! The sockets are streams, and each header carries the length of the body. A datagram could not exceed the socket's
//! buffer (about 200 KiB), and the tree structure of a large model is longer. The kernel attaches descriptors to the
//! first byte that is sent with them, at most 253 (`SCM_MAX_FD`) at a time.

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `SCM_MAX_FD` of the kernel.
pub(crate) const MAX_DESCRIPTORS_PER_SEND: usize = 253;

/// The bytes of a control message (`cmsghdr`) with 253 descriptors.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS_PER_SEND));

/// Sends some of the bytes, and all of the descriptors with the first byte.
///
/// # Errors
/// More than [`MAX_DESCRIPTORS_PER_SEND`] descriptors, or an error of the system.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors.len() > MAX_DESCRIPTORS_PER_SEND {
        return Err(Errno::INVAL);
    }
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// Receives some bytes (0 at the end of the stream) and appends the descriptors that were sent with them.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // This process has no descriptor left, or the peer sent more than the limit.
        return Err(Errno::MFILE);
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::FdFlags;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_with_the_first_byte() {
        let (left, right) = UnixStream::pair().unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(send(&left, b"ab", &[pipe.as_fd(); MAX_DESCRIPTORS_PER_SEND + 1]), Err(Errno::INVAL));
        assert_eq!(send(&left, b"ab", &[pipe.as_fd(); MAX_DESCRIPTORS_PER_SEND]), Ok(2));
        let (mut byte, mut descriptors) = ([0], Vec::new());
        assert_eq!((receive(&right, &mut byte, &mut descriptors), byte), (Ok(1), *b"a"));
        assert_eq!(descriptors.len(), MAX_DESCRIPTORS_PER_SEND);
        for descriptor in &descriptors {
            assert!(rustix::io::fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
        }
        assert_eq!((receive(&right, &mut byte, &mut descriptors), byte), (Ok(1), *b"b"));
        assert_eq!(descriptors.len(), MAX_DESCRIPTORS_PER_SEND);
        drop(left);
        assert_eq!(receive(&right, &mut byte, &mut descriptors), Ok(0));
    }
}
