//! Fake producers, which send arbitrary replies.

use crate::common::HANG_TIMEOUT;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tensorferry_core::Result;
use tensorferry_share::protocol::REQUEST_BYTES;
use tensorferry_share::{Attached, PublishOptions, Ticket, attach, publish};

/// Sends bytes and up to 253 descriptors.
pub(crate) fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    // The consumer may have closed the connection.
    assert!(sent.is_err() || sent == Ok(bytes.len()));
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
