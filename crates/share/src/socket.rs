//! Sends and receives bytes and file descriptors over a Unix socket.
//!
//! The sockets are streams, and each header carries the length of the body. A datagram could not exceed the socket's
//! buffer (about 200 KiB), and the tree structure of a large model is longer. The kernel attaches descriptors to the
//! first byte that is sent with them, at most 253 (`SCM_MAX_FD`) at a time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// `SCM_MAX_FD` of the kernel.
pub(crate) const MAX_DESCRIPTORS_PER_SEND: usize = 253;

/// A control buffer (`cmsghdr`) for 253 descriptors, with the alignment that the kernel requires.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 1040]);

impl Control {
    fn new() -> Self {
        Self([MaybeUninit::uninit(); 1040])
    }
}

fn header(vector: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all fields are integers or pointers, for which zero is valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    header
}

/// Sends some of the bytes, and all of the descriptors with the first byte.
///
/// # Errors
/// More than [`MAX_DESCRIPTORS_PER_SEND`] descriptors, or an error of the system.
pub(crate) fn send(socket: RawFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut header = header(&mut vector);
    let mut control = Control::new();
    if descriptors.len() > MAX_DESCRIPTORS_PER_SEND {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !descriptors.is_empty() {
        let length = size_of_val(descriptors) as u32;
        control.0.fill(MaybeUninit::new(0));
        // The last borrow of the buffer: another one would invalidate this pointer.
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the macro only computes a size.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as _;
        // SAFETY: the control buffer is aligned and has room for this one message, which 253 descriptors fit into.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length) as _;
            ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(message),
                length as usize,
            );
        }
    }
    // SAFETY: the header points to buffers that live until the call returns.
    let sent = unsafe { libc::sendmsg(socket, &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Receives some bytes (0 at the end of the stream) and appends the descriptors that were sent with them.
pub(crate) fn receive(socket: RawFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = header(&mut vector);
    let mut control = Control::new();
    header.msg_controllen = control.0.len() as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the header points to buffers that live until the call returns and may be written.
    let got = unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has filled the control buffer with whole messages; the descriptors in them are new and ours.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let length = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..length / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        // This process has no descriptor left, or the peer sent more than the limit.
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(got as usize)
}
