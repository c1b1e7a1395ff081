//! Consumers that send garbage, send nothing, send too much or do not read.

use crate::common::{
    HANG_TIMEOUT, attach_ticket, publish_bytes, read, record_baseline, retry_within, serialize_tests,
    wait_until,
};
use crate::fake_producer::send;
use crate::raw_calls::{ChildEnd, fork, unread_bytes, wait};
use memmap2::MmapOptions;
use rustix::io::{Errno, dup};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{IoSliceMut, Read, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::protocol::{AttachRequest, HEADER_BYTES, REQUEST_BYTES, RejectReason, Reply};
use tensorferry_share::{Arena, PublishOptions, PublishedTensor, Ticket, counts, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

/// The encoded request of a consumer with this ticket.
pub(crate) fn encoded_request(ticket: &Ticket) -> Vec<u8> {
    let secret = ticket.to_bytes()[29..45].try_into().unwrap();
    AttachRequest { id: *ticket.id(), secret }.write()
}

/// Sends bytes to the producer. Returns the reason of its rejection, or `None` if it only closes the connection.
fn send_and_receive(ticket: &Ticket, bytes: &[u8]) -> Option<RejectReason> {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    // The producer may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    match Reply::read(bytes.get(HEADER_BYTES..)?).unwrap() {
        Reply::Rejection { reason, .. } => Some(reason),
        Reply::Delivery(_) => panic!("the producer delivered"),
    }
}

#[test]
fn malformed_requests() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"safe", PublishOptions::default());
    let ticket = publication.ticket();
    let good = encoded_request(ticket);
    for index in 0..HEADER_BYTES {
        let mut invalid = good.clone();
        invalid[index] ^= 0x40;
        assert_eq!(send_and_receive(ticket, &invalid), Some(RejectReason::Malformed), "{index}");
    }
    for index in HEADER_BYTES..REQUEST_BYTES {
        let mut invalid = good.clone();
        invalid[index] ^= 1;
        assert_eq!(send_and_receive(ticket, &invalid), Some(RejectReason::Unknown), "{index}");
    }
    // Too long: the producer rejects it, or closes the connection because it does not read the rest.
    assert!(matches!(send_and_receive(ticket, &vec![0xff; 100_000]), None | Some(RejectReason::Malformed)));
    // Truncated at every length, by consumers that disconnect.
    for length in 0..REQUEST_BYTES {
        UnixStream::connect(ticket.path()).unwrap().write_all(&good[..length]).unwrap();
    }
    assert_eq!(read(&attach_ticket(ticket).unwrap().tensors[0]), b"safe");
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn a_request_in_single_bytes_and_a_replay() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"slow", PublishOptions { once: true, ..PublishOptions::default() });
    let good = encoded_request(publication.ticket());
    let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
    for byte in &good {
        stream.write_all(&[*byte]).unwrap();
        wait_until("the byte is read", || unread_bytes(&stream) == 0);
    }
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    // The producer ignores everything after the request.
    stream.write_all(&good).unwrap();
    assert_eq!(publication.leases(), 1);
    assert_eq!(send_and_receive(publication.ticket(), &good), Some(RejectReason::Used));
    drop(stream);
    wait_until("the lease has ended", || publication.leases() == 0);
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn consumers_that_send_nothing() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"prompt", PublishOptions::default());
    let silent: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(publication.ticket().path()).unwrap()).collect();
    let prompt = retry_within(Duration::from_secs(2), || attach_ticket(publication.ticket()).unwrap());
    assert_eq!(read(&prompt.tensors[0]), b"prompt");
    drop(prompt);
    // The oldest are disconnected.
    wait_until("some are disconnected", || counts().descriptors < 80);
    assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    drop((silent, publication));
    before.wait_until_restored();
}

#[test]
fn consumers_that_do_not_read() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let tensors = [crate::common::tensor(b"big")];
    let publication = publish(&tensors, &vec![1; 8 << 20], &PublishOptions::default()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
        stream.write_all(&encoded_request(publication.ticket())).unwrap();
        streams.push(stream);
    }
    wait_until("all have sent a request", || publication.leases() == 20);
    assert_eq!(attach_ticket(publication.ticket()).unwrap().structure.len(), 8 << 20);
    drop(streams);
    wait_until("all leases have ended", || publication.leases() == 0);
    drop((tensors, publication));
    before.wait_until_restored();
}

#[test]
fn consumers_that_send_descriptors() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"kept", PublishOptions::default());
    let (reader, writer) = std::io::pipe().unwrap();
    let stream = UnixStream::connect(publication.ticket().path()).unwrap();
    send(&stream, &encoded_request(publication.ticket()), &[writer.as_fd(); 10]);
    wait_until("it has a lease", || publication.leases() == 1);
    drop(writer);
    // The pipe ends only if the producer has kept no descriptor.
    assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
    drop((stream, publication, reader));
    before.wait_until_restored();
}

#[test]
fn another_user_is_rejected() {
    let _serial = serialize_tests();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let before = record_baseline();
    let publication = publish_bytes(b"mine", PublishOptions::default());
    let ticket = publication.ticket();
    let fork = |then: &dyn Fn() -> bool| {
        wait(fork(ChildEnd::Immediate, || {
            // The child has one thread.
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok() && then()
        }))
    };
    // The directory is not accessible.
    assert_eq!(
        fork(&|| attach_ticket(ticket).is_err_and(|error| error.kind() == ErrorKind::TicketRejected)),
        0
    );
    // With an accessible directory, the producer disconnects it without a reply, and it does not trust the producer.
    let dir = ticket.path().parent().unwrap();
    for path in [dir, ticket.path()] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let good = encoded_request(ticket);
    let disconnected = fork(&|| {
        let Ok(mut stream) = UnixStream::connect(ticket.path()) else { return false };
        let _ = stream.write_all(&good);
        !matches!(stream.read(&mut [0; 8]), Ok(1..))
    });
    assert_eq!((disconnected, publication.leases()), (0, 0));
    assert_eq!(fork(&|| attach_ticket(ticket).is_err_and(|error| error.fact().contains("another user"))), 0);
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    drop(publication);
    before.wait_until_restored();
}

/// The first descriptor of the reply to a request.
pub(crate) fn receive_descriptor(ticket: &Ticket) -> OwnedFd {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.write_all(&encoded_request(ticket)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 64];
    let vectors = &mut [IoSliceMut::new(&mut bytes)];
    assert!(recvmsg(&stream, vectors, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes > 0);
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.unwrap()
}

#[test]
fn read_only_descriptors_cannot_be_mapped_as_writable() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for (access, may_write) in [(Access::ReadOnly, false), (Access::ReadWrite, true)] {
        let publication = publish_bytes(b"fixed", PublishOptions { access, ..PublishOptions::default() });
        let descriptor = receive_descriptor(publication.ticket());
        let mut options = MmapOptions::new();
        options.len(4096);
        options.map_raw_read_only(&descriptor).unwrap();
        let is_writable = match options.map_raw(&descriptor) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                false
            }
        };
        let is_written = rustix::io::pwrite(&descriptor, b"x", 0) == Ok(1);
        assert_eq!((is_writable, is_written), (may_write, may_write));
    }
    before.wait_until_restored();
}

#[test]
fn a_consumer_without_descriptors_gets_an_error() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let arenas: Vec<_> = (0..20).map(|_| Arena::new(4096).unwrap()).collect();
    let layout = Layout::dense(1, &[1]).unwrap();
    let tensors: Vec<PublishedTensor> = arenas
        .iter()
        .map(|arena| PublishedTensor {
            memory: arena.clone().into(),
            offset: 0,
            dtype: DType::UInt8,
            layout: layout.clone(),
        })
        .collect();
    let publication = publish(&tensors, b"", &READ_ONLY).unwrap();
    let child = fork(ChildEnd::Immediate, || {
        let next_descriptor = || dup(stdin()).unwrap().as_raw_fd();
        let next = next_descriptor();
        let limit = Some(next as u64 + 5);
        let limited = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok();
        let is_reported = attach_ticket(publication.ticket())
            .is_err_and(|error| error.errno() == Some(Errno::MFILE.raw_os_error()));
        // The received descriptors were closed.
        limited && is_reported && next_descriptor() == next
    });
    assert_eq!(wait(child), 0);
    wait_until("the lease has ended", || publication.leases() == 0);
    drop((publication, tensors, arenas));
    before.wait_until_restored();
}
